"""Measure how fast a graph is cut into parts, how few edges methods cut, and what that saves.

Cutting: the graph is RMAT with float32 features and weights of edges, saved and opened, as
`penstock partition` does it. Two ratios, for each way to assign nodes and each number of parts:

  size   the bytes of all parts together, to those of the saved graph
  speed  the bytes that `partition` writes in a second, to those of `save`. Both write and sync
         their files; they take turns, so that a busy disk slows both down

Locality: a stochastic block model, that RMAT graph without attributes, and the graphs of
`../shared/data` if they are there, with 64 float32 for each node. For each method, beside "hash":

  cut      edges between two parts, of all edges
  nodes    nodes of the largest part over the mean, and edges likewise
  bytes    what a reader beside one of two servers has from the other one: bytes of a batch of nodes
           of its server's part (256 seeds, fan-outs 10, 5), over those with "hash". Rows likewise
  reads    seconds to assign nodes, over those to read every edge once (to count the cut), in turn

Seconds mean little on a shared machine; the ratios are the result. Cuts and rows are the same on
every machine, and bytes nearly so. With --small traffic is that of the block model alone.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from rmat import rmat_edges
from store import serving

from penstock import Graph, NeighborSpec
from penstock.client.backend import SharedDistSamplingBackend
from penstock.demo.sbm import BlockModel, block_model
from penstock.graph.partition.assignment import METHODS
from penstock.graph.partition.partition import PartCutter, assigned, write_parts
from penstock.store.graph import StoreGraph
from penstock.store.remote import graph_at
from penstock.store.servers import StoreServers

LARGE = (600_000, 12_000_000, 100)
SMALL = (20_000, 200_000, 16)
PARTS = (2, 7)

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
BLOCK_MODELS = {True: BlockModel(num_nodes=5_000), False: BlockModel()}
# The parts whose cuts are compared; traffic is that between two servers.
CUTS = (2, 8)
WIDTH = 64
SPEC = NeighborSpec(num_neighbors=(10, 5))
SEEDS = 256


# --- cutting -------------------------------------------------------------------------------------


def whole(folder: Path, nodes: int, edges: int, width: int) -> Graph:
    """Save the graph and return it, opened: its files are in the page cache."""
    rng = np.random.default_rng(1)
    path = folder / "whole.graph"
    with Graph.from_coo(
        rmat_edges(nodes, edges),
        nodes,
        x=rng.random((nodes, width), dtype=np.float32),
        edge_weight=rng.random(edges, dtype=np.float32),
        train=rng.permutation(nodes)[: nodes // 10],
    ) as graph:
        graph.save(path)
    return Graph.open(path)


def size_of(folder: Path) -> int:
    return sum(each.stat().st_size for each in folder.rglob("*") if each.is_file())


def seconds_of(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def measure(folder: Path, sizes: tuple[int, int, int], rounds: int) -> dict[str, Any]:
    """Measure every cut, each beside a save, in turn; the first round is not counted."""
    with whole(folder, *sizes) as graph:
        given = np.random.default_rng(2).integers(0, max(PARTS), graph.num_nodes())
        cuts: dict[str, dict[str, Any]] = {
            f"{name}-{topology}-{parts}": {
                "n": parts,
                "method": given % parts if name == "given" else name,
                "topology": topology,
            }
            for name in ("range", "hash", "given")
            for topology in ("parts", "whole")
            for parts in PARTS
            if topology == "parts" or name == "hash"
        }
        found: dict[str, dict[str, Any]] = {name: {"speed": []} for name in cuts}
        nbytes = size_of(folder / "whole.graph")
        for number in range(rounds + 1):
            for name, how in cuts.items():
                saving = seconds_of(lambda: graph.save(folder / "copy.graph"))
                cutting = seconds_of(lambda how=how: graph.partition(path=folder / "parts", **how))  # type: ignore[misc]
                found[name]["size"] = size_of(folder / "parts") / nbytes
                shutil.rmtree(folder / "parts")
                shutil.rmtree(folder / "copy.graph")
                if number:
                    found[name]["speed"].append(found[name]["size"] * saving / cutting)
                    found[name]["seconds"] = cutting
                    found[name]["seconds_of_save"] = saving
    return {name: figures(row) for name, row in found.items()}


def figures(row: dict[str, Any]) -> dict[str, float]:
    speeds = row["speed"]
    return {
        "size": row["size"],
        "speed": statistics.median(speeds),
        "speed_least": min(speeds),
        "speed_most": max(speeds),
        "seconds": row["seconds"],
        "seconds_of_save": row["seconds_of_save"],
    }


# --- locality ------------------------------------------------------------------------------------


def undirected(edges: Any, num_nodes: int) -> Graph:
    return with_features(np.concatenate([edges, edges[::-1]], axis=1), num_nodes)


def with_features(edges: Any, num_nodes: int) -> Graph:
    x = np.random.default_rng(1).random((num_nodes, WIDTH), dtype=np.float32)
    return Graph.from_coo(edges, num_nodes, x=x)


def graphs(small: bool) -> Iterator[tuple[str, Graph]]:
    """Yield graphs with their names; those of ../shared/data only where they are."""
    yield "block model", block_model(BLOCK_MODELS[small])
    nodes, edges, _ = SMALL if small else LARGE
    yield "RMAT", with_features(rmat_edges(nodes, edges), nodes)
    for name in ("cora", "citeseer"):
        if (DATA / f"{name}.npz").exists():
            with np.load(DATA / f"{name}.npz") as stored:
                yield name, with_features(stored["edge_index"], int(stored["x_shape"][0]))
    if (DATA / "facebook_edges.csv").exists():
        rows = np.loadtxt(DATA / "facebook_edges.csv", np.int64, delimiter=",", skiprows=1)
        yield "facebook", undirected(rows.T, int(rows.max()) + 1)


def share_cut(cutter: PartCutter) -> float:
    cut, total = (sum(map(sum, counts.values())) for counts in (cutter.edges_cut, cutter.num_edges))
    return cut / total


def assign(graph: Graph, parts: int, method: Any) -> tuple[PartCutter, dict[str, float]]:
    """Assign the nodes of a graph; return what cuts it, and the figures of the method."""
    began = time.perf_counter()
    cutter = assigned(graph, parts, method)
    assigning = time.perf_counter() - began
    reading = seconds_of(lambda: cutter.edges_cut)
    found = {
        "cut": share_cut(cutter),
        "nodes": max(cutter.balance.nodes.values()),
        "edges": max(cutter.balance.edges.values()),
        "reads": assigning / reading,
    }
    return cutter, found


def traffic(cutter: PartCutter, folder: Path, batches: int) -> dict[str, float]:
    """Return what a reader beside each server has from the others, for a batch."""
    paths = write_parts(cutter, folder)
    with serving(*paths) as running, StoreServers.find([at for _, at in running]) as servers:
        with graph_at(servers) as store:
            total = np.zeros(2)
            for part in range(len(paths)):
                total += read_beside(store, servers, part, batches)
    shutil.rmtree(folder)
    return dict(zip(("bytes", "rows"), (total / (batches * len(paths))).tolist(), strict=True))


def read_beside(store: StoreGraph, servers: StoreServers, part: int, batches: int) -> Any:
    """Read batches of nodes of a part; return the bytes and rows from the other parts."""
    book = store.node_book()
    own = np.random.default_rng(part).permutation(book.ids_of(part))
    seeds = np.resize(own, batches * SEEDS)
    before, rows = away(servers, part), 0
    with SharedDistSamplingBackend(store, SPEC, num_workers=0) as backend:
        backend.init_backend()
        backend.register_input("own", seeds, batch_size=SEEDS)
        backend.start_new_epoch_sampling("own", 0)
        for batch in backend.batches("own"):
            rows += int((book.partition_of(np.asarray(batch["n_id"])) != part).sum())
    return np.array([away(servers, part) - before, rows], float)


def away(servers: StoreServers, part: int) -> int:
    """Return the bytes moved between this process and servers of other parts, so far."""
    found = servers.statistics().servers
    return sum(each.bytes_in + each.bytes_out for each in found if each.part != part)


def measure_locality(folder: Path, small: bool) -> dict[str, Any]:
    """Measure every method on every graph."""
    batches = 4 if small else 32
    found: dict[str, Any] = {}
    for name, graph in graphs(small):
        found[name] = {}
        with graph:
            for parts in CUTS:
                rows = {}
                for method in METHODS:
                    cutter, rows[method] = assign(graph, parts, method)
                    if parts == 2 and (not small or name == "block model"):
                        rows[method] |= traffic(cutter, folder / "parts", batches)
                found[name][f"{parts} parts"] = {each: beside(rows, each) for each in METHODS}
    return found


def beside(rows: dict[str, dict[str, float]], method: str) -> dict[str, float]:
    """Return the figures of a method, those of traffic and of the cut over those of "hash"."""
    ratios = {
        f"{name}_over_hash": value / rows["hash"][name]
        for name, value in rows[method].items()
        if name in ("cut", "bytes", "rows")
    }
    return rows[method] | ratios


def show_locality(found: dict[str, Any]) -> None:
    for name, by_parts in found.items():
        for parts, rows in by_parts.items():
            for method, row in rows.items():
                text = f"{name}, {parts}, {method:>9}: cut {row['cut']:.3f}"
                text += f", nodes {row['nodes']:.2f}, edges {row['edges']:.2f}"
                if "bytes" in row:
                    text += (
                        f", bytes {row['bytes_over_hash']:.2f}, rows {row['rows_over_hash']:.2f}"
                    )
                    text += f" ({row['bytes'] / 1e3:.0f} kB, {row['rows']:.0f})"
                print(f"{text}, reads {row['reads']:.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", action="store_true", help="print JSON only")
    parser.add_argument("--small", action="store_true", help="a small graph, for a quick look")
    parser.add_argument("--rounds", type=int, default=5, help="measured (default 5)")
    parser.add_argument("--only", choices=("cutting", "locality"), help="half of it")
    parser.add_argument("--folder", type=Path, help="where to write (default: a temporary one)")
    arguments = parser.parse_args()
    sizes = SMALL if arguments.small else LARGE
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        if arguments.only != "locality":
            result["cutting"] = measure(Path(folder), sizes, arguments.rounds)
        if arguments.only != "cutting":
            result["locality"] = measure_locality(Path(folder), arguments.small)
    if arguments.json:
        print(json.dumps(result, indent=2))
        return
    nodes, edges, width = sizes
    print(f"RMAT, {nodes:,} nodes, {edges:,} edges, {width} float32 each; weights of edges")
    for name, row in result.get("cutting", {}).items():
        speed = f"{row['speed']:.2f} ({row['speed_least']:.2f} to {row['speed_most']:.2f})"
        print(f"{name:>15}: size {row['size']:.3f}, speed {speed}, {row['seconds']:.2f} s")
    show_locality(result.get("locality", {}))


if __name__ == "__main__":
    main()
