"""The benchmark of building out of core: what it reports, and that what it builds is right."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from benchmarks import build
from penstock import Graph
from tests.benchmarks.running import measured

# The private memory that a billion edges may take, and what their files take of the disk.
MOST_GIB = 6
NBYTES_PER_EDGE = 40


def test_the_benchmark_of_building_compares_with_reading_and_sorting(tmp_path: Path) -> None:
    report = measured("build.py", tmp_path, "--edges", "300000")
    assert list(report) == ["read", "sort", "build", "tables"]
    for task, row in report.items():
        assert row["seconds"] > 0
        assert row["private_gib"] > 0.01
        assert ("ratio" in row) == (task != "build")
    assert not any(tmp_path.iterdir())


def test_the_benchmark_of_text_compares_with_reading_and_joining(tmp_path: Path) -> None:
    report = measured("build.py", tmp_path, "--edges", "100000", "--nodes", "5000", "--text")
    assert list(report) == ["read", "join", "tables"]
    for task, row in report.items():
        assert row["seconds"] > 0
        assert ("ratio" in row) == (task != "tables")
    assert not any(tmp_path.iterdir())


def test_the_benchmark_of_parts_compares_the_disk_with_that_of_cutting(tmp_path: Path) -> None:
    report = measured("build.py", tmp_path, "--edges", "300000", "--nodes", "5000", "--parts", "3")
    assert list(report) == ["read", "tables", "cut", "parts"]
    for task, row in report.items():
        assert ("ratio" in row) == (task != "parts")
    assert report["parts"]["disk_gib"] > 0.002
    assert report["parts"]["disk_ratio"] > 0
    assert not any(tmp_path.iterdir())


def test_a_disk_without_room_is_told_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="name another --folder"):
        build.check_disk(tmp_path, 10**15)


@pytest.mark.parametrize(
    ("task", "size"),
    [
        ("build", build.Size(3_000_000, 50_000, build.GIB // 32)),
        ("tables", build.Size(3_000_000, 50_000, build.GIB // 16)),
        pytest.param(
            "tables",
            build.SIZES["billion"],
            marks=[pytest.mark.soak, pytest.mark.timeout(2 * 3600)],
        ),
    ],
    ids=["small", "tables", "billion"],
)
def test_the_graph_has_the_edges_of_the_files(task: str, size: build.Size, tmp_path: Path) -> None:
    """CONTRACT 77: a billion edges are built within 6 GiB of memory that no file backs."""
    if shutil.disk_usage(tmp_path).free < size.edges * NBYTES_PER_EDGE:
        pytest.skip(f"{tmp_path} has less than {size.edges * NBYTES_PER_EDGE:,} bytes free")
    build.write_pairs(tmp_path / "pairs", size.edges, size.nodes)
    found = build.measured(task, tmp_path / "pairs", size, tmp_path / "x.graph")
    shutil.rmtree(tmp_path / "pairs")
    assert found["private_gib"] < MOST_GIB
    with Graph.open(tmp_path / "x.graph") as graph:
        assert_edges_are_those(graph, size)
    shutil.rmtree(tmp_path / "x.graph")


def assert_edges_are_those(graph: Graph, size: build.Size) -> None:
    """Compare all degrees, and some rows, with what the pairs are known to be."""
    rows = graph.topology()
    some = np.unique(np.r_[0, np.random.default_rng(0).integers(0, size.nodes, 300)])
    degrees = np.zeros(size.nodes, np.int64)
    expected = [np.empty((3, 0), np.int64)]
    for first in range(0, size.edges, build.CHUNK):
        sources, targets = build.pairs(first, min(build.CHUNK, size.edges - first), size.nodes)
        np.add.at(degrees, targets, 1)
        here = np.flatnonzero(np.isin(targets, some))
        expected.append(np.stack([targets[here], sources[here], first + here]))
    np.testing.assert_array_equal(rows.degrees, degrees)
    edges = np.concatenate(expected, axis=1)
    edges = edges[:, np.argsort(edges[0], kind="stable")]
    found = [rows.pairs[rows.indptr[row] : rows.indptr[row + 1]] for row in some]
    np.testing.assert_array_equal(np.concatenate(found), edges[1:].T)
