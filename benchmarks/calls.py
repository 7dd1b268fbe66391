"""Measure what a small batch costs in Python: function calls and CPU time, by process.

A batch has 16 seeds, fan-outs 5 and 5, and 6 arrays, so that almost all of its cost is ours and not
the kernels'. This process ("rank") reads it, embedded (a hub and one worker) and over TCP from a
server with a hub and one worker of its own.

  calls    Python functions called per batch (resumed generators included), counted by a profiler
           in every process and in all threads
  us       microseconds of CPU time per batch, without a profiler

Both are differences between two moments of an epoch, so that starting and ending do not count.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from penstock import Graph, HubProcess, NeighborSpec, SharedDistSamplingBackend
from penstock.client.channel.channel import Channel
from penstock.client.channel.inputs import inputs_of
from penstock.client.channel.registration import Registration
from penstock.client.remote.hub import RemoteHub
from penstock.rpc.deadline import Deadline
from penstock.rpc.endpoint import Endpoint
from penstock.rpc.server import RemoteServer
from penstock.sampling.kinds import InputKind

NODES, EDGES, WIDTH, SEEDS = 20_000, 200_000, 8, 16
SPEC = NeighborSpec(num_neighbors=(5, 5))
WAIT_S = 60.0
WARM, COUNTED, TIMED = 100, 400, 4000
COUNTING = Path(__file__).parent / "counting"


def small_graph() -> Graph:
    """Return a graph with random edges, large enough for small batches."""
    draw = np.random.default_rng(0)
    ends = draw.integers(0, NODES, (2, EDGES))
    x, y = draw.random((NODES, WIDTH), np.float32), draw.integers(0, 10, NODES)
    return Graph.from_coo(ends, num_nodes=NODES, x=x, y=y)


class Reader:
    """Reads batches of one channel, and knows the processes that made them."""

    def __init__(self, next_batch: Callable[[], Any], processes: dict[str, int]) -> None:
        self._next = next_batch
        self.processes = {"rank": os.getpid(), **processes}

    def read(self, batches: int) -> None:
        for _ in range(batches):
            self._next()


@contextmanager
def embedded(graph: Graph) -> Iterator[Reader]:
    with SharedDistSamplingBackend(graph, SPEC, num_workers=1) as backend:
        backend.register_input("calls", inputs(), batch_size=SEEDS)
        backend.start_new_epoch_sampling("calls", 0)
        hub = backend.hub
        assert isinstance(hub, HubProcess)
        assert hub.pid is not None
        yield Reader(lambda: backend.next_batch("calls"), below(hub.pid, "hub"))


@contextmanager
def over_tcp(graph: Graph) -> Iterator[Reader]:
    with tempfile.TemporaryDirectory() as folder:
        graph.save(Path(folder) / "graph")
        command = [sys.executable, "-m", "penstock", "serve", f"{folder}/graph", "--json"]
        server = subprocess.Popen(
            [*command, "--workers", "1", "--bind", "tcp://127.0.0.1:0"], stdout=subprocess.PIPE
        )
        try:
            assert server.stdout is not None
            address = json.loads(server.stdout.readline())["address"]
            store = RemoteServer(Endpoint(address))
            store.connect(Deadline(WAIT_S))
            hub = RemoteHub(store)
            given = inputs_of(hub.graph, inputs(), InputKind.NODE, None, {})
            registration = Registration.make(hub.graph, SPEC, given, {"batch_size": SEEDS})
            channel = Channel(hub, registration)
            channel.start(0)
            (child,) = psutil.Process(server.pid).children()
            yield Reader(
                lambda: channel.next(WAIT_S), {"server": server.pid, **below(child.pid, "hub")}
            )
            channel.close()
            store.close()
        finally:
            server.terminate()
            server.wait()


def below(hub: int, name: str) -> dict[str, int]:
    """Return the process ids of a hub and its worker."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        if len(workers := psutil.Process(hub).children()) == 1:
            return {name: hub, "worker": workers[0].pid}
        time.sleep(0.01)
    raise SystemExit("the hub has no worker")


def inputs() -> Any:
    """Return enough inputs for everything that is measured, in one epoch."""
    batches = 2 * WARM + COUNTED + TIMED
    return np.random.default_rng(1).integers(0, NODES, batches * SEEDS)


# --- measuring -------------------------------------------------------------------------------


def counted(reader: Reader, folder: Path) -> dict[str, float]:
    """Return calls per batch, by process."""

    def calls() -> dict[str, int]:
        return {name: told(pid, folder) for name, pid in reader.processes.items()}

    reader.read(WARM)
    before = calls()
    reader.read(COUNTED)
    after = calls()
    return {name: (after[name] - before[name]) / COUNTED for name in after}


def told(pid: int, folder: Path) -> int:
    """Return how many calls a process has counted."""
    path = folder / str(pid)
    path.unlink(missing_ok=True)
    os.kill(pid, signal.SIGUSR2)
    deadline = time.monotonic() + WAIT_S
    while not path.exists():
        if time.monotonic() > deadline:
            raise SystemExit(f"process {pid} does not say how many calls there were")
        time.sleep(0.001)
    return int(path.read_text())


def timed(reader: Reader) -> dict[str, float]:
    """Return microseconds of CPU time per batch, by process."""

    def seconds() -> dict[str, float]:
        times = {name: psutil.Process(pid).cpu_times() for name, pid in reader.processes.items()}
        return {name: each.user + each.system for name, each in times.items()}

    reader.read(WARM)
    before = seconds()
    reader.read(TIMED)
    after = seconds()
    return {name: 1e6 * (after[name] - before[name]) / TIMED for name in after}


WAYS: dict[str, Callable[[Graph], Any]] = {"embedded": embedded, "over TCP": over_tcp}


def measure(way: str, folder: Path | None) -> dict[str, float]:
    """Measure one way, in its own process: a profiler has a cost even after it is removed."""
    with small_graph() as graph, WAYS[way](graph) as reader:
        return timed(reader) if folder is None else counted(reader, folder)


def in_a_process(way: str, *, counting: bool) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        environment, asked = dict(os.environ), [sys.executable, __file__, "--way", way]
        if counting:
            environment |= {"PYTHONPATH": str(COUNTING), "PENSTOCK_COUNT_CALLS": folder}
            asked += ["--counts-in", folder]
        return dict(json.loads(subprocess.check_output(asked, env=environment)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", action="store_true", help="print JSON only")
    parser.add_argument("--way", choices=tuple(WAYS), help=argparse.SUPPRESS)
    parser.add_argument("--counts-in", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.way is not None:
        print(json.dumps(measure(given.way, given.counts_in)))
        return
    result = {}
    for way in WAYS:
        calls, cpu = in_a_process(way, counting=True), in_a_process(way, counting=False)
        result[way] = {name: {"calls": calls[name], "us": cpu[name]} for name in calls}
        if not given.json:
            tell(way, result[way])
    if given.json:
        print(json.dumps(result))


def tell(way: str, found: dict[str, dict[str, float]]) -> None:
    total = {key: sum(each[key] for each in found.values()) for key in ("calls", "us")}
    for name, each in {**found, "together": total}.items():
        print(
            f"{way:>10} {name:>9}: {each['calls']:6.0f} calls, {each['us']:6.0f} us of CPU a batch"
        )


if __name__ == "__main__":
    main()
