"""A graph in parts gives the same bytes as the whole, for every kind of sampling and every cut."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.client.backend import SharedDistSamplingBackend
from penstock.graph import Graph
from penstock.sampling.kinds import check
from penstock.store.graph import StoreGraph
from penstock.store.handles import open_parts
from tests.client.test_every_kind import (
    PLAIN,
    TIMES,
    TYPED,
    Case,
    hops,
    plain_graph,
    run,
    typed_graph,
)

pytestmark = pytest.mark.filterwarnings("ignore:Cannot convert to bidirectional:UserWarning")


def given(sizes: dict[str, int], parts: int) -> Any:
    """Parts without any order; one of them has nothing of some types."""
    rng = np.random.default_rng(5)
    found = {name: rng.integers(0, parts - 1, size) for name, size in sizes.items()}
    return found if any(sizes) else found[""]


CUTS: dict[str, dict[str, Any]] = {
    "2 ranges": {"n": 2, "method": "range", "edges": "both"},
    "7 by hash": {"n": 7, "method": "hash", "edges": "both"},
    "4 given": {"n": 4, "method": "given", "edges": "both"},
    "2 with the whole topology": {"n": 2, "method": "hash", "topology": "whole"},
}


def cut(graph: Graph, folder: Path, n: int, method: str, **options: Any) -> StoreGraph:
    sizes = {name: graph.num_nodes(name or None) for name in graph.node_types}
    wanted = given(sizes, n) if method == "given" else method
    return open_parts([str(path) for path in graph.partition(n, folder, wanted, **options)])


@pytest.fixture(scope="module", params=CUTS)
def plain(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Graph, StoreGraph]]:
    folder = tmp_path_factory.mktemp("plain") / "parts"
    with plain_graph() as graph, cut(graph, folder, **CUTS[request.param]) as parts:
        yield graph, parts


@pytest.fixture(scope="module", params=CUTS)
def typed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Graph, StoreGraph]]:
    folder = tmp_path_factory.mktemp("typed") / "parts"
    with typed_graph() as graph, cut(graph, folder, **CUTS[request.param]) as parts:
        yield graph, parts


def digests_of(graph: Graph, case: Case) -> list[tuple[int, int, str]]:
    with SharedDistSamplingBackend(graph, case.spec, num_workers=0) as inline:
        inline.init_backend()
        return run(inline, case)


@pytest.mark.parametrize("name", PLAIN)
def test_parts_give_the_batches_of_a_whole_graph_without_types(
    plain: tuple[Graph, StoreGraph], name: str
) -> None:
    """CONTRACT 65."""
    whole, parts = plain
    assert digests_of(parts, PLAIN[name]) == digests_of(whole, PLAIN[name])


@pytest.mark.parametrize("method", ["locality", "streaming"])
def test_parts_that_cut_few_edges_give_the_batches_of_the_whole(
    tmp_path: Path, method: str
) -> None:
    """CONTRACT 65."""
    with (
        plain_graph() as plain,
        typed_graph() as typed,
        cut(plain, tmp_path / "plain", 3, method) as parts,
        cut(typed, tmp_path / "typed", 3, method) as typed_parts,
    ):
        for name in ("uniform", "weighted"):
            assert digests_of(parts, PLAIN[name]) == digests_of(plain, PLAIN[name])
        name = next(iter(TYPED))
        assert digests_of(typed_parts, TYPED[name]) == digests_of(typed, TYPED[name])


CHOSEN = {
    "weighted": hops(direction="out", weight_attr="edge_weight"),
    "weighted, replaced": hops(direction="out", weight_attr="edge_weight", replace=True),
    "by time of edges": hops(direction="out", time_attr="edge_time", temporal_strategy="last"),
    "by time of nodes": hops(direction="out", time_attr="time"),
}


@pytest.mark.parametrize("name", CHOSEN)
def test_out_edges_are_chosen_by_attributes_that_lie_with_their_other_end(
    plain: tuple[Graph, StoreGraph], name: str
) -> None:
    """CONTRACT 65."""
    whole, parts = plain
    case = Case(CHOSEN[name], columns=TIMES if "time" in name else {})
    assert digests_of(parts, case) == digests_of(whole, case)


def test_a_direction_that_no_part_serves_is_refused_before_the_first_batch(tmp_path: Path) -> None:
    """CONTRACT 65."""
    with plain_graph() as graph, cut(graph, tmp_path / "parts", 2, "range") as parts:
        with pytest.raises(ValueError, match="cut by destination: no part has all out-edges"):
            check(hops(direction="out"), parts)


@pytest.mark.parametrize("name", TYPED)
def test_parts_give_the_batches_of_a_whole_graph_with_types(
    typed: tuple[Graph, StoreGraph], name: str
) -> None:
    """CONTRACT 65."""
    whole, parts = typed
    assert digests_of(parts, TYPED[name]) == digests_of(whole, TYPED[name])
