"""A graph that came back: the same one, or another."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from penstock.errors import ServerGone
from penstock.graph.schema import ArrayKey
from penstock.rpc.outline import check_same
from penstock.server.dist.outline import outline_of
from penstock.wire.messages import AbsentArray, Outline
from tests.client.graphs import small_graph, typed_graph

ADDRESS = "tcp://host:5555"


@pytest.fixture
def outline() -> Outline:
    with small_graph() as graph:
        return outline_of(graph)


def test_a_graph_is_the_same_as_itself(outline: Outline) -> None:
    check_same(outline, outline, ADDRESS)


def test_what_follows_from_a_graph_is_no_other_graph(outline: Outline) -> None:
    """Derived arrays are made when they are needed."""
    made = AbsentArray(ArrayKey("aid", ("", "", ""), "coo"), "int32", (2, 3200))
    check_same(outline, changed(outline, arrays=(*outline.arrays, made)), ADDRESS)


def test_a_version_that_is_not_known_is_no_other(outline: Outline) -> None:
    check_same(changed(outline, version=None), outline, ADDRESS)


@pytest.mark.parametrize("what", ["version", "types", "arrays"])
def test_another_graph_is_told_with_the_difference(outline: Outline, what: str) -> None:
    with typed_graph() as graph:
        typed = outline_of(graph)
    others = {
        "version": changed(outline, version="b"),
        "types": typed,
        "arrays": changed(outline, arrays=outline.arrays[:-1]),
    }
    with pytest.raises(ServerGone, match=rf"{ADDRESS} has come back with another graph .*{what}"):
        check_same(changed(outline, version="a"), others[what], ADDRESS)


def changed(outline: Outline, **fields: Any) -> Outline:
    return msgspec.structs.replace(outline, **fields)
