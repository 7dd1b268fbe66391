"""Measure a store on Ray against the same store started by hand, and builds on Ray.

The graph and the batches are those of store.py, in two parts. Ray's cluster is on this machine: a
head that has Ray's control plane, and hosts that have a server each. Servers by hand are started
with the same certificates and options.

  overhead      batches per second from the store on Ray, over those from the one by hand; read in
                turn, in one run. Ray runs meanwhile in both cases: beside the ratio there is what
                its processes took of this machine's CPU time while the store on Ray was read
  death         seconds from SIGKILL of a host, with all that Ray runs there, to the first batch for
                which its part was asked elsewhere, over a cold start of a server (from the start of
                `penstock serve` until it is ready, by hand); with when Ray declared the host dead,
                when the new parent had started a server, and when that was ready
  build         the time of a build on one host with 2 CPUs, over that on two with one CPU each: of
                tables in 8 files (ids of text, features, weights), 4 parts. Hosts are warm, each
                build is on a cluster of its own, in alternating order. Beside it the time of the
                same build in one process, without Ray, over that on two hosts

Absolute times mean little on a shared machine; the ratios are the result. Ray finds a host dead by
missed health checks: `--period`, `--missed` and `--timeout` set them.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

# Read when Ray is imported, and by all that it starts: hosts are on loopback.
os.environ |= {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute  # as pa.compute
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parent))
from kernels import SIZES, WIDTH
from pool import pairs, told
from rmat import rmat_edges
from server import saved
from store import StoreReader, cut

import penstock as ps
from penstock import cluster
from penstock.cluster.credentials import SERVER_NAME, Credentials, make_credentials
from penstock.cluster.plan import StorePlan, plan_of
from penstock.cluster.server_process import ServerProcess, listen_at
from penstock.cluster.session import session
from penstock.store.memory_file import MemoryFile
from penstock.store.names import resolve

NAME = "bench"
FILES = 8  # of each table
HOST = "127.0.0.1"
_LOOK_S = 0.05
_PATIENCE_S = 120.0


class Hosts:
    """A Ray cluster on this machine: a head without resources, and hosts for servers."""

    def __init__(self, count: int, checks: dict[str, int], cpus: int = 1) -> None:
        from ray.cluster_utils import Cluster

        self._folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")
        os.environ["RAY_TMPDIR"] = self._folder
        os.environ.pop("RAY_ADDRESS", None)
        self._options: dict[str, Any] = {
            "object_store_memory": 80 << 20,
            "include_dashboard": False,
            "include_log_monitor": False,
            "node_ip_address": HOST,
        }
        head = {**self._options, "num_cpus": 0, "_system_config": checks}
        self._cluster = Cluster(initialize_head=True, head_node_args=head)
        os.environ["RAY_ADDRESS"] = self._cluster.address
        self._cpus = cpus
        self.hosts = [self.add() for _ in range(count)]

    def add(self) -> Any:
        return self._cluster.add_node(num_cpus=self._cpus, **self._options)

    def kill(self, node: str) -> None:
        """Kill a host, with all of its processes."""
        host = next(each for each in self.hosts if each.node_id == node)
        self.hosts.remove(host)
        raylet = psutil.Process(host.all_processes["raylet"][0].process.pid)
        for each in [raylet, *raylet.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):
                each.kill()

    def processor_time(self) -> float:
        """Return the CPU seconds of Ray's processes, without the servers'."""
        total = 0.0
        for host in [self._cluster.head_node, *self.hosts]:
            for group in host.all_processes.values():
                for started in group:
                    total += _without_servers(started.process.pid)
        return total

    def close(self) -> None:
        self._cluster.shutdown()
        shutil.rmtree(self._folder, ignore_errors=True)


def _without_servers(pid: int) -> float:
    total = 0.0
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        for each in [process, *process.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):
                if "-m penstock" not in " ".join(each.cmdline()):
                    times = each.cpu_times()
                    total += times.user + times.system
    return total


@contextmanager
def hosts_of(count: int, checks: dict[str, int], cpus: int = 1) -> Iterator[Hosts]:
    hosts = Hosts(count, checks, cpus)
    try:
        with session():
            yield hosts
    finally:
        hosts.close()


def started(plan: StorePlan, part: int, credentials: Credentials) -> tuple[ServerProcess, str]:
    """Start a server by hand, as its parent on Ray would."""
    listening = listen_at(HOST, 0)
    address = f"tls://{HOST}:{listening.getsockname()[1]}"
    return ServerProcess(plan, part, credentials, listening, [address]), address


@contextmanager
def by_hand(plan: StorePlan, batches: int) -> Iterator[StoreReader]:
    """Read a store that was started by hand, with credentials as on Ray."""
    credentials = make_credentials()
    ca = MemoryFile(credentials.ca)
    with ExitStack() as ends:
        ends.callback(ca.close)
        addresses = []
        for part in range(plan.num_parts):
            process, address = started(plan, part, credentials)
            ends.callback(process.close)
            process.wait_until_ready()
            addresses.append(address)
        access = {"ca": ca.path, "server_name": SERVER_NAME, "token": credentials.token}
        reader = StoreReader(addresses, batches, **access)
        ends.callback(reader.close)
        yield reader


@contextmanager
def on_ray(batches: int) -> Iterator[StoreReader]:
    """Read the store by its name."""
    with resolve(f"ray:{NAME}", _PATIENCE_S) as name:
        reader = StoreReader(
            name.addresses,
            batches,
            address_file=name.address_file,
            patience=_PATIENCE_S,
            **name.access,
        )
        try:
            yield reader
        finally:
            reader.close()


def overhead(parts: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    plan = plan_of(NAME, parts, 1, 1, None, ())
    batches = arguments.batches
    with hosts_of(plan.num_parts, checks_of(arguments)) as hosts:
        cluster.up(NAME, parts)
        with on_ray(batches) as ours, by_hand(plan, batches) as theirs:
            found = pairs(ours.rate, theirs.rate, batches, arguments.repeats)
            used, began = hosts.processor_time(), time.perf_counter()
            ours.rate(batches)
            seconds = time.perf_counter() - began
            used = hosts.processor_time() - used
        cluster.down(NAME)
    cores = len(os.sched_getaffinity(0))
    return {**found, "share_of_ray": used / seconds / cores}


# --- a host dies -----------------------------------------------------------------------------


class Clock:
    """When something becomes true after a death, looked at by a thread of its own."""

    def __init__(self, node: str, part: int) -> None:
        self.at = time.perf_counter()
        self.seen: dict[str, float] = {}
        self._node, self._part = node, part
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def _look(self) -> None:
        with session() as ray:
            while not self._over.wait(_LOOK_S):
                nodes = ray.nodes()
                alive = any(each["Alive"] and each["NodeID"] == self._node for each in nodes)
                if alive:
                    continue
                self._note("declared dead")
                now = cluster.status(NAME).servers[self._part]
                if now.node not in (None, self._node):
                    self._note("started")
                    if now.state == "serving":
                        self._note("ready")
                        return

    def _note(self, what: str) -> None:
        self.seen.setdefault(what, time.perf_counter() - self.at)

    def stop(self) -> dict[str, float]:
        self._over.set()
        self._thread.join()
        return self.seen


def death(parts: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    plan = plan_of(NAME, parts, 1, 1, None, ())
    deaths = [one_death(parts, plan, arguments) for _ in range(arguments.deaths)]
    cold = statistics.median(cold_start(plan) for _ in range(max(3, arguments.deaths)))
    found = {
        f"{name.replace(' ', '_')}_after": statistics.median(each[name] for each in deaths)
        for name in deaths[0]
    }
    batch = found["first_batch_after"]
    return {"cold_starts": batch / cold, "cold_start": cold, **found}


def one_death(parts: Path, plan: StorePlan, arguments: argparse.Namespace) -> dict[str, float]:
    """Kill a host in the middle of an epoch; there is a spare one."""
    batches = arguments.batches
    with hosts_of(plan.num_parts + 1, checks_of(arguments)) as hosts:
        lost = cluster.up(NAME, parts).servers[0]
        assert lost.node is not None
        with on_ray(batches) as reader:
            reader.rate(batches)
            reader.channel.start(1000)
            came = []
            for number, _ in enumerate(reader.channel):
                came.append(time.perf_counter())
                if number == batches // 3:
                    hosts.kill(lost.node)
                    clock = Clock(lost.node, lost.part)
            seen = clock.stop()
        cluster.down(NAME)
    after = [clock.at, *(each for each in came if each > clock.at)]
    gaps = [later - earlier for earlier, later in pairwise(after)]
    first = after[gaps.index(max(gaps)) + 1]
    return {**seen, "first batch": first - clock.at}


def cold_start(plan: StorePlan) -> float:
    """Return the seconds until a server that is started by hand is ready."""
    began = time.perf_counter()
    process, _ = started(plan, 0, make_credentials())
    process.wait_until_ready()
    seconds = time.perf_counter() - began
    process.close()
    return seconds


# --- a build ---------------------------------------------------------------------------------


def build(parts: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    tables = shards(arguments.folder, *SIZES[arguments.small])
    measured = []
    for number in range(arguments.builds):
        if number % 2:
            one = built(1, 2, tables, arguments)
            two = built(2, 1, tables, arguments)
        else:
            two = built(2, 1, tables, arguments)
            one = built(1, 2, tables, arguments)
        measured.append((one / two, one, two))
    alone = timed(arguments.folder / "built", tables, ray=False)
    ratio, one, two = (statistics.median(column) for column in zip(*measured, strict=True))
    ratios = [each for each, _, _ in measured]
    found = {"two_over_one": ratio, "least": min(ratios), "most": max(ratios)}
    return {**found, "seconds_on_two": two, "seconds_on_one": one, "one_process": alone / two}


def built(hosts: int, cpus: int, tables: dict[str, Any], arguments: argparse.Namespace) -> float:
    """Return the seconds of a build on so many hosts, whose processes are there already."""
    with hosts_of(hosts, checks_of(arguments), cpus):
        timed(arguments.folder / "built", shards(arguments.folder, 1000, 20_000), ray=True)
        return timed(arguments.folder / "built", tables, ray=True)


def timed(out: Path, tables: dict[str, Any], *, ray: bool) -> float:
    shutil.rmtree(out, ignore_errors=True)
    began = time.perf_counter()
    ps.build(out, spec=tables, parts={"n": 4, "method": "hash"}, memory="512MB", ray=ray)
    seconds = time.perf_counter() - began
    shutil.rmtree(out)
    return seconds


def shards(folder: Path, num_nodes: int, num_edges: int) -> dict[str, Any]:
    """Return a description of the graph's tables, which are made once."""
    place = folder / f"shards-{num_nodes}-{num_edges}"
    if not (place / "edges-7.parquet").exists():
        place.mkdir(parents=True, exist_ok=True)
        rng = np.random.default_rng(0)
        edges = rmat_edges(num_nodes, num_edges)
        for number, nodes in enumerate(np.array_split(np.arange(num_nodes), FILES)):
            rows = pa.array(rng.random(len(nodes) * WIDTH, dtype=np.float32))
            vectors = pa.FixedSizeListArray.from_arrays(rows, WIDTH)
            table = pa.table({"id": names(nodes), "x": vectors})
            pq.write_table(table, place / f"nodes-{number}.parquet")
        for number, ends in enumerate(np.array_split(edges, FILES, axis=1)):
            weights = pa.array(rng.random(ends.shape[1], dtype=np.float32))
            table = pa.table({"s": names(ends[0]), "t": names(ends[1]), "w": weights})
            pq.write_table(table, place / f"edges-{number}.parquet")
    files = {what: str((place / f"{what}-*.parquet").absolute()) for what in ("nodes", "edges")}
    return {
        "nodes": {"files": files["nodes"], "id": "id", "features": {"x": "x"}},
        "edges": {"files": files["edges"], "source": "s", "target": "t", "weight": "w"},
    }


