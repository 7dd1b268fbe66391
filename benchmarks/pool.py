"""Measure what the pool costs compared to the bare kernels, and channels to each other.

The graph and the batches are those of kernels.py: 1024 seeds, fan-outs [15, 10, 5], edge ids, and
the rows of all nodes. The consumer only returns slots. Each figure is a ratio of two things
measured in turn, in one run, over the same number of batches; printed are the median of the pairs
and their quartiles.

  one worker       its rate over that of sampling inline, in the caller
  two workers      their rate over that of two threads that run the bare kernels at once
  two processes    the same for two processes with only the bare kernels: what is lost by having
                   two page tables for one graph, which no pool can avoid
  many channels    the rate of sixteen channels together over that of one, two workers, after all
                   of their slots have been written to
  paused consumer  the rate of three channels beside one whose reader stopped, over that of the
                   three alone, two workers
  replacement      from a worker's SIGKILL to the first batch of the next one, over the time from
                   asking for a worker to its first batch
  memory           the memory of a worker that it does not share, in MB, with the graph mapped
  idle             the share of one core that a pool of eight uses while nobody asks for anything

An epoch is timed from its start to its last batch, so filling the pipeline counts against the pool.
Absolute times mean little on a shared machine; the ratios are the result.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import psutil

sys.path.insert(0, str(Path(__file__).parent))
from kernels import FANOUTS, SEEDS, SIZES, WIDTH, mapped
from rmat import benchmark_graph

from penstock import Graph, SharedDistSamplingBackend
from penstock.core.plan import EpochPlan
from penstock.graph.sharing import GraphHandle
from penstock.kernels import Buffers, gather_rows, permutation
from penstock.sampling import NeighborSampler
from penstock.sampling.spec import NeighborSpec

SPEC = NeighborSpec(num_neighbors=tuple(FANOUTS))
Measure = Callable[[int], float]  # a number of batches -> batches per second

MANY, IDLE_WORKERS, WARM_UP = 16, 8, 3


class Readers:
    """Channels of one backend, read together, in the order in which batches are ready."""

    def __init__(
        self, backend: SharedDistSamplingBackend, names: Sequence[str], batches: int
    ) -> None:
        self.backend = backend
        self.names = list(names)
        self._epoch = -1
        share = batches // len(names)
        rng = np.random.default_rng(7)
        for name in self.names:
            ids = rng.integers(0, backend.graph.num_nodes(), share * SEEDS)
            backend.register_input(name, ids, batch_size=SEEDS, shuffle=True, seed=len(name))

    def start(self) -> None:
        """Start a new epoch on all of them."""
        self._epoch += 1
        for name in self.names:
            self.backend.start_new_epoch_sampling(name, self._epoch)

    def rate(self, batches: int) -> float:
        """Return the batches per second over a whole epoch of all channels."""
        start = time.perf_counter()
        self.start()
        got = self.drain()
        assert got == batches, f"{got} batches came; expected {batches}"
        return batches / (time.perf_counter() - start)

    def drain(self) -> int:
        """Read to the end of all epochs."""
        if len(self.names) == 1:
            return sum(1 for _ in self.backend.batches(self.names[0]))
        got, reading = 0, set(self.names)
        while reading:
            for name in self.backend.wait_any(reading, timeout=120):
                if self.backend.next_batch(name, timeout=120) is None:
                    reading.discard(name)
                else:
                    got += 1
        return got

    def touch_all_slots(self) -> None:
        """Read an epoch of each channel alone, so that as many batches are made as it has slots.

        Channels read together would reach that only now and then, at the end of an epoch.
        """
        self._epoch += 1
        for name in self.names:
            self.backend.start_new_epoch_sampling(name, self._epoch)
            sum(1 for _ in self.backend.batches(name))

    def close(self) -> None:
        for name in self.names:
            self.backend.unregister_input(name)


class BareThreads:
    """Threads that run the kernels on the same kind of batches, each into memory of its own."""

    def __init__(self, graph: Graph, threads: int, batches: int) -> None:
        self._x = graph.node_attribute("x")
        bound = SEEDS * (1 + 15 + 15 * 10 + 15 * 10 * 5)
        ids = np.random.default_rng(7).integers(0, graph.num_nodes(), batches * SEEDS)
        self._ids = ids
        self._plan = EpochPlan(len(ids), SEEDS)
        self._benches = [
            (
                NeighborSampler(graph, FANOUTS),
                Buffers(*([mapped((bound,), "int64")] for _ in range(4))),
                mapped((bound, WIDTH), "float32"),
            )
            for _ in range(threads)
        ]
        self._epoch = 0

    def rate(self, batches: int) -> float:
        self._epoch += 1
        indices = iter(range(batches))
        threads = [
            threading.Thread(target=self._work, args=(bench, indices)) for bench in self._benches
        ]
        start = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return batches / (time.perf_counter() - start)

    def _work(self, bench: Any, indices: Iterable[int]) -> None:
        sampler, out, rows = bench
        for index in indices:  # a range iterator may be shared under the GIL
            start, stop = self._plan.input_range(index)
            places = permutation(1, self._epoch, len(self._ids), start, stop)
            seeds = self._ids[places]
            nodes = sampler.sample(seeds, epoch=self._epoch, index=index, out=out).nodes[0]
            gather_rows(self._x, nodes, rows[: len(nodes)])


def pairs(one: Measure, other: Measure, batches: int, repeats: int) -> dict[str, Any]:
    """Return the ratio of two rates, measured in turn, with alternating order."""
    rates = []
    for _ in range(WARM_UP):  # every worker has touched every slot it will use
        one(batches), other(batches)
    for number in range(repeats):
        if number % 2:
            second, first = other(batches), one(batches)
        else:
            first, second = one(batches), other(batches)
        rates.append((first, second))
    return summary(rates, "batches_per_second")


def summary(measured: Sequence[tuple[float, float]], unit: str) -> dict[str, Any]:
    """Return the median and quartiles of the pairs' ratios, and the median of either side."""
    low, middle, high = statistics.quantiles([ours / theirs for ours, theirs in measured], n=4)
    ours, theirs = (statistics.median(column) for column in zip(*measured, strict=True))
    return {"ratio": middle, "quartiles": [low, high], unit: ours, "against": theirs}


