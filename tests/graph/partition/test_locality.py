"""Parts that cut few edges: by KaMinPar, and in passes over the rows."""

from __future__ import annotations

import os
import signal
import sys
import threading
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import Graph
from penstock.errors import PenstockError
from penstock.graph.partition.book import ArrayBook
from penstock.graph.partition.index_space import IndexSpace
from penstock.graph.partition.partition import assigned
from penstock.graph.partition.streaming import most_nodes, stream
from tests.graph.partition.graphs import CITES, WRITES, heterogeneous, homogeneous

DATA = Path(__file__).parents[3].parent / "shared" / "data"
METHODS = ("locality", "streaming")
BLOCKS = 4
BUYS = ("user", "buys", "item")


def block_ends(sources: int, targets: int, degree: int = 12, stays: float = 0.9) -> Any:
    """Edges that stay among nodes with the same id modulo `BLOCKS`, most of them."""
    rng = np.random.default_rng(7)
    ends = np.stack(
        [np.repeat(np.arange(sources), degree), rng.integers(0, targets, sources * degree)]
    )
    home = rng.random(ends.shape[1]) < stays
    ends[1, home] = ends[1, home] // BLOCKS * BLOCKS + ends[0, home] % BLOCKS
    return ends


@contextmanager
def blocks(*, both: bool = True) -> Iterator[Graph]:
    ends = block_ends(2000, 2000)
    with Graph.from_coo(np.concatenate([ends, ends[::-1]], 1) if both else ends, 2000) as graph:
        yield graph


@contextmanager
def shop(*, reverse: bool) -> Iterator[Graph]:
    ends = block_ends(1200, 800)
    edges = {BUYS: ends}
    if reverse:
        edges["item", "rev_buys", "user"] = ends[::-1]
    with Graph.from_coo(edges, {"user": 1200, "item": 800}) as graph:
        yield graph


def share_cut(graph: Graph, method: str, parts: int = BLOCKS, **options: Any) -> float:
    cutter = assigned(graph, parts, method, **options)  # type: ignore[arg-type]
    cut = sum(map(sum, cutter.edges_cut.values()))
    return cut / sum(map(sum, cutter.num_edges.values()))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("both", [True, False], ids=["undirected", "directed"])
def test_far_fewer_edges_of_blocks_are_cut_than_by_hashes(method: str, both: bool) -> None:
    with blocks(both=both) as graph:
        assert share_cut(graph, "hash") > 0.7
        assert share_cut(graph, method) < 0.2


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("reverse", [True, False], ids=["reverses", "one direction"])
def test_all_types_are_assigned_together(method: str, reverse: bool) -> None:
    """Users have no in-edges where there are no reverses, and go by their out-edges."""
    with shop(reverse=reverse) as graph:
        assert share_cut(graph, "hash") > 0.7
        assert share_cut(graph, method) < 0.2


@pytest.mark.parametrize("method", METHODS)
def test_the_same_graph_has_the_same_parts_wherever_it_is(method: str, tmp_path: Path) -> None:
    with blocks() as graph:
        graph.save(tmp_path / "graph")
        one, other = (assigned(graph, 3, method).balance for _ in range(2))  # type: ignore[arg-type]
        parts = graph.partition(3, tmp_path / "parts", method)  # type: ignore[arg-type]
    with Graph.open(tmp_path / "graph") as graph:
        again = graph.partition(3, tmp_path / "again", method)  # type: ignore[arg-type]
    assert one == other == parts.balance == again.balance
    for path, same in zip(parts, again, strict=True):
        with Graph.open(path) as part, Graph.open(same) as there:
            assert part.part == there.part
            assert part.version == there.version


@pytest.mark.parametrize("name", ["cora", "citeseer"])
@pytest.mark.skipif(not DATA.is_dir(), reason="there is no ../shared/data")
def test_few_citations_are_cut(name: str) -> None:
    with np.load(DATA / f"{name}.npz") as stored:
        with Graph.from_coo(stored["edge_index"], int(stored["x_shape"][0])) as graph:
            assert share_cut(graph, "hash", 2) > 0.45
            assert share_cut(graph, "streaming", 2) < 0.15
            assert share_cut(graph, "locality", 2) < 0.06


# --- balance -------------------------------------------------------------------------------------


