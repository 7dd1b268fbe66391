"""What a store tells of itself is what the whole graph tells: ids, rows, labels, edges, books."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.dist.dataset import ServedDataset
from penstock.client.dist.queries import SPLITS, Queries
from penstock.client.dist.store_queries import StoreQueries
from penstock.core.slices import ServerSlice, compute_server_assignments
from penstock.graph import EdgeType, Graph
from penstock.graph.derived import DegreeSizes
from penstock.sampling.labels import label_type
from penstock.store.graph import StoreGraph
from tests.sampling.invariants import same_bits
from tests.sampling.worlds import SOME, World, worlds
from tests.store.cuts import Cut, cuts, far_parts, in_parts

LIKES: EdgeType = ("p", "likes", "a/b")
KINDS: tuple[EdgeType, ...] = (
    LIKES,
    label_type(LIKES, "positive"),
    label_type(LIKES, "negative"),
    ("a/b", "w,r", "p"),
    ("p", "to", "p"),
)


class WholeQueries(Queries):
    """The queries as a server of the whole graph answers them."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(ServedDataset(graph), max_answer_bytes=1 << 30)

    def statistics(self) -> dict[str, Any]:
        return {}

    hub_statistics = statistics

    def describe(self) -> str:
        return ""


@dataclass
class Asked:
    """A whole graph and the same in parts, and who answers for each."""

    whole: Graph
    parts: StoreGraph

    @property
    def types(self) -> list[str | None]:
        return list(self.whole.node_types) if self.whole.is_hetero else [None]

    @property
    def kinds(self) -> list[EdgeType | None]:
        return list(self.whole.edge_types) if self.whole.is_hetero else [None]

    def both(self, verb: str, *given: Any, **named: Any) -> tuple[Any, Any]:
        """What both say: the store's answer, and the whole graph's."""
        whole, store = WholeQueries(self.whole), StoreQueries(self.parts)
        return getattr(store, verb)(*given, **named), getattr(whole, verb)(*given, **named)

    def check(self, verb: str, *given: Any, **named: Any) -> None:
        found, expected = self.both(verb, *given, **named)
        if isinstance(expected, np.ndarray):
            same_bits(np.asarray(found), expected, verb)
        else:
            assert found == expected, verb


@st.composite
def told(draw: st.DrawFn, world: World) -> Graph:
    """A graph of the world's edges, with all that can be asked for."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))

    def of(kinds: Any, make: Any) -> Any:
        found = {kind: make(size) for kind, size in kinds.items()}
        return found if world.is_hetero else found[next(iter(found))]

    edges = {kind: index.shape[1] for kind, index in world.edges.items()}
    splits = {
        name: of(world.sizes, lambda size: rng.permutation(size)[: rng.integers(0, size + 1)])
        for name in SPLITS
    }
    return Graph.from_coo(
        world.edges if world.is_hetero else world.edges["", "", ""],
        world.sizes if world.is_hetero else world.sizes[""],
        x=of(world.sizes, lambda size: rng.random((size, 3), np.float32)),
        y=of(world.sizes, lambda size: rng.integers(0, 9, size)),
        edge_attr=of(edges, lambda size: rng.random((size, 2), np.float32)),
        graph_attrs={"ready": np.arange(5)},
        **splits,
    )


@st.composite
def cases(draw: st.DrawFn, *edges: str) -> tuple[Graph, Cut]:
    world = draw(worlds(kinds_of=KINDS))
    return draw(told(world)), draw(cuts(world, *edges))


def asked(case: tuple[Graph, Cut]) -> Iterator[Asked]:
    """Answered at once, and as over a network in small pieces."""
    graph, cut = case
    for opener in ({}, {"opener": far_parts(64)}):
        with in_parts(graph, cut, **opener) as parts:
            yield Asked(graph, parts)


@SOME
@given(cases())
def test_ids_types_and_sizes_are_those_of_the_whole(case: tuple[Graph, Cut]) -> None:
    """CONTRACT 68: `get_node_ids` of all and of every split, in the split's own order."""
    for both in asked(case):
        for verb in ("get_node_types", "get_edge_types"):
            both.check(verb)
        for name in both.types:
            both.check("get_tensor_size", name)
            for split in (None, *SPLITS):
                both.check("get_node_ids", split, name)
        for kind in both.kinds:
            both.check("get_edge_size", kind)
        for verb in ("get_node_feature_info", "get_edge_feature_info"):
            both.check(verb)
        found, expected = both.both("get_dataset_meta")
        assert (found.num_nodes, found.num_edges) == (expected.num_nodes, expected.num_edges)
        assert found.num_partitions == case[1].parts


