"""Measure how fast a graph is built from pairs of ids that do not fit in memory.

The pairs are int64 columns of Parquet files, made for the run; one end of an edge is drawn evenly,
the other so that nodes of low ids have more edges. With `--text` they are text of 16 characters,
and a table of nodes has it in another order. Each of these is done by a process of its own, which
begins with files that are not cached:

  read    reading both columns with pyarrow, and nothing else
  sort    DuckDB's external sort of the pairs, written to a file, under the same memory limit
  join    DuckDB's joins of both columns with the table of nodes, to numbers, written to a file
  build   from the columns of numbers to a saved graph, without a look at the nodes
  tables  `penstock.build`, from the tables of nodes and of edges to a saved graph

With `--parts N` a graph is built in parts, by hashes, in both ways:

  cut     `penstock.build` of the whole graph, then `Graph.partition`; the whole is removed then
  parts   `penstock.build(parts=N)`, straight from the tables

Ratios are of seconds of `build`, with `--text` of `tables`, with `--parts` of `parts`, to those of
the others; `--rounds` times in turn. Private memory is the most that was seen of a process
(RssAnon), a hundred times a second; disk the most that its temporary files and its output took
together, ten times a second. For `parts`, `disk_ratio` is that beside `cut`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute
import pyarrow.dataset
import pyarrow.parquet

import penstock
from penstock.graph.external import ExternalEdges
from penstock.graph.format import Meter, write_sources
from penstock.graph.schema import EDGE, NODE, EdgeTypeInfo, NodeTypeInfo, Schema
from penstock.kernels.random import permutation

GIB = 2**30
# Pairs at a time, and in each file.
CHUNK = 1 << 20
PER_FILE = 50_000_000
# What files of pairs, spilled ones and sorted ones take together, at most.
NBYTES_PER_EDGE = 45
PAUSE_S = 0.01
# Looks at the memory for one look at the disk.
LOOKS = 10

Ids = npt.NDArray[np.int64]


class Size(NamedTuple):
    """How large the graph is, and how much memory may be used."""

    edges: int
    nodes: int
    memory: int
    parts: int = 0


SIZES = {
    "default": Size(100_000_000, 10_000_000, GIB),
    "small": Size(2_000_000, 200_000, GIB // 16),
    "billion": Size(1_000_000_000, 100_000_000, 5 * GIB),
}


# --- the pairs -----------------------------------------------------------------------------------


def pairs(first: int, count: int, nodes: int) -> tuple[Ids, Ids]:
    """Return sources and destinations of the edges from `first` on: the same ones every time."""
    words = _mixed(np.arange(2 * first, 2 * (first + count), dtype=np.uint64)).reshape(-1, 2)
    shares = (words >> np.uint64(11)).astype(np.float64) * 2.0**-53
    sources = (shares[:, 0] * nodes).astype(np.int64)
    return sources, (shares[:, 1] ** 1.5 * nodes).astype(np.int64)


def _mixed(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    words = (words + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    return words ^ (words >> np.uint64(32))


def write_pairs(folder: Path, edges: int, nodes: int, *, text: bool = False) -> None:
    """Write Parquet files of all pairs, and beside them one of the nodes."""
    folder.mkdir()
    kind = pa.string() if text else pa.int64()
    write_nodes(nodes_of(folder), nodes, text=text)
    schema = pa.schema([("source", kind), ("target", kind)])
    for number, begin in enumerate(range(0, edges, PER_FILE)):
        end = min(begin + PER_FILE, edges)
        with pa.parquet.ParquetWriter(folder / f"pairs-{number:04}.parquet", schema) as writer:
            for first in range(begin, end, CHUNK):
                sources, targets = pairs(first, min(CHUNK, end - first), nodes)
                columns = [_named(ids, text=text) for ids in (sources, targets)]
                writer.write_table(pa.table(columns, schema))


def nodes_of(folder: Path) -> Path:
    """Return the file of nodes beside the folder of pairs."""
    return folder.with_name("nodes.parquet")


def write_nodes(path: Path, nodes: int, *, text: bool) -> None:
    """Write the ids of all nodes: numbers in order, or text in another order."""
    kind = pa.string() if text else pa.int64()
    with pa.parquet.ParquetWriter(path, pa.schema([("id", kind)])) as writer:
        for begin in range(0, nodes, CHUNK):
            end = min(begin + CHUNK, nodes)
            numbers = permutation(0, 0, nodes, begin, end) if text else np.arange(begin, end)
            writer.write_table(pa.table({"id": _named(numbers, text=text)}))


def _named(numbers: Ids, *, text: bool) -> pa.Array:
    if not text:
        return pa.array(numbers)
    digits = pa.compute.utf8_lpad(pa.array(numbers).cast(pa.string()), 11, "0")
    return pa.compute.binary_join_element_wise("node", digits, "-")


# --- what is measured: each runs in a process of its own -----------------------------------------


def batches(folder: Path) -> Iterator[pa.RecordBatch]:
    """Yield the pairs in the order of the files."""
    files = sorted(map(str, folder.glob("*.parquet")))
    scanned = pa.dataset.dataset(files, format="parquet").to_batches(
        columns=["source", "target"], batch_size=CHUNK, batch_readahead=2, fragment_readahead=1
    )
    yield from scanned


def read(folder: Path, size: Size, out: Path) -> None:
    """Read all pairs."""
    total = sum(len(batch) for batch in batches(folder))
    assert total == size.edges


def sort(folder: Path, size: Size, out: Path) -> None:
    """Sort the pairs by where edges lead, with DuckDB."""
    import duckdb

    with duckdb.connect() as connection:
        connection.execute(f"SET memory_limit = '{size.memory // 2**20}MiB'")
        connection.execute(f"SET temp_directory = '{out.parent / 'duckdb'}'")
        connection.execute(
            f"COPY (SELECT source, target FROM read_parquet('{folder}/*.parquet') ORDER BY target) "
            f"TO '{out}' (FORMAT parquet, COMPRESSION uncompressed)"
        )


def build(folder: Path, size: Size, out: Path) -> None:
    """Save the graph of the pairs."""
    with ExternalEdges(out.parent, size.nodes, size.nodes, size.memory) as edges:
        for batch in batches(folder):
            edges.add(*(column.to_numpy() for column in batch.columns))
        found = edges.finish()
        schema = Schema(
            is_hetero=False,
            nodes=(NodeTypeInfo(NODE, size.nodes, {}),),
            edges=(EdgeTypeInfo(EDGE, found.num_edges, {}),),
        )
        write_sources(out, schema, found.arrays(EDGE), Meter(0, None))


def join(folder: Path, size: Size, out: Path) -> None:
    """Turn the ids of both columns into numbers of nodes, with DuckDB."""
    import duckdb

    with duckdb.connect() as connection:
        connection.execute(f"SET memory_limit = '{size.memory // 2**20}MiB'")
        connection.execute(f"SET temp_directory = '{out.parent / 'duckdb'}'")
        numbered = f"(SELECT id, file_row_number AS n FROM read_parquet('{nodes_of(folder)}', "
        numbered += "file_row_number = true))"
        connection.execute(
            f"COPY (SELECT s.n AS source, t.n AS target FROM read_parquet('{folder}/*.parquet') p "
            f"JOIN {numbered} s ON p.source = s.id JOIN {numbered} t ON p.target = t.id) "
            f"TO '{out}' (FORMAT parquet, COMPRESSION uncompressed)"
        )


def tables(folder: Path, size: Size, out: Path) -> None:
    """Save the graph of the tables."""
    penstock.build(out, **described(folder), memory=size.memory).close()


def described(folder: Path) -> dict[str, Any]:
    """Return the tables as `penstock.build` takes them."""
    edges = {"files": f"{folder}/*.parquet", "source": "source", "target": "target"}
    return {"nodes": {"files": str(nodes_of(folder)), "id": "id"}, "edges": edges}


def cut(folder: Path, size: Size, out: Path) -> None:
    """Save the graph of the tables, and cut it into parts."""
    whole = out.with_name("whole.graph")
    with penstock.build(whole, **described(folder), memory=size.memory) as graph:
        graph.partition(size.parts, out, method="hash")
    shutil.rmtree(whole)


def parts(folder: Path, size: Size, out: Path) -> None:
    """Save parts of the graph of the tables, which is never there as a whole."""
    words = {"n": size.parts, "method": "hash"}
    penstock.build(out, **described(folder), memory=size.memory, parts=words)


TASKS = {
    "read": read,
    "sort": sort,
    "join": join,
    "build": build,
    "tables": tables,
    "cut": cut,
    "parts": parts,
}
# Those that make sense of numbers, and of text.
OF_NUMBERS = ["read", "sort", "build", "tables"]
OF_TEXT = ["read", "join", "tables"]
OF_PARTS = ["read", "tables", "cut", "parts"]


# --- measuring -----------------------------------------------------------------------------------


def measured(task: str, folder: Path, size: Size, out: Path) -> dict[str, float]:
    """Run a task in a new process; return its seconds, its private memory and its disk."""
    for path in folder.iterdir():
        forget(path)
    command = [sys.executable, __file__, "--task", task, *map(str, size), str(folder), str(out)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    most = most_disk = looks = 0
    before = disk_of(folder.parent)
    while process.poll() is None:
        most = max(most, private_memory(process.pid))
        if looks % LOOKS == 0:
            most_disk = max(most_disk, disk_of(folder.parent) - before)
        looks += 1
        time.sleep(PAUSE_S)
    assert process.stdout is not None
    with process.stdout as answer:
        if process.returncode:
            raise SystemExit(f"{task} has failed, with status {process.returncode}")
        most_disk = max(most_disk, disk_of(folder.parent) - before)
        return {
            "seconds": float(answer.read()),
            "private_gib": most / GIB,
            "disk_gib": most_disk / GIB,
        }


def disk_of(folder: Path) -> int:
    """Return how many bytes of the disk the files in a folder take."""
    total = 0
    for path, _, files in os.walk(folder):
        for name in files:
            with suppress(FileNotFoundError):
                total += os.stat(os.path.join(path, name)).st_blocks * 512
    return total


def forget(path: Path) -> None:
    """Have the system drop what it has cached of a file."""
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def private_memory(pid: int) -> int:
    """Return how many bytes of memory a process has to itself, or 0 once it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    for line in status.splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0