def names(ids: Any) -> pa.Array:
    return pa.compute.binary_join_element_wise("node", pa.array(ids).cast(pa.string()), "-")


# --- all of it -------------------------------------------------------------------------------


def checks_of(arguments: argparse.Namespace) -> dict[str, int]:
    return {
        "health_check_initial_delay_ms": 0,
        "health_check_period_ms": arguments.period,
        "health_check_timeout_ms": arguments.timeout,
        "health_check_failure_threshold": arguments.missed,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--small", action="store_true", help="a small graph, for a quick look")
    parser.add_argument("--json", action="store_true", help="print JSON only")
    parser.add_argument("--batches", type=int, default=96, help="batches per measurement")
    parser.add_argument("--repeats", type=int, default=7, help="pairs measured")
    parser.add_argument("--deaths", type=int, default=3, help="hosts killed")
    parser.add_argument("--builds", type=int, default=3, help="pairs of builds")
    parser.add_argument("--period", type=int, default=100, help="ms between health checks")
    parser.add_argument("--timeout", type=int, default=2000, help="ms that an answer may take")
    parser.add_argument("--missed", type=int, default=4, help="failed checks that mean death")
    parser.add_argument("--only", default="", help="some figures, with commas between them")
    parser.add_argument("--folder", type=Path, default=Path("build/bench"), help="keeps the graph")
    arguments = parser.parse_args()

    def say(text: str) -> None:
        if not arguments.json:
            print(text, flush=True)

    num_nodes, num_edges = SIZES[arguments.small]
    say(f"RMAT graph: {num_nodes:,} nodes, {num_edges:,} edges, {WIDTH} x float32 (made once)")
    parts = cut(saved(arguments.folder, num_nodes, num_edges), arguments.folder, 2, "parts")
    figures = {"overhead": overhead, "death": death, "build": build}
    wanted = [name.strip() for name in arguments.only.split(",") if name.strip()] or list(figures)
    result = {}
    for name in wanted:
        result[name] = figures[name](parts[0].parent, arguments)
        say(f"{name:12}  {told(result[name])}")
        if "share_of_ray" in result[name]:
            say(f"{'':12}  Ray took {result[name]['share_of_ray']:.2%} of the CPU time")
    if arguments.json:
        print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