@SOME
@given(cases(), st.data())
def test_rows_of_nodes_and_edges_are_those_of_the_whole(
    case: tuple[Graph, Cut], data: st.DataObject
) -> None:
    """CONTRACT 68: of any ids in any order, of all, and of none; labels as well."""
    for both in asked(case):
        both.check("get_graph_attribute", "ready")
        for name in both.types:
            ids = data.draw(ids_below(both.whole.num_nodes(name)))
            for index in (None, ids):
                both.check("get_node_feature", name, index)
                both.check("get_node_label", name, index)
                both.check("get_node_attribute", "x", name, index)
        for kind in both.kinds:
            ids = data.draw(ids_below(both.whole.num_edges(kind)))
            for index in (None, ids):
                both.check("get_edge_attribute", "edge_attr", kind, index)


def ids_below(size: int) -> st.SearchStrategy[Any]:
    if not size:
        return st.just(np.empty(0, np.int64))
    ids = st.lists(st.integers(0, size - 1), max_size=12)
    return ids.map(lambda each: np.array(each, np.int64))


@SOME
@given(cases())
def test_an_id_that_does_not_exist_is_named(case: tuple[Graph, Cut]) -> None:
    """CONTRACT 38, 68: an error, never a wrong row; the same words as the whole graph's."""
    for both in asked(case):
        for name in both.types:
            size = both.whole.num_nodes(name)
            for wrong in (-1, size):
                with pytest.raises(ValueError, match=rf"\[0\] is {wrong}; expected 0 <= id"):
                    both.both("get_node_feature", name, [wrong])
        for kind in both.kinds:
            size = both.whole.num_edges(kind)
            with pytest.raises(ValueError, match=rf"\[0\] is {size}; expected 0 <= id"):
                both.both("get_edge_attribute", "edge_attr", kind, [size])


@SOME
@given(cases(), st.integers(0, 30), st.integers(0, 9))
def test_edges_are_those_of_the_whole_in_its_order(
    case: tuple[Graph, Cut], first: int, count: int
) -> None:
    """CONTRACT 68: all of them, and any piece."""
    for both in asked(case):
        for kind in both.kinds:
            both.check("get_edge_index", kind)
            both.check("get_edge_index", kind, first=first, count=count)
            same_bits(both.parts.edge_index(kind), both.whole.edge_index(kind), "edge_index")


@SOME
@given(cases())
def test_degrees_are_those_of_the_whole(case: tuple[Graph, Cut]) -> None:
    """CONTRACT 68: of each node from its owner; and the sizes of degrees that PPR reads."""
    graph, cut = case
    for both in asked(case):
        for kind in graph.edge_types:
            for side, end in (("in", 2), ("out", 0)):
                if not both.parts.serves(side):  # type: ignore[arg-type]
                    continue
                name = kind[end]
                nodes = np.arange(graph.num_nodes(name))
                ends = graph.edge_index(kind)[1 if side == "in" else 0]
                book = both.parts.node_book(name)
                found = np.full(len(nodes), -1)
                for part in range(cut.parts):
                    ids = book.ids_of(part)
                    call = both.parts.ask(part, "get_degrees", edge_type=kind, side=side, ids=ids)
                    found[ids] = call.result()
                np.testing.assert_array_equal(found, np.bincount(ends, minlength=len(nodes)))
                wanted = DegreeSizes(kind, side)  # type: ignore[arg-type]
                (sizes,), (expected,) = both.parts.derived(wanted), graph.derived(wanted)
                same_bits(sizes.array, expected.array, "degree sizes")