def check_disk(folder: Path, edges: int) -> None:
    """End unless the disk has room."""
    free, needed = shutil.disk_usage(folder).free, edges * NBYTES_PER_EDGE
    if free < needed:
        raise SystemExit(
            f"{folder} has {free / GIB:.0f} GiB free, and {edges:,} edges need {needed / GIB:.0f}; "
            "name another --folder"
        )


def measure(
    folder: Path, size: Size, tasks: list[str], rounds: int, *, text: bool
) -> dict[str, Any]:
    """Measure the tasks in turn, and compare one of ours with the others."""
    write_pairs(folder / "pairs", size.edges, size.nodes, text=text)
    found: dict[str, list[dict[str, float]]] = {task: [] for task in tasks}
    for _ in range(rounds):
        for task in tasks:
            found[task].append(measured(task, folder / "pairs", size, folder / f"{task}.out"))
            remove(folder / f"{task}.out")
    ours = compared(size, text=text)
    return {task: figures(task, found, ours) for task in tasks}


def compared(size: Size, *, text: bool) -> str:
    """Return the task that the others are compared with."""
    return "parts" if size.parts else "tables" if text else "build"


def remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def figures(task: str, found: dict[str, list[dict[str, float]]], of: str) -> dict[str, Any]:
    runs = found[task]
    row: dict[str, Any] = {
        "seconds": statistics.median(run["seconds"] for run in runs),
        "private_gib": max(run["private_gib"] for run in runs),
        "disk_gib": max(run["disk_gib"] for run in runs),
    }
    if task == "parts" and "cut" in found:
        cut_gib = max(run["disk_gib"] for run in found["cut"])
        row["disk_ratio"] = row["disk_gib"] / cut_gib
    if task != of and of in found:
        pairs_of_runs = zip(found[of], runs, strict=True)
        ratios = sorted(ours["seconds"] / theirs["seconds"] for ours, theirs in pairs_of_runs)
        row |= {"ratio": statistics.median(ratios), "ratios": [ratios[0], ratios[-1]]}
    return row


