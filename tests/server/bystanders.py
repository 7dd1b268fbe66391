"""Those who must not notice what strangers do: ranks that read, and the server's own books."""

from __future__ import annotations

import ssl
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from penstock.graph import Graph
from penstock.wire import values
from penstock.wire.messages import Answer, Call
from penstock.wire.payload import pack
from tests.cli.servers import Running, serving
from tests.client.graphs import PATIENCE_S, expected
from tests.faults.processes import descriptors
from tests.processes import until
from tests.server.ranks import BareRank

# Of memory while it lasts, and of what stays: large beside what anything here needs, and small
# beside what strangers send.
PEAK_BYTES = 256 << 20
REST_BYTES = 48 << 20
# "At once", on a machine that may be very busy.
AT_ONCE_S = 10.0


@contextmanager
def listened_to(
    graph: Path, *options: object, tls: ssl.SSLContext | None = None
) -> Iterator[Running]:
    """A server whose words are read all the time, or it would wait for that."""
    with serving(graph, *options) as running:
        told: deque[str] = deque(maxlen=1000)
        stream = running.process.stderr
        assert stream is not None
        reader = threading.Thread(target=lambda: told.extend(stream), daemon=True)
        reader.start()
        _warm_up(running.address, tls)
        try:
            yield running
        finally:
            running.process.kill()
            reader.join()


def _warm_up(address: str, tls: ssl.SSLContext | None) -> None:
    """A large answer, for which threads and descriptors are made that stay."""
    plain, arrays = values.pack({"index": np.zeros(100_000, np.int64)})
    packed = pack(arrays)
    with BareRank(address, tls=tls) as rank:
        rank.greet()
        call = Call(request=1, verb="get_node_feature", arguments=plain, arrays=packed.arrays)
        rank.say(call, packed.views)
        rank.hear(Answer)
        rank.goodbye()


class Bystander(threading.Thread):
    """Reads epoch after epoch over the wire, and compares every batch."""

    def __init__(self, address: str, graph: Graph, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(daemon=True)
        self._address = address
        self._tls = tls
        self._expected = [expected(graph, epoch) for epoch in range(3)]
        self._over = threading.Event()
        self.has_begun = threading.Event()
        self.epochs = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            with BareRank(self._address, tls=self._tls) as rank:
                self._read(rank)
        except BaseException as error:
            self.failure = error
        self.has_begun.set()

    def _read(self, rank: BareRank) -> None:
        rank.greet(name="bystander")
        rank.register(split="train", slots=2)
        while not self._over.is_set():
            rank.live()
            rank.start(self.epochs)
            seen = rank.read()
            if self.epochs < len(self._expected):
                assert seen == self._expected[self.epochs]
            assert len(seen) == len(self._expected[0])
            self.epochs += 1
            self.has_begun.set()
        rank.goodbye()

    def ended(self) -> int:
        """How many epochs there were, all of them right."""
        self._over.set()
        self.join(PATIENCE_S)
        assert not self.is_alive(), "the bystander is kept waiting"
        if self.failure is not None:
            raise self.failure
        return self.epochs


def reset_peak(pid: int) -> None:
    """The kernel counts from here."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def memory_of(pid: int) -> tuple[int, int]:
    """Bytes that are resident now, and the most there were."""
    found = {}
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name in ("VmRSS", "VmHWM"):
            found[name] = int(value.split()[0]) << 10
    return found["VmRSS"], found["VmHWM"]


def answers_at_once(address: str, tls: ssl.SSLContext | None = None) -> None:
    """Somebody new is welcomed, and answered."""
    with BareRank(address, tls=tls) as rank:
        rank.hello(name="somebody new")
        assert type(rank.hear_any(AT_ONCE_S)[0]).__name__ == "Welcome"
        assert rank.call("ping") == (None, {})
        assert rank.call("get_node_types") == (None, {})
        rank.goodbye()


@contextmanager
def unharmed(
    running: Running, graph: Graph, tls: ssl.SSLContext | None = None
) -> Iterator[Bystander]:
    """What happens within harms nobody: others are served, and nothing of it stays."""
    pid, address = running.process.pid, running.address
    answers_at_once(address, tls)
    bystander = Bystander(address, graph, tls)
    bystander.start()
    bystander.has_begun.wait(PATIENCE_S)
    open_before = descriptors(pid)
    reset_peak(pid)
    before, _ = memory_of(pid)
    try:
        yield bystander
        answers_at_once(address, tls)
        assert running.process.poll() is None
    finally:
        epochs = bystander.ended()
    assert epochs >= 1
    until(lambda: descriptors(pid) <= open_before, "no descriptor is left")
    _, peak = memory_of(pid)
    assert peak - before < PEAK_BYTES, f"{(peak - before) >> 20} MB more at the peak"
    until(lambda: memory_of(pid)[0] - before < REST_BYTES, f"all but {REST_BYTES} bytes are free")