@st.composite
def any_graphs(draw: st.DrawFn) -> Graph:
    """Hubs, parallel edges, self-loops, no edges, no nodes; with types."""
    sizes = {name: draw(st.integers(0, 25)) for name in ("a", "b", "c")}
    names = st.sampled_from([name for name, size in sizes.items() if size] or ["none"])
    edges = {}
    for number in range(draw(st.integers(0, 4)) if any(sizes.values()) else 0):
        source, target = draw(names), draw(names)
        ends = st.tuples(st.integers(0, sizes[source] - 1), st.integers(0, sizes[target] - 1))
        found = draw(st.lists(ends, max_size=60))
        edges[source, f"to{number}", target] = np.array(found, np.int64).reshape(-1, 2).T
    return Graph.from_coo(edges, sizes)


@given(any_graphs(), st.integers(1, 9), st.integers(1, 4), st.integers(1, 2000))
def test_no_part_gets_more_nodes_than_the_bound(
    graph: Graph, parts: int, passes: int, votes_nbytes: int
) -> None:
    with graph:
        space = IndexSpace.of(graph)
        found = stream(space, parts, passes, votes_nbytes=votes_nbytes)
    for name, numbers in found.items():
        size = graph.num_nodes(name)
        assert len(numbers) == size
        counts = np.bincount(numbers, minlength=parts)
        assert len(counts) == parts
        assert (
            counts.max() <= most_nodes(size, parts) <= max(-(-size // parts), 1.05 * size / parts)
        )


@pytest.mark.parametrize("method", METHODS)
def test_parts_of_real_size_are_even(method: str) -> None:
    with blocks() as graph:
        for parts in (2, 3, 16):
            assert assigned(graph, parts, method).balance.nodes[""] <= 1.051  # type: ignore[arg-type]


def test_streaming_balances_each_type() -> None:
    with shop(reverse=True) as graph:
        balance = assigned(graph, 3, "streaming").balance
    assert balance.nodes.keys() == {"user", "item"}
    assert max(balance.nodes.values()) <= 1.05


@pytest.mark.parametrize("method", ["range", "hash", "given", *METHODS])
def test_balance_is_the_largest_part_over_the_mean(method: str, tmp_path: Path) -> None:
    given_parts = {"author": np.arange(30) % 3, "paper": np.repeat([0, 1, 2], [10, 9, 1])}
    with heterogeneous() as graph:
        parts = graph.partition(3, tmp_path / "parts", given_parts if method == "given" else method)  # type: ignore[arg-type]
        sizes = {name: graph.num_nodes(name) for name in graph.node_types}
    opened = [Graph.open(path) for path in parts]
    for name, size in sizes.items():
        largest = max(part.num_own_nodes(name) for part in opened)
        assert parts.balance.nodes[name] == pytest.approx(largest * 3 / size)
    for kind in (WRITES, CITES):
        largest = max(part.num_own_edges(kind) for part in opened)
        assert parts.balance.edges[kind] == pytest.approx(largest * 3 / parts.num_edges[kind])
    for part in opened:
        part.close()


# --- small and odd graphs ------------------------------------------------------------------------

ODD = {
    "no nodes": lambda: Graph.from_coo(np.zeros((2, 0), int), 0),
    "one node": lambda: Graph.from_coo(np.zeros((2, 0), int), 1),
    "one node with a loop": lambda: Graph.from_coo([[0], [0]], 1),
    "no edges": lambda: Graph.from_coo(np.zeros((2, 0), int), 20),
    "fewer nodes than parts": lambda: Graph.from_coo([[0, 1, 2], [1, 2, 0]], 3),
    "no types": lambda: Graph.from_coo({}, {}),
    "a type without nodes": lambda: Graph.from_coo(
        {BUYS: np.zeros((2, 0), int)}, {"user": 3, "item": 0}
    ),
    "parallel edges and loops": lambda: Graph.from_coo([[0, 0, 0, 1, 1], [1, 1, 1, 1, 0]], 2),
    "weights": homogeneous,
    "types": heterogeneous,
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ODD)
def test_every_node_of_odd_graphs_is_in_one_part(name: str, method: str, tmp_path: Path) -> None:
    with ODD[name]() as graph:
        paths = graph.partition(7, tmp_path / "parts", method)  # type: ignore[arg-type]
        parts = [Graph.open(path) for path in paths]
        for kind in graph.node_types:
            ids = np.concatenate([part.node_ids(kind) for part in parts])
            assert sorted(ids.tolist()) == list(range(graph.num_nodes(kind)))
        for part in parts:
            part.validate()
            part.close()


@pytest.mark.parametrize("method", METHODS)
def test_one_part_has_everything(method: str) -> None:
    with blocks() as graph:
        assert share_cut(graph, method, 1) == 0


def test_numbers_of_many_parts_are_kept() -> None:
    """From 256 parts on, one byte does not hold the number of a part and that of none."""
    with blocks() as graph:
        for parts, dtype in ((255, np.uint8), (256, np.uint8), (300, np.int16)):
            for method in METHODS:
                book = assigned(graph, parts, method)._assignments[""].book  # type: ignore[arg-type]
                assert isinstance(book, ArrayBook)
                assert book.parts.dtype == dtype
                assert len(np.unique(book.parts)) > parts / 2


def test_a_part_says_that_its_book_is_given(tmp_path: Path) -> None:
    with blocks() as graph:
        path, _ = graph.partition(2, tmp_path / "parts", "streaming")
    with Graph.open(path) as part:
        assert part.part is not None
        assert part.part.method == "given"


# --- streaming -----------------------------------------------------------------------------------


def test_more_passes_cut_fewer_edges() -> None:
    with blocks() as graph:
        assert share_cut(graph, "streaming", passes=1) > share_cut(graph, "streaming") + 0.1


def test_streaming_holds_a_few_bytes_for_each_node_and_none_for_edges() -> None:
    with blocks() as graph:
        space = IndexSpace.of(graph)
        tracemalloc.start()
        try:
            stream(space, BLOCKS)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        edges = graph.csc().adjacency.nbytes
    assert peak < 3 * 2000 + 20_000 < edges / 10


def test_votes_in_little_memory_are_as_good() -> None:
    """Out-edges are read again for each piece of the nodes."""
    with blocks(both=False) as graph:
        space = IndexSpace.of(graph)
        found = stream(space, BLOCKS, votes_nbytes=2000 * BLOCKS * 4 // 5)[""]
        sources, targets = graph.edge_index()
    assert np.mean(found[sources] != found[targets]) < 0.2


def test_progress_is_told_of_passes_and_then_of_writing(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    with blocks() as graph:
        graph.partition(
            3, tmp_path / "parts", "streaming", progress=lambda *each: told.append(each)
        )
    written = sum(each.stat().st_size for each in tmp_path.rglob("*.bin"))
    ends = [number for number, (done, total) in enumerate(told) if done == total]
    assert told[-1] == (written, written)
    passes = told[: ends[0] + 1]
    assert len(passes) > 3
    assert passes == sorted(passes)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"method": "streaming", "passes": 0}, "passes is 0; expected at least 1"),
        ({"method": "streaming", "passes": True}, "passes is True; expected at least 1"),
        ({"method": "locality", "passes": 3}, "passes is 3; only method='streaming' makes passes"),
        ({"method": [0] * 60, "passes": 3}, "only method='streaming' makes passes"),
    ],
)
def test_passes_that_cannot_be_are_refused(
    tmp_path: Path, options: dict[str, Any], words: str
) -> None:
    with homogeneous() as graph, pytest.raises(ValueError, match=words):
        graph.partition(2, tmp_path / "parts", **options)
    assert not any(tmp_path.iterdir())


