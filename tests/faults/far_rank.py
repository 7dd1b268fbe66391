"""A rank of a server as a process of its own, for tests that kill or stop somebody.

    python -m tests.faults.far_rank '{"address": "tcp://127.0.0.1:7070", "hold_at": 3}'

It reads epochs of the training split and says each batch in a line: epoch, step, index, digest. At
the steps it is told to hold at it goes on when it is spoken to. At the end it says that it is done,
or what went wrong.
"""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import Any, Self

from penstock.client.channel.channel import Channel
from penstock.client.channel.inputs import inputs_of
from penstock.client.channel.registration import Registration
from penstock.client.hub.hub import Provider
from penstock.client.remote.hub import RemoteHub
from penstock.client.remote.same_host import hub_on_this_host
from penstock.graph import Graph
from penstock.rpc.deadline import Deadline
from penstock.rpc.endpoint import Endpoint
from penstock.rpc.server import RemoteServer
from penstock.sampling.digest import batch_digest
from penstock.sampling.kinds import InputKind
from tests.client.graphs import PATIENCE_S, SPEC, TERMS, expected
from tests.client.ranks import ROOT

Line = tuple[int, int, int, str]


@dataclass(frozen=True)
class Plan:
    """What the rank is to do. `hold_at`: (epoch, step) after which it waits for a word."""

    address: str
    name: str = "far"
    same_host: bool = False
    epochs: int = 2
    hold_at: tuple[int, int] = (-1, -1)
    patience: float = 60.0


# --- in the test -------------------------------------------------------------------------------


class FarRank:
    """The process, as the test sees it."""

    def __init__(self, address: str, **plan: Any) -> None:
        self.plan = Plan(address, **plan)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.far_rank", json.dumps(asdict(self.plan))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            text=True,
        )
        self.pid = self.process.pid
        self.lines: list[Line] = []

    def hear(self) -> Any:
        """The next thing it says; batches are kept in `lines`."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the rank ended with status {self.process.wait(PATIENCE_S)}"
        said = json.loads(line)
        if isinstance(said, list):
            epoch, step, index, digest = said
            self.lines.append((epoch, step, index, digest))
        return said

    def wait_at_hold(self) -> Self:
        """Until it has come to where it waits for us."""
        while (said := self.hear()) != "holding":
            assert isinstance(said, list), said
        return self

    def go_on(self) -> None:
        """Tells it to."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def finish(self) -> list[Line]:
        """All batches it got; it must have ended well."""
        while isinstance(said := self.hear(), list):
            pass
        assert said == "done", said
        assert self.process.wait(PATIENCE_S) == 0
        return self.lines

    def error(self) -> dict[str, str]:
        """What went wrong with it, which something must."""
        while not isinstance(said := self.hear(), dict):
            assert said != "done"
        return said

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def due(graph: Graph, epochs: int = 2) -> list[Line]:
    """What every rank must get, each batch once and in order."""
    return [(epoch, *each) for epoch in range(epochs) for each in expected(graph, epoch)]


# --- in the process ----------------------------------------------------------------------------


def main() -> None:
    """Does what the plan says."""
    plan = Plan(**json.loads(sys.argv[1]))
    try:
        with ExitStack() as stack:
            _read(plan, stack)
    except Exception as error:
        _say({"kind": type(error).__name__, "message": str(error)})
    else:
        _say("done")


def _read(plan: Plan, stack: ExitStack) -> None:
    provider = _provider(plan, stack)
    inputs = inputs_of(provider.graph, "train", InputKind.NODE)
    wishes = Registration.make(provider.graph, SPEC, inputs, TERMS)
    channel = stack.enter_context(Channel(provider, wishes.named(plan.name)))
    for epoch in range(plan.epochs):
        channel.start(epoch)
        while (batch := channel.next(PATIENCE_S)) is not None:
            _say([batch.epoch, batch.step, batch.index, batch_digest(batch.arrays)])
            if [epoch, batch.step] == list(plan.hold_at):
                _say("holding")
                sys.stdin.readline()


def _provider(plan: Plan, stack: ExitStack) -> Provider:
    deadline = Deadline(PATIENCE_S)
    store = RemoteServer(Endpoint(plan.address, name=plan.name), plan.patience)
    stack.callback(store.close)
    store.connect(deadline)
    near = hub_on_this_host(store, deadline) if plan.same_host else None
    assert plan.same_host == (near is not None)
    provider = near or RemoteHub(store)
    stack.callback(provider.close)
    return provider


def _say(what: Any) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    main()
