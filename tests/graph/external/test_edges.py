"""Edges sorted out of core are those that `Graph.from_coo` sorts in memory, byte for byte."""

from __future__ import annotations

import errno
import os
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import GraphFormatError
from penstock.graph.external import ExternalEdges, SortedEdges
from penstock.graph.external.buckets import Bucket
from penstock.graph.format import Meter, read, write_sources
from penstock.graph.schema import EdgeTypeInfo, NodeTypeInfo, Schema
from tests.graph.external.edges import (
    MIB,
    NAME,
    SHAPES,
    Edges,
    added,
    bytes_of,
    edges_of,
    from_coo,
    rows_of,
    save,
    saved_rows,
)
from tests.graph.shapes import edge_indices

pytestmark = pytest.mark.usefixtures("no_leaks")

ROOT = Path(__file__).parents[3]


def external(folder: Path, edges: Edges, memory: int = MIB, **choices: str) -> ExternalEdges:
    return ExternalEdges(
        folder,
        edges.num_sources,
        edges.num_destinations,
        memory,
        **choices,  # type: ignore[arg-type]
    )


def spilled(folder: Path) -> list[Path]:
    """The files of buckets."""
    return [path for path in folder.rglob("*.tmp") if path.stem not in ("indptr", "loops", "kept")]


# --- the bytes of from_coo ------------------------------------------------------------------------


