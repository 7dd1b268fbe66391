"""Measure a graph in parts on several servers against the whole graph on one.

The graph and the batches are those of kernels.py: 1024 seeds, fan-outs [15, 10, 5], edge ids, and
the rows of all nodes. Servers and readers are processes of their own on loopback, and share this
machine's cores; no reader takes the way through shared memory. Ratios are of two things measured
in turn, in one run; printed are the median of the pairs and their quartiles.

  halves        two servers with half of the topology and of the rows each, over one with all of it
  half rows     two servers with the whole topology and half of the rows each, over one with all
  delay         halves with 2 ms added to every message, over 0 ms through the same test transport
  moved         bytes of arrays moved for a batch, over what must move: ids of the nodes that are
                expanded, neighbours and edge ids that are drawn (32 bits each), and rows
  cache         how many times fewer rows move with a cache of a tenth and of a fifth of the rows;
                and with the best choice of as many rows for the very batches that were read
  mapped        bytes of the graph that a server with half of it maps, over one with all of it
  many ranks    16 ranks in 4 processes with a hub each, 4 servers: Jain's index of their batches
  killed        seconds from SIGKILL of a server that has a replica to the reader's next batch

Absolute times mean little on a shared machine; the ratios are the result.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from kernels import SEEDS, SIZES, WIDTH
from pool import pairs, told
from server import SPEC, Rank, channel_of, saved

from penstock import Graph
from penstock.client.channel.registration import Registration
from penstock.client.channel.warming import warm_for
from penstock.client.hub.hub_process import HubProcess
from penstock.sampling.spec import NeighborSpec
from penstock.store.remote import graph_at
from penstock.store.servers import StoreServers
from penstock.wire.transport.delay import VARIABLE as DELAY

WORKERS = 3
SMALL_SPEC = NeighborSpec(num_neighbors=(10, 5))
HOSTS, RANKS_OF_A_HOST = 4, 4
WAIT_S = 120
ADDRESS = re.compile(r"(tcp://127\.0\.0\.1:\d+)")


@contextmanager
def serving(*folders: Path, delay: float | None = None) -> Iterator[list[Any]]:
    """Run a server for each folder; yield (process, address) of each."""
    environment = dict(os.environ)
    if delay is not None:
        environment[DELAY] = str(delay)
    with ExitStack() as ends:
        servers = []
        for folder in folders:
            process = subprocess.Popen(
                [sys.executable, "-m", "penstock", "serve", folder, "--bind", "tcp://127.0.0.1:0"],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env=environment,
            )
            ends.callback(process.wait, WAIT_S)
            ends.callback(process.terminate)
            servers.append((process, address_of(process)))
        yield servers


def address_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if found := ADDRESS.search(line):
            return found[1]
    raise RuntimeError(f"a server ended with {process.wait()}")


class StoreReader:
    """One channel of a hub that puts batches of a store together."""

    def __init__(
        self,
        addresses: Sequence[str],
        batches: int,
        cache: int = 0,
        workers: int = WORKERS,
        **access: Any,
    ) -> None:
        self._servers = StoreServers.find(addresses, **access)
        self.graph = graph_at(self._servers)
        self.graph.cache_bytes = cache
        self.hub = HubProcess(self.graph, workers)
        self.hub.start()
        if cache:
            warm_for(self.graph, registration_of(self.graph, batches))
        self.channel = channel_of(self.hub, SPEC, batches * SEEDS, SEEDS)
        self._epoch = -1
        self.reads: Any = None  # how often each node's row is read, if somebody wants to know
        self.counts: list[Any] = []  # nodes and edges by hop, of each batch of the last epoch

    def rate(self, batches: int) -> float:
        self._epoch += 1
        self.counts = []
        start = time.perf_counter()
        self.channel.start(self._epoch)
        for batch in self.channel:
            facts = batch.facts
            if self.reads is not None:
                self.reads[batch["n_id"]] += 1
            self.counts.append((facts["num_sampled_nodes"], facts["num_sampled_edges"]))
        assert len(self.counts) == batches
        return batches / (time.perf_counter() - start)

    def moved(self) -> dict[str, Any]:
        found: dict[str, Any] = self.hub.statistics()["moved"] or {}
        return found

    def close(self) -> None:
        self.channel.close()
        self.hub.close()
        self.graph.close()
        self._servers.close()


def registration_of(graph: Any, batches: int) -> Registration:
    from penstock.client.channel.inputs import inputs_of
    from penstock.sampling.kinds import InputKind

    ids = np.random.default_rng(9).integers(0, graph.num_nodes(), batches * SEEDS)
    terms: Any = {"batch_size": SEEDS, "shuffle": True, "seed": 1}
    return Registration.make(graph, SPEC, inputs_of(graph, ids, InputKind.NODE), terms)


@contextmanager
def reading(servers: list[Any], batches: int, **options: Any) -> Iterator[StoreReader]:
    reader = StoreReader([address for _, address in servers], batches, **options)
    try:
        yield reader
    finally:
        reader.close()


# --- figures ---------------------------------------------------------------------------------


def beside_one(whole: Path, parts: list[Path], batches: int, repeats: int) -> dict[str, Any]:
    with serving(whole) as [(_, address)], serving(*parts) as servers:
        one = Rank(address, batches)
        try:
            with reading(servers, batches) as store:
                return pairs(store.rate, one.rate, batches, repeats)
        finally:
            one.close()


def delayed(parts: list[Path], batches: int, repeats: int) -> dict[str, Any]:
    with serving(*parts, delay=2) as late, serving(*parts, delay=0) as prompt:
        with delaying(2), reading(late, batches, workers=2 * WORKERS) as slow:
            with delaying(0), reading(prompt, batches, workers=2 * WORKERS) as quick:
                return pairs(slow.rate, quick.rate, batches, repeats)


@contextmanager
def delaying(milliseconds: float) -> Iterator[None]:
    """Have connections that are opened here, and by processes started here, delay messages."""
    before = os.environ.get(DELAY)
    os.environ[DELAY] = str(milliseconds)
    try:
        yield
    finally:
        if before is None:
            del os.environ[DELAY]
        else:
            os.environ[DELAY] = before


def moved(parts: list[Path], batches: int) -> dict[str, Any]:
    with serving(*parts) as servers, reading(servers, batches) as store:
        store.rate(batches)
        found = store.moved()
        must = 0
        for nodes, edges in store.counts:
            must += 4 * sum(nodes[:-1]) + 8 * sum(edges) + 4 * WIDTH * sum(nodes)
        total = found["bytes_in"] + found["bytes_out"]
        return {"ratio_moved": total / must, "megabytes": total / batches / 1e6}


def cached(parts: list[Path], batches: int, num_nodes: int) -> dict[str, Any]:
    figures = {}
    for share in (0.1, 0.2):
        budget = int(share * num_nodes) * 4 * WIDTH
        with serving(*parts) as servers, reading(servers, batches, cache=budget) as store:
            store.reads = np.zeros(num_nodes, np.int64)
            store.rate(batches)
            found, total = store.moved(), int(store.reads.sum())
            best = int(np.sort(store.reads)[::-1][: int(share * num_nodes)].sum())
            figures[f"times_fewer_with_{share:g}"] = total / found["rows"]
            figures[f"with_the_best_{share:g}"] = total / (total - best)
    return figures


def mapped(whole: Path, parts: list[Path], batches: int) -> dict[str, Any]:
    """Bytes of files that servers map, while they serve."""
    with serving(whole) as [(alone, address)], serving(*parts) as servers:
        one = Rank(address, batches)
        with reading(servers, batches) as store:
            one.rate(batches), store.rate(batches)
            all_of_it = mapped_by(alone.pid, whole)
            half = max(
                mapped_by(process.pid, folder)
                for (process, _), folder in zip(servers, parts, strict=True)
            )
        one.close()
    return {"ratio_mapped": half / all_of_it, "gigabytes": half / 1e9}


def mapped_by(pid: int, folder: Path) -> int:
    total = 0
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and fields[5].startswith(str(folder.resolve())):
            begin, end = (int(bound, 16) for bound in fields[0].split("-"))
            total += end - begin
    return total


def many_ranks(parts: list[Path], seconds: float) -> dict[str, Any]:
    with serving(*parts) as servers:
        addresses = ",".join(address for _, address in servers)
        hosts = [
            subprocess.Popen(
                [sys.executable, __file__, "--host", addresses, "--seconds", str(seconds)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for _ in range(HOSTS)
        ]
        for host in hosts:
            assert host.stdout is not None
            host.stdout.readline()  # it is ready
        for host in hosts:
            assert host.stdin is not None
            host.stdin.write("go\n")
            host.stdin.flush()
        got = [count for host in hosts for count in json.loads(host.communicate()[0])]
    return {"jain": sum(got) ** 2 / (len(got) * sum(n * n for n in got)), "batches": sum(got)}


def run_host(addresses: str, seconds: float) -> None:
    """Be a host: a hub, and ranks that read from it, for so many seconds."""
    servers = StoreServers.find(addresses.split(","))
    graph = graph_at(servers)
    with HubProcess(graph, 1) as hub:
        channels = [
            channel_of(hub, SMALL_SPEC, 100_000 * 128, 128, f"rank{number}")
            for number in range(RANKS_OF_A_HOST)
        ]
        for channel in channels:
            channel.start(0)
            channel.next()
        print("ready", flush=True)
        sys.stdin.readline()
        counts, until = [0] * len(channels), time.monotonic() + seconds

        def read(number: int) -> None:
            while time.monotonic() < until:
                channels[number].next()
                counts[number] += 1

        threads = [threading.Thread(target=read, args=(n,)) for n in range(len(channels))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(json.dumps(counts), flush=True)
        for channel in channels:
            channel.close()
    graph.close()


def killed(parts: list[Path], batches: int, repeats: int) -> dict[str, Any]:
    """Kill one of two servers of a part in the middle of an epoch."""
    waits = []
    for _ in range(max(3, repeats // 2)):
        with serving(*parts, parts[0]) as servers, reading(servers, batches) as store:
            store.rate(batches)
            store.channel.start(1000)
            for number, _ in enumerate(store.channel):
                if number == batches // 3:
                    servers[0][0].send_signal(signal.SIGKILL)
                    at = time.perf_counter()
                elif number == batches // 3 + 1:
                    waits.append(time.perf_counter() - at)
    return {"longest_seconds": max(waits), "median_seconds": sorted(waits)[len(waits) // 2]}


# --- all of it -------------------------------------------------------------------------------


def cut(graph: Path, folder: Path, number: int, topology: str) -> list[Path]:
    """Return the parts of a graph, cut once and kept."""
    path = folder / f"{graph.stem}-{number}-{topology}"
    if not path.exists():
        with Graph.open(graph) as whole:
            whole.partition(number, path, topology=topology)  # type: ignore[arg-type]
    return [path / f"part-{part}" for part in range(number)]


def measure(arguments: argparse.Namespace, say: Any) -> dict[str, Any]:
    folder, (num_nodes, num_edges) = arguments.folder, SIZES[arguments.small]
    whole = saved(folder, num_nodes, num_edges)
    batches, repeats = arguments.batches, arguments.repeats
    halves = cut(whole, folder, 2, "parts")
    figures = {
        "halves": lambda: beside_one(whole, halves, batches, repeats),
        "half rows": lambda: beside_one(whole, cut(whole, folder, 2, "whole"), batches, repeats),
        "delay": lambda: delayed(halves, batches, repeats),
        "moved": lambda: moved(halves, batches),
        "cache": lambda: cached(halves, batches, num_nodes),
        "mapped": lambda: mapped(whole, halves, batches),
        "many ranks": lambda: many_ranks(cut(whole, folder, 4, "parts"), arguments.seconds),
        "killed": lambda: killed(halves, batches, repeats),
    }
    wanted = [name.strip() for name in arguments.only.split(",") if name.strip()] or list(figures)
    result = {}
    for name in wanted:
        result[name] = figures[name]()
        say(f"{name:12}  {told(result[name])}")
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--small", action="store_true", help="a small graph, for a quick look")
    parser.add_argument("--json", action="store_true", help="print JSON only")
    parser.add_argument("--batches", type=int, default=96, help="batches per measurement")
    parser.add_argument("--repeats", type=int, default=7, help="pairs measured")
    parser.add_argument("--seconds", type=float, default=20.0, help="that many ranks read for")
    parser.add_argument("--only", default="", help="some figures, with commas between them")
    parser.add_argument("--folder", type=Path, default=Path("build/bench"), help="keeps the graph")
    parser.add_argument("--host", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.host:
        run_host(arguments.host, arguments.seconds)
        return

    def say(text: str) -> None:
        if not arguments.json:
            print(text, flush=True)

    num_nodes, num_edges = SIZES[arguments.small]
    say(f"RMAT graph: {num_nodes:,} nodes, {num_edges:,} edges, {WIDTH} x float32 (made once)")
    result = measure(arguments, say)
    if arguments.json:
        print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
