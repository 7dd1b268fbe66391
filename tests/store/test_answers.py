"""What a part answers: in pieces where that is too large, and errors that name what is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.errors import GraphFormatError, PenstockError
from penstock.graph import Graph
from penstock.graph.exchange import Draw
from penstock.graph.schema import EDGE
from penstock.kernels import hop_key, name_hash
from penstock.sampling.khop import NeighborSampler
from penstock.sampling.spec import NeighborSpec, PPRSpec
from penstock.store.answers import PartAnswers
from penstock.store.calls import ColumnName, DrawRequest, WantedBatch
from penstock.store.graph import StoreGraph
from penstock.store.handles import attach_parts, open_parts, outline_of
from penstock.store.outline import outline_of_parts
from penstock.store.parts import Awaited, LocalParts

NODES = 60


def graph_with_a_hub() -> Graph:
    """Node 0 has 400 neighbours, more than any answer below may have."""
    rng = np.random.default_rng(3)
    sources = np.concatenate([rng.integers(0, NODES, 400), rng.integers(0, NODES, 300)])
    ends = np.concatenate([np.zeros(400, np.int64), rng.integers(0, NODES, 300)])
    return Graph.from_coo(
        np.stack([sources, ends]),
        NODES,
        x=rng.random((NODES, 2), np.float32),
        edge_attr=rng.random((700, 2), np.float32),
        train=[5, 3, 50],
    )


class _SmallAnswers(LocalParts):
    """Parts that answer with few entries at a time."""

    def __init__(self, graphs: list[Graph], most: int) -> None:
        super().__init__(graphs)
        self._answers = [PartAnswers(graph, most) for graph in graphs]
        self.asked = 0

    def begin(self, part: int, verb: str, into: Any = None, **arguments: Any) -> Awaited:
        self.asked += 1
        return super().begin(part, verb, into, **arguments)


@pytest.fixture
def whole() -> Iterator[Graph]:
    with graph_with_a_hub() as graph:
        yield graph


@pytest.fixture
def folders(whole: Graph, tmp_path: Path) -> list[str]:
    return [str(path) for path in whole.partition(3, tmp_path / "parts", "hash")]


@pytest.mark.parametrize("entries", [1, 7, 64, 10_000])
@pytest.mark.parametrize("fanout", [-1, 3])
def test_rows_that_are_too_large_for_an_answer_come_in_pieces(
    whole: Graph, folders: list[str], entries: int, fanout: int
) -> None:
    graphs = [Graph.open(folder) for folder in folders]
    parts = _SmallAnswers(graphs, 32 * entries)
    outline = outline_of_parts([outline_of(graph) for graph in graphs])
    with StoreGraph(outline, lambda: parts, {}) as store:
        expected = NeighborSampler(whole, [fanout, fanout]).sample(np.array([0, 7, 12]))
        found = NeighborSampler(store, [fanout, fanout]).sample(np.array([0, 7, 12]))
        for name in ("nodes", "rows", "cols", "edge_ids"):
            for one, other in zip(getattr(found, name), getattr(expected, name), strict=True):
                assert np.array_equal(one, other)
        assert parts.asked > 6 or entries >= 64


def test_out_rows_of_parts_that_were_cut_by_destination_are_put_together(
    whole: Graph, folders: list[str]
) -> None:
    """CONTRACT 65: labels are read along out-edges, of which every part has a share."""
    with open_parts(folders) as store:
        exchange = store.open_exchange()
        nodes = np.array([4, 0, 59])
        found = exchange._begin_rows(EDGE, "out", nodes)()
        expected = whole.csr()
        for node, entries in zip(
            nodes, np.split(found.neighbors, np.cumsum(found.counts)[:-1]), strict=True
        ):
            begin, end = expected.indptr[node : node + 2]
            assert entries.tolist() == expected.indices[begin:end].tolist()
        with pytest.raises(ValueError, match="no part has all out-edges of a node"):
            exchange.draw([Draw(EDGE, "out", nodes, 3, hop_key(1, 0, name_hash(EDGE)))])


def test_a_node_of_another_part_is_named(folders: list[str]) -> None:
    """CONTRACT 38, 68."""
    with Graph.open(folders[0]) as part:
        answers = PartAnswers(part)
        foreign = next(n for n in range(NODES) if n not in part.node_ids().tolist())
        with pytest.raises(
            ValueError, match=rf"nodes\[0\] is {foreign}, whose edges are in another"
        ):
            answers.get_draws([DrawRequest(edge_type=EDGE, side="in", nodes=np.array([foreign]))])
        column = ColumnName("node", "", "x")
        with pytest.raises(ValueError, match=str(foreign)):
            answers.get_rows([column], np.array([foreign]))
        some = answers.get_rows([column], np.array([foreign]), some=True)
        assert some.here.tolist() == [False]
        assert len(some.rows[0]) == 0
        with pytest.raises(ValueError, match="edge_type"):
            answers.get_draws(
                [DrawRequest(edge_type=("a", "b", "c"), side="in", nodes=np.array([0]))]
            )
        with pytest.raises(PenstockError, match="part of the topology"):
            answers.get_batch(
                NeighborSpec(num_neighbors=(2,)),
                WantedBatch(seed=0, epoch=0, index=0, seeds=np.array([0]), positions=np.array([0])),
            )


def test_edges_and_splits_of_the_whole_are_put_together(whole: Graph, folders: list[str]) -> None:
    """CONTRACT 68."""
    with open_parts(folders) as store:
        assert np.array_equal(store.edge_index(), whole.edge_index())
        assert store.split("train").tolist() == [5, 3, 50]
        assert np.array_equal(store.node_attribute("x"), whole.node_attribute("x"))
        ids = np.array([699, 0, 350, 0])
        rows = store.edge_features("edge_attr").gather(ids)
        assert np.array_equal(rows, whole.edge_attribute("edge_attr")[ids])
        with pytest.raises(ValueError, match=r"ids\[1\] is 700; expected 0 <= id < 700"):
            store.edge_features("edge_attr").gather(np.array([0, 700]))
        with pytest.raises(ValueError, match=r"ids\[0\] is -1"):
            store.node_features("x").gather(np.array([-1]))


def test_what_only_a_graph_in_one_place_has_is_refused_in_words(folders: list[str]) -> None:
    with open_parts(folders) as store:
        for refused in (store.csc, store.csr, store.rows, lambda: store.save("x")):
            with pytest.raises(PenstockError, match="in no single place"):
                refused()
        with pytest.raises(PenstockError, match="in parts already"):
            store.partition(2, "x")
        store.validate()


def test_another_process_finds_the_same_parts_by_the_handle(
    whole: Graph, folders: list[str]
) -> None:
    import pickle

    with open_parts(folders) as store, attach_parts(store.handle(), ()) as other:
        for graph in (other, pickle.loads(pickle.dumps(store))):
            assert np.array_equal(graph.node_attribute("x"), whole.node_attribute("x"))
            graph.close()


def test_parts_that_are_not_all_or_not_of_one_cut_are_refused_by_name(
    whole: Graph, folders: list[str], tmp_path: Path
) -> None:
    """CONTRACT 71."""
    others = [str(path) for path in whole.partition(3, tmp_path / "others", "range")]
    with pytest.raises(GraphFormatError, match=r"\[0, 2\]; expected each of 0 to 2, once"):
        open_parts([folders[0], folders[2]])
    with pytest.raises(
        GraphFormatError, match="part 1 is of another graph, version or cut than part 0"
    ):
        open_parts([folders[0], others[1], folders[2]])
    with pytest.raises(GraphFormatError, match="once"):
        open_parts([folders[0], folders[0], folders[1]])


def test_sizes_of_degrees_are_those_of_the_whole(whole: Graph, folders: list[str]) -> None:
    """CONTRACT 60, 68."""
    from penstock.graph.derived import DegreeSizes

    with open_parts(folders) as store:
        (ours,), (theirs,) = (g.derived(DegreeSizes(EDGE)) for g in (store, whole))
        assert np.array_equal(ours.array, theirs.array)
        assert store.lacking([DegreeSizes(EDGE)]) == []
        assert PPRSpec().direction == "in"
        with pytest.raises(ValueError, match="cut by destination"):
            store.derived(DegreeSizes(EDGE, "out"))