@given(st.data())
def test_any_edges_give_the_bytes_of_from_coo(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    sizes = data.draw(st.integers(0, 12)), data.draw(st.integers(0, 12))
    sources, destinations = data.draw(edge_indices(*sizes))
    edges = Edges(sources, destinations, *sizes)
    with external(tmp_path_factory.getbasetemp(), edges) as sorting:
        found = rows_of(added(sorting, edges, data.draw(st.integers(1, 40))))
    assert found == from_coo(edges)


@pytest.mark.parametrize("shape", SHAPES)
def test_edges_that_do_not_fit_in_memory_give_the_bytes_of_from_coo(
    shape: str, tmp_path: Path
) -> None:
    edges = edges_of(shape)
    with external(tmp_path, edges) as sorting:
        found = added(sorting, edges)
        assert spilled(tmp_path)
        assert rows_of(found) == from_coo(edges)
        assert not spilled(tmp_path)  # removed as they are used up
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("memory", [MIB, 4 * MIB, 64 * MIB])
def test_the_amount_of_memory_changes_no_byte(memory: int, tmp_path: Path) -> None:
    edges = edges_of("giant", seed=1)
    with external(tmp_path, edges, memory) as sorting:
        found = added(sorting, edges)
        assert bool(spilled(tmp_path)) == (memory < 64 * MIB)
        assert rows_of(found) == from_coo(edges)


def test_pieces_of_a_file_are_put_together_of_several_buckets(tmp_path: Path) -> None:
    """Three pieces of 16 MB, none of which ends where a bucket does; and exactly one piece."""
    for count in (5_000_000, 2**21):
        edges = edges_of("even", count, 999)
        with external(tmp_path, edges, 32 * MIB) as sorting:
            assert rows_of(added(sorting, edges)) == from_coo(edges)


@pytest.mark.parametrize(
    ("shape", "paired"),
    [*((shape, False) for shape in (*SHAPES, "nearly empty")), ("sorted", True)],
)
def test_rows_come_in_order_with_their_degrees(shape: str, paired: bool, tmp_path: Path) -> None:
    """A row that is too long comes in pieces; of many rows without edges some come at a time."""
    edges = edges_of("even", 3000, 700_000) if shape == "nearly empty" else edges_of(shape)
    with external(tmp_path, edges) as sorting:
        for sources, destinations in edges.chunks(40_000):
            sorting.add(sources, destinations)
        found = sorting.finish(paired=paired)
        rows = [(first, degrees, entries.copy()) for first, degrees, entries in found.rows()]
        indptr = np.frombuffer(bytes_of(found.indptr), np.int64)
    degrees = np.zeros(edges.num_destinations, np.int64)
    for first, some, entries in rows:
        degrees[first : first + len(some)] += some
        assert len(entries) == some.sum()
    assert [first for first, _, _ in rows] == sorted(first for first, _, _ in rows)
    np.testing.assert_array_equal(degrees, np.diff(indptr))
    whole = np.concatenate([entries for _, _, entries in rows])
    order = np.argsort(edges.destinations, kind="stable")
    neighbours = whole[:, 0] if whole.ndim == 2 else whole
    np.testing.assert_array_equal(neighbours, edges.sources[order])
    assert whole.ndim == 2 or not paired
    if whole.ndim == 2:
        np.testing.assert_array_equal(whole[:, 1], order)
    assert max(len(some) for _, some, _ in rows) < 400_000


@pytest.mark.parametrize("shape", ["power law", "giant", "sorted"])
def test_offsets_may_be_written_before_the_rows(shape: str, tmp_path: Path) -> None:
    edges = edges_of(shape)
    with external(tmp_path, edges) as sorting:
        found = added(sorting, edges)
        indptr = bytes_of(found.indptr)
        assert (indptr, bytes_of(found.adjacency)) == from_coo(edges)[2:]


def test_rows_and_offsets_may_be_written_by_two_threads(tmp_path: Path) -> None:
    edges = edges_of("power law")
    path = tmp_path / "x.graph"
    nodes = NodeTypeInfo("user", 20_000), NodeTypeInfo("item", 20_000)
    with external(tmp_path, edges) as sorting, ThreadPoolExecutor(2) as pool:
        found = added(sorting, edges)
        schema = Schema(True, nodes, (EdgeTypeInfo(NAME, found.num_edges),))
        write_sources(path, schema, found.arrays(NAME), Meter(0, None), pool)
    assert saved_rows(path) == from_coo(edges)


def test_rows_can_be_written_once(tmp_path: Path) -> None:
    edges = edges_of("even", 100)
    with external(tmp_path, edges) as sorting:
        found = added(sorting, edges)
        bytes_of(found.adjacency)
        with pytest.raises(ValueError, match="can be written once"):
            bytes_of(found.adjacency)


TIGHT = """
import sys, threading
from pathlib import Path
from tests.graph.external.edges import MIB, edges_of, save

def private():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) * 1024

def watch():
    global most
    while not over.wait(0.005):
        most = max(most, private())

edges = edges_of("hubs", 20_000_000, 3_000_000, seed=3)
before = most = private()
over = threading.Event()
thread = threading.Thread(target=watch, daemon=True)
thread.start()
save(Path(sys.argv[1]), edges, 96 * MIB)
over.set()
thread.join()
print((most - before) // MIB)
"""


def test_twenty_million_edges_are_sorted_in_96_mib(tmp_path: Path) -> None:
    """CONTRACT 77: a graph of 240 MB comes of 96 MiB of memory, and a piece of a file."""
    path = tmp_path / "x.graph"
    command = [sys.executable, "-c", TIGHT, str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 96 + 40  # each thread's allocator keeps a little
    assert saved_rows(path) == from_coo(edges_of("hubs", 20_000_000, 3_000_000, seed=3))


# --- edges that are dropped or refused ------------------------------------------------------------


def left(edges: Edges, self_loops: str, duplicates: str) -> np.ndarray:
    """Which edges stay, by NumPy."""
    keep = np.ones(len(edges.sources), bool)
    if self_loops == "drop":
        keep &= edges.sources != edges.destinations
    if duplicates == "drop":
        positions = np.flatnonzero(keep)
        pairs = edges.sources[keep] * edges.num_destinations + edges.destinations[keep]
        keep[:] = False
        keep[positions[np.unique(pairs, return_index=True)[1]]] = True
    return keep


@given(st.data(), st.sampled_from(["keep", "drop"]), st.sampled_from(["keep", "drop"]))
def test_any_edges_that_stay_give_the_bytes_of_from_coo(
    tmp_path_factory: pytest.TempPathFactory,
    data: st.DataObject,
    self_loops: str,
    duplicates: str,
) -> None:
    size = data.draw(st.integers(1, 5))
    sources, destinations = data.draw(edge_indices(size, size))
    edges = Edges(sources, destinations, size, size)
    keep = left(edges, self_loops, duplicates)
    with external(
        tmp_path_factory.getbasetemp(), edges, self_loops=self_loops, duplicates=duplicates
    ) as sorting:
        found = added(sorting, edges, data.draw(st.integers(1, 40)))
        assert_kept(found, keep)
        assert rows_of(found) == from_coo(edges.some(keep))


@pytest.mark.parametrize("choices", [("drop", "keep"), ("keep", "drop"), ("drop", "drop")])
@pytest.mark.parametrize("shape", ["even", "giant", "one node", "two giants", "sorted giant"])
def test_edges_are_dropped_out_of_core(
    shape: str, choices: tuple[str, str], tmp_path: Path
) -> None:
    edges = edges_of(shape, 150_000, 500)
    keep = left(edges, *choices)
    with external(tmp_path, edges, self_loops=choices[0], duplicates=choices[1]) as sorting:
        found = added(sorting, edges)
        assert_kept(found, keep)
        assert rows_of(found) == from_coo(edges.some(keep))


def test_one_edge_that_comes_very_often_stays_once(tmp_path: Path) -> None:
    count = 200_000
    edges = Edges(np.full(count, 3), np.full(count, 1), 10, 2)
    with external(tmp_path, edges, duplicates="drop") as sorting:
        found = added(sorting, edges)
        assert_kept(found, np.arange(count) == 0)
        assert rows_of(found) == from_coo(Edges(np.array([3]), np.array([1]), 10, 2))


def assert_kept(found: SortedEdges, keep: np.ndarray) -> None:
    """Columns of edges follow, chunk by chunk."""
    assert found.num_edges == np.count_nonzero(keep)
    whole = found.kept(0, len(keep))
    assert (whole is None) == bool(keep.all())
    if whole is not None:
        some = [found.kept(first, 1000) for first in range(0, len(keep), 1000)]
        for mask in (whole, np.concatenate([each for each in some if each is not None])):
            np.testing.assert_array_equal(mask, keep)


def test_a_refused_self_loop_is_named(tmp_path: Path) -> None:
    edges = Edges(np.array([0, 1, 2, 3, 3]), np.array([1, 0, 0, 3, 3]), 4, 4)
    with external(tmp_path, edges, self_loops="refuse") as sorting:
        with pytest.raises(ValueError, match="edge 3 leads from node 3 to itself"):
            added(sorting, edges, chunk=2)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("shape", ["even", "giant", "one node"])
def test_a_refused_duplicate_is_named_with_its_position_and_ends(
    shape: str, tmp_path: Path
) -> None:
    edges = edges_of(shape, 150_000, 500)
    second = np.flatnonzero(~left(edges, "keep", "drop"))
    ends = f"from {edges.sources[second[0]]} to {edges.destinations[second[0]]},"
    with external(tmp_path, edges, duplicates="refuse") as sorting:
        with pytest.raises(ValueError, match=f"edge {second[0]} leads {ends}") as told:
            added(sorting, edges)
    assert f"{len(second)} edges" in str(told.value)
    assert not any(tmp_path.iterdir())


def test_edges_without_duplicates_are_not_refused(tmp_path: Path) -> None:
    sources, destinations = np.divmod(np.random.default_rng(0).permutation(90_000), 300)
    edges = Edges(sources, destinations, 300, 300)
    with external(tmp_path, edges, duplicates="refuse") as sorting:
        assert rows_of(added(sorting, edges)) == from_coo(edges)


# --- what is wrong --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sources", "destinations", "words"),
    [
        ([0, 1, 4], [0, 0, 0], "edge 12 has the source 4; expected 0 <= id < 4"),
        ([0, 1, 3], [0, -1, 0], "edge 11 has the destination -1; expected 0 <= id < 3"),
        ([0, 1], [0], "2 sources are given, and 1 destinations"),
        ([0.5], [0], "sources must be integers, not float64"),
        ([[0]], [0], "sources must have one dimension"),
    ],
)
def test_what_no_edge_can_be_is_refused_with_its_position(
    sources: list[int], destinations: list[int], words: str, tmp_path: Path
) -> None:
    with ExternalEdges(tmp_path, 4, 3, MIB) as sorting:
        sorting.add(np.zeros(10, np.int32), np.zeros(10, np.int32))
        with pytest.raises(ValueError, match=words):
            sorting.add(np.array(sources), np.array(destinations))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((-1, 3, MIB), "num_sources is -1"),
        ((3, 3, 1000), "memory is 1000"),
        ((3, 2.5, MIB), "num_destinations is 2.5"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(
    arguments: tuple[int, int, int], words: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=words):
        ExternalEdges(tmp_path, *arguments)
    with pytest.raises(ValueError, match="duplicates is 'no'; expected one of 'keep', 'drop'"):
        ExternalEdges(tmp_path, 3, 3, MIB, duplicates="no")  # type: ignore[arg-type]
    assert not any(tmp_path.iterdir())


def test_a_temporary_file_that_was_cut_short_is_named(tmp_path: Path) -> None:
    edges = edges_of("even")
    with external(tmp_path, edges) as sorting:
        found = added(sorting, edges)
        victim = spilled(tmp_path)[3]
        with open(victim, "r+b") as file:
            file.truncate(100)
        with pytest.raises(OSError, match="cut short") as told:
            bytes_of(found.adjacency)
        assert told.value.filename == str(victim)


def test_a_temporary_file_that_somebody_wrote_to_is_found_out(tmp_path: Path) -> None:
    edges = edges_of("even")
    with external(tmp_path, edges) as sorting:
        found = added(sorting, edges)
        for victim in spilled(tmp_path):
            victim.write_bytes(b"\xfe" * victim.stat().st_size)
        with pytest.raises(GraphFormatError, match="something else has written"):
            bytes_of(found.adjacency)


FULL = """
import resource, sys
from pathlib import Path
from tests.graph.external.edges import edges_of, save

edges = edges_of(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), resource.RLIM_INFINITY))
try:
    save(Path(sys.argv[1]), edges)
except OSError as error:
    print(error)
"""


@pytest.mark.parametrize(("limit", "named"), [(200, ".tmp'"), (500_000, "-adjacency.bin'")])
def test_a_full_disk_is_told_with_the_file_and_leaves_nothing(
    limit: int, named: str, tmp_path: Path
) -> None:
    """CONTRACT 77: a limit on the size of files stands for a full disk."""
    command = [sys.executable, "-c", FULL, str(tmp_path / "x.graph"), "even", str(limit)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert "File too large" in done.stdout, done.stderr
    assert named in done.stdout
    assert not any(tmp_path.iterdir())


def test_an_error_while_rows_are_read_leaves_no_thread_and_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    edges = edges_of("even")
    with external(tmp_path, edges) as sorting:
        found = added(sorting, edges)
        monkeypatch.setattr(Bucket, "load", fail)
        with pytest.raises(MemoryError):
            bytes_of(found.adjacency)
    assert not any(tmp_path.iterdir())


def fail(*_: object) -> None:
    raise MemoryError


def test_nothing_is_added_after_a_chunk_could_not_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    edges = edges_of("even")
    with external(tmp_path, edges) as sorting:
        with monkeypatch.context() as patch:
            patch.setattr("penstock.graph.external.buckets.append", full)
            with pytest.raises(OSError, match="No space left"):
                added(sorting, edges)
        for again in (lambda: sorting.add(*next(edges.chunks(10))), sorting.finish):
            with pytest.raises(OSError, match="No space left"):
                again()
    assert not any(tmp_path.iterdir())


def full(path: Path, _: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


def test_nothing_is_added_to_finished_edges(tmp_path: Path) -> None:
    edges = edges_of("even", 10)
    with external(tmp_path, edges) as sorting:
        found = added(sorting, edges)
        for again in (lambda: sorting.add(*next(edges.chunks(10))), sorting.finish):
            with pytest.raises(ValueError, match="finished already"):
                again()
        assert rows_of(found) == from_coo(edges)


@given(st.data())
def test_edges_of_two_integer_types_are_taken(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    kinds = st.sampled_from(["int32", "int64", "uint8", "int16", "uint32"])
    sources, destinations = (np.arange(9)[::-1].astype(data.draw(kinds)) for _ in range(2))
    with ExternalEdges(tmp_path_factory.getbasetemp(), 9, 9, MIB) as sorting:
        sorting.add(sources, destinations)
        expected = Edges(sources.astype("i8"), destinations.astype("i8"), 9, 9)
        assert rows_of(sorting.finish()) == from_coo(expected)


# --- builds that are killed -----------------------------------------------------------------------

BUILDER = """
import sys
from pathlib import Path
from tests.graph.external.edges import edges_of, save
from tests.graph.faults import die_at

edges = edges_of("power law", seed=int(sys.argv[2]))
die_at(int(sys.argv[3]))
save(Path(sys.argv[1]), edges)
"""


def killed_build(path: Path, seed: int, position: int) -> int:
    command = [sys.executable, "-c", BUILDER, str(path), str(seed), str(position)]
    return subprocess.run(command, cwd=ROOT).returncode


@pytest.mark.parametrize("old", [False, True])
def test_a_build_killed_at_any_call_is_started_again_and_right(old: bool, tmp_path: Path) -> None:
    """CONTRACT 77: nothing half-written is opened, and what a killed build left is removed."""
    path, draw, left_over = tmp_path / "x.graph", random.Random(old), 0
    before, after = edges_of("power law", seed=1), edges_of("power law", seed=2)
    if old:
        save(path, before)
    for position in (1, 2, *draw.sample(range(3, 250), 4)):
        assert killed_build(path, 2, position) == -9
        left_over += any(tmp_path.glob("penstock-scratch-*"))
        if old:
            assert saved_rows(path) == from_coo(before)
        else:
            with pytest.raises((FileNotFoundError, GraphFormatError)):
                read(path)
    assert left_over
    save(path, after)
    assert saved_rows(path) == from_coo(after)
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.graph"]
