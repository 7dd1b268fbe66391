"""What matters most to seeds of any graph, against the exact scores and against plain reach."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.graph import EdgeType
from penstock.graph.schema import EDGE
from penstock.sampling.names import qualified, type_name
from penstock.sampling.spec import PPRSpec
from tests.sampling import invariants as inv
from tests.sampling.graphs import Array
from tests.sampling.worlds import SOME, Inputs, World, batch, hub, seeds_in, worlds


def exact_scores(world: World, spec: PPRSpec, kinds: Iterable[EdgeType]) -> dict[Any, Array]:
    """The scores of all nodes for every seed, by (type, node): the sum of the series itself."""
    numbers = dict(zip(world.sizes, _starts(world), strict=True))
    total = sum(world.sizes.values())
    leads = np.zeros((total, total))
    for kind in kinds:
        above, below = world.ends(kind, spec.direction)
        for a, b in world.directed(kind, spec.direction).T.tolist():
            leads[numbers[below] + b, numbers[above] + a] += 1
    degrees = leads.sum(axis=1, keepdims=True)
    steps = np.divide(leads, degrees, out=np.zeros_like(leads), where=degrees > 0)
    scores = spec.alpha * np.linalg.inv(np.eye(total) - (1 - spec.alpha) * steps)
    return {
        (name, node): scores[numbers[name] + node]
        for name, size in world.sizes.items()
        for node in range(size)
    }


def _starts(world: World) -> list[int]:
    sizes = list(world.sizes.values())
    return [sum(sizes[:number]) for number in range(len(sizes))]


@SOME
@given(
    st.data(),
    worlds(),
    st.sampled_from([0, 1, 3, 50]),
    st.sampled_from([0.15, 0.5, 1.0]),
    st.sampled_from(["in", "out"]),
)
def test_the_nodes_that_matter_most_are_those_of_the_exact_scores(
    data: st.DataObject, world: World, most: int, alpha: float, direction: Any
) -> None:
    """CONTRACT 48: at most so many of a type for each seed, best first, with their scores."""
    inputs = data.draw(seeds_in(world))
    spec = PPRSpec(
        alpha=alpha,
        eps=1e-8,
        max_ppr_nodes=most,
        direction=direction,
        residual_topup=data.draw(st.booleans()),
    )
    facts, arrays = batch(world, spec, inputs)
    links = {
        name: (inputs.node_type, "ppr", name) if world.is_hetero else EDGE for name in world.sizes
    }
    own = {qualified(inputs.node_type, "input_id")}
    own |= {qualified(k, w) for k in links.values() for w in ("edge_index", "edge_attr")}
    assert set(arrays) == inv.names_of(world, with_edges=False) | own
    inv.check_nodes(world, arrays)
    inv.check_inputs(world, inputs, facts, arrays)
    exact = exact_scores(world, spec, world.edges)
    for (name, link), start in zip(links.items(), _starts(world), strict=True):
        index, attr = (arrays[qualified(link, word)] for word in ("edge_index", "edge_attr"))
        nodes = arrays[qualified(name, "n_id")]
        assert (attr.shape, attr.dtype) == ((index.shape[1], 2), np.float32)
        assert np.all(np.diff(index[0]) >= 0)
        assert set(index[0].tolist()) <= set(range(inputs.count))
        for place, seed in enumerate(inputs.ids.tolist()):
            found = nodes[index[1, index[0] == place]]
            scores = attr[index[0] == place, 0]
            true = exact[inputs.node_type, seed][start : start + world.sizes[name]]
            _check_ranking(found, scores, true, most)


def _check_ranking(found: Array, scores: Array, exact: Array, most: int) -> None:
    assert len(found) <= most
    assert len(set(found.tolist())) == len(found)
    assert np.all(np.diff(scores) <= 0)
    np.testing.assert_allclose(scores, exact[found], atol=2e-6, rtol=1e-6)
    missing = np.delete(exact, found)
    assert len(found) == most or not np.any(missing > 2e-6)
    assert len(found) == 0 or not np.any(missing > scores.min() + 2e-6)


@SOME
@given(st.data(), worlds(), st.integers(1, 4), st.integers(1, 3))
def test_every_seed_has_its_places_whatever_is_looked_at(
    data: st.DataObject, world: World, most: int, looked_at: int
) -> None:
    """CONTRACT 48: the seed itself first among equals; no more nodes of a type than asked for."""
    inputs = data.draw(seeds_in(world))
    spec = PPRSpec(
        eps=data.draw(st.sampled_from([1e-4, 0.1, 10.0])),
        max_ppr_nodes=most,
        num_neighbors_per_hop=looked_at,
        max_fetch_iterations=data.draw(st.sampled_from([None, 0, 1, 2])),
        residual_topup=data.draw(st.booleans()),
    )
    facts, arrays = batch(world, spec, inputs)
    inv.check_nodes(world, arrays)
    inv.check_inputs(world, inputs, facts, arrays)
    of = inputs.node_type
    for name in world.sizes:
        link = (of, "ppr", name) if world.is_hetero else EDGE
        index, attr = (arrays[qualified(link, word)] for word in ("edge_index", "edge_attr"))
        nodes = arrays[qualified(name, "n_id")]
        assert np.all((attr[:, 0] > 0) & (attr[:, 0] <= 1))
        assert set(np.round(1 / attr[:, 1]).tolist()) <= set(range(1, 30))
        counts = np.bincount(index[0], minlength=inputs.count)
        assert np.all(counts <= most)
        told = facts["num_sampled_edges"]
        assert (told[type_name(link)] if world.is_hetero else told) == [index.shape[1]]
        for place, seed in enumerate(inputs.ids.tolist() if name == of else []):
            own = attr[(index[0] == place) & (nodes[index[1]] == seed)]
            assert len(own) == 1
            assert own[0, 1] == 1.0


@SOME
@given(st.data(), worlds(hetero=True))
def test_channels_follow_their_edge_types_and_say_who_found_what(
    data: st.DataObject, world: World
) -> None:
    """CONTRACT 48: typed channels, and the edges that were looked at."""
    inputs = data.draw(seeds_in(world))
    kinds = st.lists(st.sampled_from(list(world.edges)), min_size=1, max_size=3, unique=True)
    channels = (("near", tuple(data.draw(kinds)), 0.25), ("far", tuple(data.draw(kinds)), 0.75))
    most = data.draw(st.integers(1, 6))
    spec = PPRSpec(eps=1e-6, max_ppr_nodes=most, channels=channels, include_sampled_edges=True)
    facts, arrays = batch(world, spec, inputs)
    inv.check_nodes(world, arrays)
    inv.check_inputs(world, inputs, facts, arrays)
    check_looked_at(world, arrays, {kind for _, followed, _ in channels for kind in followed})
    exact = [exact_scores(world, spec, followed) for _, followed, _ in channels]
    for name, start in zip(world.sizes, _starts(world), strict=True):
        link = (inputs.node_type, "ppr", name)
        index, attr = (arrays[qualified(link, word)] for word in ("edge_index", "edge_attr"))
        nodes = arrays[qualified(name, "n_id")]
        assert attr.shape == (index.shape[1], 8)
        assert np.all(np.bincount(index[0], minlength=inputs.count) <= most)
        flags = attr[:, [4, 7]]
        assert np.all((flags == 0) | (flags == 1))
        assert np.all(flags.sum(axis=1) >= 1)
        np.testing.assert_array_equal(attr[:, 0], attr[:, [2, 5]].max(axis=1))
        np.testing.assert_array_equal(attr[:, 1], attr[:, [3, 6]].max(axis=1))
        for channel, scores in enumerate(exact):
            listed = flags[:, channel] == 1
            seeds = inputs.ids[index[0, listed]]
            true = [
                scores[inputs.node_type, int(seed)][start + node]
                for seed, node in zip(seeds, nodes[index[1, listed]], strict=True)
            ]
            np.testing.assert_allclose(attr[listed, 2 + 3 * channel], true, atol=1e-4)
            assert not attr[~listed, 2 + 3 * channel : 5 + 3 * channel].any()


def check_looked_at(world: World, arrays: dict[str, Array], followed: set[EdgeType]) -> None:
    """Edges of the graph, each once, of the types that were followed, between first places."""
    inv.check_edges(world, arrays, "in")
    for kind in world.edges:
        ids = arrays[qualified(kind, "e_id")].tolist()
        assert len(set(ids)) == len(ids)
        assert kind in followed or not ids
        for local, name in zip(
            arrays[qualified(kind, "edge_index")], (kind[0], kind[2]), strict=True
        ):
            nodes = arrays[qualified(name, "n_id")].tolist()
            assert all(nodes.index(nodes[place]) == place for place in local)


@pytest.mark.parametrize("looked_at", [1, 5, 50, 400])
def test_a_node_with_many_neighbours_is_looked_at_as_far_as_told(looked_at: int) -> None:
    """CONTRACT 48: `num_neighbors_per_hop` of them, chosen at random."""
    spec = PPRSpec(eps=1e-9, max_ppr_nodes=1000, num_neighbors_per_hop=looked_at)
    _, arrays = batch(hub(400), spec, Inputs(np.zeros(1, np.int64)))
    assert len(arrays["n_id"]) == 1 + looked_at
