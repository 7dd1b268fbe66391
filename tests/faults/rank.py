"""A rank as a process of its own, for tests that kill or stop it.

    python -m tests.faults.rank '{"channels": 2, "reads": true}'

It starts a hub, or joins the one at `address`; opens channels; reads them, if it is to, in one
thread each, comparing every batch with its twin; says in one line of JSON who is there, once each
has a batch; and goes on until its standard input ends. Then it finishes its epochs and says how
many batches there were.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Self

import penstock
from penstock import PenstockError, SharedDistSamplingBackend
from tests.faults.orders import Order, armed
from tests.faults.processes import hub_pid, numbers, worker_pids
from tests.faults.twins import PATIENCE_S, PATIENT, SPEC, Twins, small_graph


@dataclass(frozen=True)
class Plan:
    """What the rank is to do. `group`: the control group that it is to be in, with all its own."""

    address: str | None = None
    workers: int = 1
    channels: int = 1
    reads: bool = False
    starts: bool = True  # epochs, whether it reads them or not
    channel_options: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    group: str | None = None
    until_error: bool = False  # says what goes wrong with the first channel


# --- in the test -------------------------------------------------------------------------------


class Rank:
    """The process, as the test sees it: who belongs to it, and how to talk to it."""

    def __init__(self, plan: Plan, orders: list[Order]) -> None:
        environment = {**os.environ, **(armed(orders) if orders else {})}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.rank", json.dumps(plan.__dict__)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )
        self.pid = self.process.pid

    def hear(self) -> dict[str, Any]:
        """The next thing it says."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the rank ended with status {self.process.wait(PATIENCE_S)}"
        said = json.loads(line)
        assert isinstance(said, dict)
        return said

    def finish(self) -> dict[str, Any]:
        """Tells it to come to an end; what it says then. It must end well."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        said = self.hear()
        assert self.process.wait(PATIENCE_S) == 0
        return said

    def kill(self) -> None:
        """SIGKILL, and reaped."""
        self.process.kill()
        self.process.wait(PATIENCE_S)

    def close(self) -> None:
        self.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def rank(*orders: Order, **plan: Any) -> Rank:
    """A rank with this plan, whose workers obey these orders."""
    return Rank(Plan(**plan), list(orders))


# --- in the process ----------------------------------------------------------------------------


def main() -> int:
    """Does what the plan says."""
    plan = Plan(**json.loads(sys.argv[1]))
    if plan.group is not None:
        with open(f"{plan.group}/cgroup.procs", "w") as group:
            group.write(str(os.getpid()))
    with _backend(plan) as backend, Twins(backend) as pair:
        names = [f"channel {number}" for number in range(plan.channels)]
        for number, name in enumerate(names):
            pair.register(name, **{"seed": number, **plan.channel_options})
            if plan.starts and not plan.reads:
                pair.start(name, 0)
        readers = [_Reader(pair, name) for name in names] if plan.reads else []
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.has_begun.wait()
        _say(_who(backend, plan))
        if plan.until_error:
            _say({"error": _error(pair, names[0])})
        sys.stdin.read()
        _say({"batches": [reader.ended() for reader in readers]})
    return 0


class _Reader(threading.Thread):
    """Reads epoch after epoch until the end is asked for."""

    def __init__(self, pair: Twins, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.has_begun = threading.Event()
        self._over = threading.Event()
        self._pair = pair
        self._batches = 0
        self._failed = True

    def run(self) -> None:
        epoch = 0
        while not self._over.is_set():
            self._pair.start(self.name, epoch)
            while self._pair.next(self.name) is not None:
                self.has_begun.set()
                self._batches += 1
            epoch += 1
        self._failed = False

    def ended(self) -> int:
        """How many batches there were, all of them right."""
        self._over.set()
        self.join()
        assert not self._failed
        return self._batches


@contextmanager
def _backend(plan: Plan) -> Iterator[SharedDistSamplingBackend]:
    with ExitStack() as stack:
        if plan.address is not None:
            hub = stack.enter_context(penstock.connect(plan.address))
            yield stack.enter_context(SharedDistSamplingBackend(hub, SPEC))
            return
        graph = stack.enter_context(small_graph())
        options: dict[str, Any] = {**PATIENT, **plan.options}
        own = SharedDistSamplingBackend(graph, SPEC, num_workers=plan.workers, **options)
        yield stack.enter_context(own)


def _who(backend: SharedDistSamplingBackend, plan: Plan) -> dict[str, Any]:
    if plan.address is not None:
        return {"connections": numbers(backend)["hub"]["connections"]}
    return {
        "hub": hub_pid(backend),
        "workers": worker_pids(backend),
        "address": backend.address,
    }


def _error(pair: Twins, name: str) -> str:
    try:
        pair.finish(name)
    except PenstockError as error:
        return str(error)
    return "none"


def _say(what: dict[str, Any]) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    sys.exit(main())