@SOME
@given(cases())
def test_books_say_where_every_node_and_edge_is(case: tuple[Graph, Cut]) -> None:
    """CONTRACT 68: every id in one part; the parts have what the books say."""
    graph, cut = case
    for both in asked(case):
        queries = StoreQueries(both.parts)
        for name in both.types:
            book = queries.get_node_partition_book(name)
            size = graph.num_nodes(name)
            owners = queries.get_node_partition_id(name, np.arange(size))
            assert book.num_partitions == cut.parts
            np.testing.assert_array_equal(book.partition_of(np.arange(size)), owners)
            for part in range(cut.parts):
                mine = queries.get_node_ids(None, name, ServerSlice(part))
                np.testing.assert_array_equal(mine, np.flatnonzero(owners == part))
        for kind in both.kinds:
            book = queries.get_edge_partition_book(kind)
            count = graph.num_edges(kind)
            end = 0 if cut.edges == "source" else 2
            of_end = kind[end] if kind else None
            ends = graph.edge_index(kind)[0 if cut.edges == "source" else 1]
            owners = queries.get_node_partition_id(of_end, ends)
            assert book.num_partitions == cut.parts
            np.testing.assert_array_equal(book.partition_of(np.arange(count)), owners)


@SOME
@given(cases(), st.integers(1, 4))
def test_the_slices_of_all_ranks_are_the_whole(case: tuple[Graph, Cut], ranks: int) -> None:
    """CONTRACT 36, 68: by `compute_server_assignments`, each id goes to one rank."""
    _, cut = case
    for both in asked(case):
        queries = StoreQueries(both.parts)
        for name in both.types:
            for split in (None, *SPLITS):
                found: list[int] = []
                for rank in range(ranks):
                    for number, piece in compute_server_assignments(cut.parts, ranks, rank).items():
                        assert piece.server_rank == number
                        found += queries.get_node_ids(split, name, piece).tolist()
                expected = queries.get_node_ids(split, name).tolist()
                assert sorted(found) == sorted(expected)
        with pytest.raises(ValueError, match=f"the store has {cut.parts} parts"):
            queries.get_node_ids(None, both.types[0], ServerSlice(cut.parts))


@SOME
@given(worlds(hetero=True, kinds_of=KINDS[:3]), st.data(), st.sampled_from([None, 0, 1, 2]))
def test_anchors_have_all_their_labels(world: World, data: st.DataObject, most: int | None) -> None:
    """CONTRACT 68: `get_ablp_input`, wherever the labels' other ends are; capped or not."""
    graph = data.draw(told(world))
    cut = data.draw(cuts(world))
    for both in asked((graph, cut)):
        for split in (None, *SPLITS):
            options: dict[str, Any] = {"max_labels": most}
            kinds = graph.edge_types
            if label_type(LIKES, "positive") not in kinds:
                options |= {"positive": kinds[0]}
            found, expected = both.both("get_ablp_input", split, "p", LIKES, **options)
            for one, other in zip(found, expected, strict=True):
                assert (one is None) == (other is None)
                if one is not None:
                    same_bits(np.asarray(one), np.asarray(other), f"labels of {split}")


@SOME
@given(worlds(hetero=True, kinds_of=KINDS[:3]), st.data(), st.integers(1, 3))
def test_anchors_of_slices_have_the_labels_of_the_whole(
    world: World, data: st.DataObject, ranks: int
) -> None:
    """CONTRACT 36, 37, 68: row k belongs to anchor k, whichever rank asks for it."""
    graph = data.draw(told(world))
    cut = data.draw(cuts(world))
    kinds = graph.edge_types
    given_ = {} if label_type(LIKES, "positive") in kinds else {"positive": kinds[0]}
    for both in asked((graph, cut)):
        queries = StoreQueries(both.parts)
        rows: dict[int, list[list[int]]] = {}
        for rank in range(ranks):
            for piece in compute_server_assignments(cut.parts, ranks, rank).values():
                found = queries.get_ablp_input("train", "p", LIKES, piece, **given_)
                for anchor, labels in zip(found.anchors.tolist(), found.positive, strict=True):
                    assert anchor not in rows
                    rows[anchor] = [each for each in labels.tolist() if each >= 0]
        _, whole = both.both("get_ablp_input", "train", "p", LIKES, **given_)
        expected = {
            anchor: [each for each in labels.tolist() if each >= 0]
            for anchor, labels in zip(whole.anchors.tolist(), whole.positive, strict=True)
        }
        assert rows == expected
