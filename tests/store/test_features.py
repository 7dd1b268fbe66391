"""Rows of attributes in parts: whichever ids are asked for, they are those of the whole graph."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import Graph
from penstock.graph.partition.book import ArrayBook, HashBook, RangeBook
from penstock.store import features
from penstock.store.features import shared_out
from penstock.store.graph import StoreGraph
from penstock.store.handles import open_parts

NODES, EDGES = 60, 300
ids_of = st.lists(st.integers(0, NODES - 1), max_size=150)


@pytest.fixture(scope="module")
def whole() -> Iterator[Graph]:
    rng = np.random.default_rng(3)
    with Graph.from_coo(
        rng.integers(0, NODES, (2, EDGES)),
        NODES,
        x=rng.random((NODES, 3), dtype=np.float32),
        edge_attr=rng.random((EDGES, 2), dtype=np.float32),
    ) as graph:
        yield graph


@pytest.fixture(scope="module", params=["few", "many"])
def parts(
    whole: Graph, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[StoreGraph]:
    number = {"few": 3, "many": features._FEW_PARTS + 1}[request.param]
    paths = whole.partition(number, tmp_path_factory.mktemp("cut") / "parts", "hash")
    with open_parts([str(path) for path in paths]) as graph:
        yield graph


@pytest.mark.parametrize("marked", [True, False], ids=["marked", "sorted"])
@given(ids=ids_of)
def test_rows_are_those_of_the_whole_in_any_order_and_as_often_as_asked_for(
    whole: Graph, parts: StoreGraph, marked: bool, ids: list[int]
) -> None:
    """CONTRACT 70: each row crosses the network once, however often it is asked for."""
    wanted = np.array(ids, np.int64)
    before = parts.moved.rows
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(features, "_MOST_MARKS", 1 << 25 if marked else 0)
        found = parts.node_features("x").gather(wanted)
    assert np.array_equal(found, whole.node_features("x").gather(wanted))
    assert parts.moved.rows - before == len(set(ids))


@given(ids=st.lists(st.integers(0, EDGES - 1), max_size=150))
def test_rows_of_edges_are_those_of_the_whole(
    whole: Graph, parts: StoreGraph, ids: list[int]
) -> None:
    wanted = np.array(ids, np.int64)
    found = parts.edge_features("edge_attr").gather(wanted)
    assert np.array_equal(found, whole.edge_features("edge_attr").gather(wanted))


@given(ids=st.lists(st.integers(0, EDGES - 1), max_size=150), data=st.data())
def test_rows_of_edges_are_found_wherever_their_ends_are_said_to_be(
    whole: Graph, parts: StoreGraph, ids: list[int], data: st.DataObject
) -> None:
    wanted = np.array(ids, np.int64)
    wrong = data.draw(st.lists(st.integers(0, NODES - 1), min_size=len(ids), max_size=len(ids)))
    right = whole.edge_index()[1, wanted]
    near = np.where(np.arange(len(ids)) % 3 == 0, np.array(wrong, np.int64), right)
    for ends in (None, lambda end: None, lambda end: near, lambda end: right):
        source = parts.edge_features("edge_attr")
        assert isinstance(source, features.StoreFeatures)
        out = np.empty((len(ids), 2), np.float32)
        source.begin_gather(wanted, out, ends).finish()
        assert np.array_equal(out, whole.edge_features("edge_attr").gather(wanted))


@given(ids=ids_of, number=st.sampled_from([1, 2, 7, 9, 20, 40]), data=st.data())
def test_ids_are_shared_out_to_their_owners_in_order(
    ids: list[int], number: int, data: st.DataObject
) -> None:
    given = data.draw(st.lists(st.integers(0, number - 1), min_size=NODES, max_size=NODES))
    wanted = np.array(ids, np.int64)
    for book in (
        RangeBook.even(NODES, number),
        HashBook(NODES, number),
        ArrayBook(np.array(given, np.uint8), number),
    ):
        shares = dict(shared_out(book, wanted))
        owners = [part for part in range(number) if set(ids) & set(book.ids_of(part).tolist())]
        assert list(shares) == owners
        for part, positions in shares.items():
            expected = [at for at, id_ in enumerate(ids) if id_ in set(book.ids_of(part).tolist())]
            assert positions.tolist() == expected