def main() -> None:
    if sys.argv[1:2] == ["--task"]:
        _, _, task, *numbers, folder, out = sys.argv
        began = time.perf_counter()
        TASKS[task](Path(folder), Size(*map(int, numbers)), Path(out))
        print(time.perf_counter() - began)
        return
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", action="store_true", help="print JSON only")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--small", action="store_true", help="2 million edges, for a quick look")
    which.add_argument(
        "--billion", action="store_true", help="1 billion edges, 100 million nodes, 5 GiB of memory"
    )
    parser.add_argument("--edges", type=int, help="how many (default 100 million)")
    parser.add_argument("--nodes", type=int, help="how many (default 10 million)")
    parser.add_argument("--memory", type=float, help="the limit in GiB (default 1)")
    parser.add_argument("--rounds", type=int, default=1, help="how often (default 1)")
    parser.add_argument("--text", action="store_true", help="ids that are text of 16 characters")
    parser.add_argument("--parts", type=int, default=0, help="build so many parts, in both ways")
    parser.add_argument("--only", nargs="+", choices=TASKS, metavar="TASK", help="not all tasks")
    parser.add_argument("--folder", type=Path, help="where to write (default: a temporary one)")
    given = parser.parse_args()
    size = SIZES["small" if given.small else "billion" if given.billion else "default"]
    size = Size(
        given.edges or size.edges,
        given.nodes or size.nodes,
        int(given.memory * GIB) if given.memory else size.memory,
        given.parts,
    )
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        check_disk(Path(folder), size.edges)
        of_graphs = OF_TEXT if given.text else OF_NUMBERS
        tasks = given.only or (OF_PARTS if given.parts else of_graphs)
        result = measure(Path(folder), size, tasks, given.rounds, text=given.text)
    if given.json:
        print(json.dumps(result, indent=2))
        return
    print(f"{size.edges:,} edges, {size.nodes:,} nodes, {size.memory / GIB:.3g} GiB of memory")
    for task, row in result.items():
        ours = compared(size, text=given.text)
        beside = f", {ours} takes {row['ratio']:.2f} times as long" if "ratio" in row else ""
        memory = f"{row['private_gib']:.2f} GiB of private memory, {row['disk_gib']:.2f} of disk"
        if "disk_ratio" in row:
            memory += f" ({row['disk_ratio']:.2f} of cut's)"
        print(f"{task:>6}: {row['seconds']:8.2f} s, {memory}{beside}")


if __name__ == "__main__":
    main()
