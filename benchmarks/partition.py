"""Measure how fast a graph is cut into parts, and how large the parts are, beside saving it.

The graph is RMAT with float32 features and weights of edges, saved and opened, as `penstock
partition` does it. Two ratios, for each way to assign nodes and each number of parts:

  size   the bytes of all parts together, to those of the saved graph
  speed  the bytes that `partition` writes in a second, to those of `save`. Both write and sync
         their files; they take turns, so that a busy disk slows both down

Seconds mean little on a shared machine; the ratios, of each pair of neighbours, are the result.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rmat import rmat_edges

from penstock import Graph

LARGE = (600_000, 12_000_000, 100)
SMALL = (20_000, 200_000, 16)
PARTS = (2, 7)


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", action="store_true", help="print JSON only")
    parser.add_argument("--small", action="store_true", help="a small graph, for a quick look")
    parser.add_argument("--rounds", type=int, default=5, help="measured (default 5)")
    parser.add_argument("--folder", type=Path, help="where to write (default: a temporary one)")
    arguments = parser.parse_args()
    sizes = SMALL if arguments.small else LARGE
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        result = measure(Path(folder), sizes, arguments.rounds)
    if arguments.json:
        print(json.dumps(result, indent=2))
        return
    nodes, edges, width = sizes
    print(f"RMAT, {nodes:,} nodes, {edges:,} edges, {width} float32 each; weights of edges")
    for name, row in result.items():
        speed = f"{row['speed']:.2f} ({row['speed_least']:.2f} to {row['speed_most']:.2f})"
        print(f"{name:>15}: size {row['size']:.3f}, speed {speed}, {row['seconds']:.2f} s")


if __name__ == "__main__":
    main()