def pool_of(graph: Graph, workers: int, **options: Any) -> SharedDistSamplingBackend:
    return SharedDistSamplingBackend(graph, SPEC, num_workers=workers, **options)


def one_worker(graph: Graph, batches: int, repeats: int) -> dict[str, Any]:
    with pool_of(graph, 1) as pool, pool_of(graph, 0) as inline:
        ours, theirs = Readers(pool, ["pool"], batches), Readers(inline, ["here"], batches)
        return pairs(ours.rate, theirs.rate, batches, repeats)


def two_workers(graph: Graph, batches: int, repeats: int) -> dict[str, Any]:
    with pool_of(graph, 2) as pool:
        ours, bare = Readers(pool, ["pool"], batches), BareThreads(graph, 2, batches)
        return pairs(ours.rate, bare.rate, batches, repeats)


def two_processes(graph: Graph, batches: int, repeats: int) -> dict[str, Any]:
    children = [BareChild(graph, batches // 2) for _ in range(2)]

    def together(batches: int) -> float:
        start = time.perf_counter()
        for child in children:
            child.go()
        for child in children:
            child.wait()
        return batches / (time.perf_counter() - start)

    try:
        bare = BareThreads(graph, 2, batches)
        return pairs(together, bare.rate, batches - batches % 2, repeats)
    finally:
        for child in children:
            child.close()


class BareChild:
    """A process that runs the bare kernels when told to, on the same memory."""

    def __init__(self, graph: Graph, batches: int) -> None:
        self._line, theirs = socket.socketpair()
        command = [sys.executable, __file__, "--bare-child", str(theirs.fileno())]
        self._process = subprocess.Popen(command, pass_fds=(theirs.fileno(),))
        theirs.close()
        handle = msgspec.msgpack.encode((graph.handle(), batches))
        socket.send_fds(self._line, [handle], graph.descriptors)
        self.wait()

    def go(self) -> None:
        self._line.send(b"go")

    def wait(self) -> None:
        assert self._line.recv(2), "the process is gone"

    def close(self) -> None:
        self._line.close()
        self._process.wait()


def run_bare_child(descriptor: int) -> None:
    with socket.socket(fileno=descriptor) as line:
        message, fds, _, _ = socket.recv_fds(line, 1 << 20, 16)
        handle, batches = msgspec.msgpack.decode(message, type=tuple[GraphHandle, int])
        with Graph.attach(handle, fds) as graph:
            bare = BareThreads(graph, 1, batches)
            line.send(b"up")
            while line.recv(2):
                bare.rate(batches)
                line.send(b"ok")


def many_channels(graph: Graph, batches: int, repeats: int) -> dict[str, Any]:
    batches -= batches % MANY
    with pool_of(graph, 2) as pool:
        many = Readers(pool, [f"channel {n}" for n in range(MANY)], batches)
        alone = Readers(pool, ["alone"], batches)
        for _ in range(WARM_UP):
            many.touch_all_slots()
        return pairs(many.rate, alone.rate, batches, repeats)


def paused_consumer(graph: Graph, batches: int, repeats: int) -> dict[str, Any]:
    batches -= batches % 3
    with pool_of(graph, 2) as pool:
        others = Readers(pool, ["a", "b", "c"], batches)

        def beside(batches: int) -> float:
            paused = Readers(pool, ["paused"], 64)
            paused.start()
            # It has read one batch and stops. Filling its slots is its own share of the work.
            assert pool.next_batch("paused", timeout=120) is not None
            while in_flight(pool):
                time.sleep(0.01)
            rate = others.rate(batches)
            paused.close()
            return rate

        return pairs(beside, others.rate, batches, repeats)


def in_flight(pool: SharedDistSamplingBackend) -> int:
    """Return the number of batches that are being made."""
    channels = pool.statistics().hub["scheduler"]["channels"]
    return sum(channel["in_flight"] for channel in channels)


def replacement(graph: Graph, kills: int) -> dict[str, Any]:
    """Measure one worker that is killed while idle, against one that was never started."""
    times = []
    with pool_of(graph, 1) as pool:
        for number in range(kills + 1):
            cold, killed = _cold(pool), _killed(pool)
            if number:  # the first pair finds cold files
                times.append((killed, cold))
    return summary(times, "seconds")


def _cold(pool: SharedDistSamplingBackend) -> float:
    assert pool.hub is not None
    pool.hub.resize(0)
    reader = Readers(pool, ["cold"], 8)
    reader.start()
    start = time.perf_counter()
    pool.hub.resize(1)
    assert pool.next_batch("cold", timeout=120) is not None
    elapsed = time.perf_counter() - start
    reader.close()
    return elapsed


def _killed(pool: SharedDistSamplingBackend) -> float:
    reader = Readers(pool, ["kill"], 8)
    # A worker that was asked to leave in `_cold` may still be ending.
    ready = next(worker for worker in _workers(pool) if worker["state"] == "ready")
    worker = psutil.Process(ready["pid"])
    start = time.perf_counter()
    worker.send_signal(signal.SIGKILL)
    reader.start()
    assert pool.next_batch("kill", timeout=120) is not None
    elapsed = time.perf_counter() - start
    assert _workers(pool)[0]["pid"] != worker.pid, "the batch was made by the worker killed"
    reader.close()
    return elapsed


def _workers(pool: SharedDistSamplingBackend) -> list[dict[str, Any]]:
    workers: list[dict[str, Any]] = pool.statistics().hub["pool"]["workers"]
    return workers


def memory(graph: Graph, batches: int) -> dict[str, Any]:
    """Return the anonymous memory of two workers after an epoch, as the kernel reports it."""
    with pool_of(graph, 2) as pool:
        Readers(pool, ["reader"], batches).rate(batches)
        private = [_private(worker["pid"]) for worker in _workers(pool)]
    return {"private_megabytes_per_worker": max(private) / 2**20}


def _private(pid: int) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Anonymous:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"the system does not tell the memory of process {pid}")


def idle(graph: Graph, seconds: float) -> dict[str, Any]:
    """Return the CPU time of the hub and its workers while nothing is asked of them."""
    with pool_of(graph, IDLE_WORKERS) as pool:
        reader = Readers(pool, ["reader"], 16)
        reader.rate(16)
        family = psutil.Process().children(recursive=True)
        before = sum(_cpu(process) for process in family)
        time.sleep(seconds)
        used = sum(_cpu(process) for process in family) - before
    return {"share_of_a_core": used / seconds, "processes": len(family)}


def _cpu(process: psutil.Process) -> float:
    # In nanoseconds; /proc/PID/stat counts in hundredths of a second, which is too coarse here.
    text = Path(f"/proc/{process.pid}/schedstat").read_text()
    return int(text.split()[0]) / 1e9 + sum(
        int(Path(f"/proc/{process.pid}/task/{task}/schedstat").read_text().split()[0]) / 1e9
        for task in os.listdir(f"/proc/{process.pid}/task")
        if int(task) != process.pid
    )


def measure(graph: Graph, arguments: argparse.Namespace, say: Callable[[str], None]) -> Any:
    batches, repeats = arguments.batches, arguments.repeats
    result: dict[str, Any] = {}
    for name, work in {
        "one worker": lambda: one_worker(graph, batches, repeats),
        "two workers": lambda: two_workers(graph, batches, repeats),
        "two processes": lambda: two_processes(graph, batches, repeats),
        "many channels": lambda: many_channels(graph, batches, repeats),
        "paused consumer": lambda: paused_consumer(graph, batches, repeats),
        "replacement": lambda: replacement(graph, arguments.kills),
        "memory": lambda: memory(graph, batches),
        "idle": lambda: idle(graph, arguments.idle_seconds),
    }.items():
        result[name] = work()
        say(f"{name:>16}: {told(result[name])}")
    return result


def told(figures: dict[str, Any]) -> str:
    if "ratio" in figures:
        low, high = figures["quartiles"]
        unit, ours = next(
            (key, figures[key]) for key in ("batches_per_second", "seconds") if key in figures
        )
        return (
            f"{figures['ratio']:.3f} (quartiles {low:.3f} to {high:.3f}; "
            f"{ours:.3g} over {figures['against']:.3g} {unit.replace('_', ' ')})"
        )
    return ", ".join(f"{value:.4g} {key.replace('_', ' ')}" for key, value in figures.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--small", action="store_true", help="a small graph, for a quick look")
    parser.add_argument("--json", action="store_true", help="print JSON only")
    parser.add_argument("--batches", type=int, default=192, help="batches per measurement")
    parser.add_argument("--repeats", type=int, default=9, help="pairs measured")
    parser.add_argument("--kills", type=int, default=9, help="workers killed")
    parser.add_argument("--idle-seconds", type=float, default=20.0, help="watching the idle pool")
    parser.add_argument("--bare-child", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, default=Path("build/bench"), help="keeps the graph")
    arguments = parser.parse_args()
    if arguments.bare_child is not None:
        run_bare_child(arguments.bare_child)
        return

    def say(text: str) -> None:
        if not arguments.json:
            print(text, flush=True)

    num_nodes, num_edges = SIZES[arguments.small]
    say(f"RMAT graph: {num_nodes:,} nodes, {num_edges:,} edges, {WIDTH} x float32 (made once)")
    graph = benchmark_graph(arguments.folder, num_nodes, num_edges, WIDTH)
    say(f"measuring {arguments.repeats} pairs of {arguments.batches} batches each")
    result = measure(graph, arguments, say)
    graph.close()
    if arguments.json:
        print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