# --- KaMinPar ------------------------------------------------------------------------------------


def test_what_to_install_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "kaminpar", None)
    words = r"needs the package kaminpar: pip install 'penstock-gnn\[locality\]'"
    for odd in (blocks(), ODD["no nodes"]()):
        with odd as graph, pytest.raises(PenstockError, match=words):
            graph.partition(2, tmp_path / "parts", "locality")
    assert not any(tmp_path.iterdir())


def interpreter(path: Path, script: str) -> str:
    """A program that is started in the place of Python."""
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("kill -9 $$", "was killed, probably because memory ran out: method='streaming'"),
        ("kill -11 $$", r"KaMinPar failed \(SIGSEGV\): it said nothing"),
        ("echo nonsense >&2; exit 3", r"KaMinPar failed \(status 3\): nonsense"),
    ],
)
def test_a_partitioner_that_fails_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, words: str
) -> None:
    (tmp_path / "out").mkdir()
    monkeypatch.setattr(sys, "executable", interpreter(tmp_path / "python", script))
    with blocks() as graph, pytest.raises(PenstockError, match=words):
        graph.partition(2, tmp_path / "out" / "parts", "locality")
    assert not any((tmp_path / "out").iterdir())


@pytest.mark.usefixtures("no_leaks")
def test_an_interrupt_ends_the_partitioner(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "started")
    script = f"echo > {tmp_path / 'started'}; exec sleep 1000"
    monkeypatch.setattr(sys, "executable", interpreter(tmp_path / "python", script))

    def interrupt() -> None:
        (tmp_path / "started").read_bytes()
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with blocks() as graph, pytest.raises(KeyboardInterrupt):
        graph.partition(2, tmp_path / "parts", "locality")
    thread.join()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["python", "started"]
