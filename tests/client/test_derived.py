"""What a spec needs of a graph is made by the rank that asks, once, and follows the hub's fate."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.client.backend import SharedDistSamplingBackend
from penstock.client.hub.hub_process import HubProcess
from penstock.client.hub.joined import connect
from penstock.graph import Graph
from penstock.graph.derived import OutEdges, WeightSums, keys_of
from penstock.graph.schema import EDGE, ArrayKey
from penstock.sampling.kinds import needs_of, prepare
from penstock.sampling.spec import LinkSpec, NeighborSpec, Spec
from tests.client.graphs import PATIENCE_S, backend_of, digests, hub_of, kill_hub, rest
from tests.processes import strike

pytestmark = pytest.mark.usefixtures("no_leaks")

NODES, INPUTS, BATCH = 200, 60, 2
Digests = list[tuple[int, int, str]]


def web() -> Graph:
    """The same each time, with nothing made of it yet."""
    rng = np.random.default_rng(2)
    return Graph.from_coo(
        rng.integers(0, NODES, (2, 6 * NODES)),
        NODES,
        x=rng.random((NODES, 3), np.float32),
        edge_weight=rng.random(6 * NODES),
        edge_time=rng.integers(0, 100, 6 * NODES),
    )


@dataclass(frozen=True)
class Case:
    spec: Spec
    links: bool = False
    timed: bool = False

    def register(self, backend: SharedDistSamplingBackend) -> None:
        ids = np.arange(INPUTS) * 3 % NODES
        backend.register_input(
            "a",
            np.stack([ids, ids[::-1]]) if self.links else ids,
            columns={"time": np.arange(INPUTS) + 40} if self.timed else None,
            batch_size=BATCH,
            shuffle=True,
            seed=5,
        )
        backend.start_new_epoch_sampling("a", 0)


CASES = {
    "out": Case(NeighborSpec(num_neighbors=(4, 3), direction="out")),
    "weighted": Case(NeighborSpec(num_neighbors=(4, 3), weight_attr="edge_weight")),
    "out, weighted": Case(
        NeighborSpec(num_neighbors=(4, 3), direction="out", weight_attr="edge_weight")
    ),
    "by time": Case(NeighborSpec(num_neighbors=(4, 3), time_attr="edge_time"), timed=True),
    "strict links": Case(
        LinkSpec(neighbors=NeighborSpec(num_neighbors=(3,)), negatives="binary", strict=True),
        links=True,
    ),
}
BOTH = CASES["out, weighted"]
cases = pytest.mark.parametrize("name", CASES)


@cache
def expected(name: str) -> Digests:
    """What must come, made in this process of a graph of its own."""
    case = CASES[name]
    with web() as graph, backend_of(graph, case.spec, num_workers=0) as backend:
        before = set(graph.arrays)
        case.register(backend)
        found = digests(rest(backend, "a"))
        assert set(graph.arrays) == before > set(keys_of(needs_of(case.spec, graph)))
    assert len(found) == INPUTS // BATCH
    return found


def sampled(
    backend: SharedDistSamplingBackend, case: Case, meanwhile: Callable[[], bool] = lambda: True
) -> Digests:
    """An epoch; something happens after its first batch, long before the last one is made."""
    case.register(backend)
    first = backend.next_batch("a", PATIENCE_S)
    assert first is not None
    assert meanwhile()
    return digests([first, *rest(backend, "a")])


def derived_at(hub: HubProcess) -> set[ArrayKey]:
    """The keys of what the hub has beyond what every graph has."""
    with connect(hub.address) as joined:
        return {key for key in joined.graph.arrays if key.group in ("aid", "csr")}


# --- wherever the graph comes from ---------------------------------------------------------------


@cases
def test_a_graph_in_memory_is_sampled_on_by_the_hub_that_replaces_one(name: str) -> None:
    """CONTRACT 22, 60: the new one is told what was made for the old one."""
    with web() as graph, backend_of(graph, CASES[name].spec, num_workers=1) as backend:
        assert sampled(backend, CASES[name], lambda: kill_hub(backend)) == expected(name)
        assert derived_at(hub_of(backend)) == set(keys_of(needs_of(CASES[name].spec, graph)))


@pytest.mark.parametrize("saved", [False, True])
def test_a_graph_on_disk_is_sampled_with_what_was_saved_or_is_made(
    saved: bool, tmp_path: Path
) -> None:
    """CONTRACT 60: kept with the graph on disk when asked; else it is made in memory."""
    with web() as graph:
        if saved:
            prepare(BOTH.spec, graph)
        graph.save(tmp_path / "graph")
    with Graph.open(tmp_path / "graph") as graph:
        before = set(graph.arrays)
        with backend_of(graph, BOTH.spec, num_workers=1) as backend:
            found = sampled(backend, BOTH, lambda: kill_hub(backend))
            assert found == expected("out, weighted")
        assert (set(graph.arrays) == before) is saved
        assert len(graph.descriptors) == (0 if saved else 2)


@cases
def test_a_rank_that_joins_brings_what_it_needs(name: str, joined_to: HubProcess) -> None:
    """CONTRACT 60: one hub, whose graph gains what each spec needs."""
    with connect(joined_to.address) as hub, backend_of(hub, CASES[name].spec) as backend:
        assert sampled(backend, CASES[name]) == expected(name)
        assert derived_at(joined_to) >= set(keys_of(needs_of(CASES[name].spec, hub.graph)))
    assert not [key for key in joined_to.graph.arrays if key.group in ("aid", "csr")]


@pytest.fixture(scope="module")
def joined_to() -> Any:
    with web() as graph, HubProcess(graph, 1) as hub:
        with backend_of(hub, NeighborSpec(num_neighbors=(1,))):  # its worker is there
            yield hub


# --- who makes it, and what is sent --------------------------------------------------------------


def test_two_ranks_that_need_the_same_at_once_are_both_served_and_one_copy_is_kept() -> None:
    """CONTRACT 60."""
    with web() as graph, HubProcess(graph, 1) as hub:
        start = threading.Barrier(2)

        def run(_: int) -> Digests:
            with connect(hub.address) as joined:
                start.wait(PATIENCE_S)
                with backend_of(joined, BOTH.spec) as backend:
                    return sampled(backend, BOTH)

        with ThreadPoolExecutor(2) as ranks:
            assert list(ranks.map(run, range(2))) == [expected("out, weighted")] * 2
        with connect(hub.address) as joined:
            # The graph's own segment, that of the out-edges and that of the sums.
            assert len(joined.graph.handle().segments) == 3
            joined.graph.validate()


def test_only_what_a_spec_needs_is_sent() -> None:
    with web() as graph, HubProcess(graph, 1) as hub:
        graph.coo()
        graph.sorted_rows()
        with backend_of(hub, CASES["weighted"].spec) as backend:
            assert derived_at(hub) == set(WeightSums(EDGE, "edge_weight").keys)
            assert sampled(backend, CASES["weighted"]) == expected("weighted")


def test_a_rank_adds_to_what_another_brought_and_brings_all_of_it_to_the_next_hub() -> None:
    """CONTRACT 22: neither its founder nor the rank that made the out-edges has to be there."""
    sums = WeightSums(EDGE, "edge_weight", "out").keys
    with web() as graph, HubProcess(graph, 1) as hub:
        with connect(hub.address) as maker, backend_of(maker, CASES["out"].spec):
            joined = connect(hub.address)
        with joined, backend_of(joined, BOTH.spec) as backend:
            assert derived_at(hub) == {*OutEdges(EDGE).keys, *sums}
            assert sampled(backend, BOTH, lambda: strike(hub.pid)) == expected("out, weighted")
            assert derived_at(hub) == {*OutEdges(EDGE).keys, *sums}


# --- what cannot be made -------------------------------------------------------------------------


def wrong() -> Graph:
    """One negative weight among many, and times that are no integers."""
    weights = np.ones(300)
    weights[123] = -0.5
    edges = np.arange(600).reshape(2, 300) % 50
    return Graph.from_coo(edges, edge_attrs={"w": weights, "t": np.arange(300) / 7})


NEGATIVE = r"edge attribute 'w': weights\[123\], of edge 123, is -0\.5; expected a finite number"


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_backend_whose_derived_array_cannot_be_made_says_why_and_starts_nothing(
    num_workers: int,
) -> None:
    spec = NeighborSpec(num_neighbors=(2,), weight_attr="w")
    with wrong() as graph:
        backend = SharedDistSamplingBackend(graph, spec, num_workers=num_workers)
        for _ in range(2):  # it may be tried again
            with pytest.raises(ValueError, match=NEGATIVE):
                backend.init_backend()
        assert num_workers == 0 or hub_of(backend).pid is None
        assert not [key for key in graph.arrays if key.group == "aid"]
        backend.shutdown()


def test_a_hub_does_not_notice_an_derived_array_that_could_not_be_made() -> None:
    with wrong() as graph, HubProcess(graph, 1) as hub, connect(hub.address) as joined:
        with (
            pytest.raises(ValueError, match=NEGATIVE),
            backend_of(joined, NeighborSpec(num_neighbors=(2,), direction="out", weight_attr="w")),
        ):
            pass
        assert derived_at(hub) == set()
        with backend_of(joined, NeighborSpec(num_neighbors=(2,), direction="out")) as backend:
            backend.register_input("a", np.arange(8), batch_size=4)
            backend.start_new_epoch_sampling("a", 0)
            assert len(list(rest(backend, "a"))) == 2


def test_times_that_are_no_integers_are_refused_when_the_backend_is_made() -> None:
    with wrong() as graph:
        with pytest.raises(ValueError, match=r"'t' is float64 .*expected int64 or int32"):
            SharedDistSamplingBackend(graph, NeighborSpec(num_neighbors=(2,), time_attr="t"))


# --- edges as inputs -----------------------------------------------------------------------------


def test_all_edges_are_handed_on_as_they_lie_in_the_graph() -> None:
    """CONTRACT 60: the list of edges is made once, and not copied for a channel."""
    spec = LinkSpec(neighbors=NeighborSpec(num_neighbors=(2,)))
    with web() as graph, backend_of(graph, spec, num_workers=0) as backend:
        backend.register_input("a", None, batch_size=600)
        backend.register_input("b", None, batch_size=600)
        inputs = [backend._channels[name].registration.inputs for name in ("a", "b")]
        assert inputs[0].ids is inputs[1].ids
        assert not inputs[0].copied
        backend.start_new_epoch_sampling("a", 0)
        batches = list(rest(backend, "a"))
        pairs = [batch["n_id"][batch["edge_label_index"]] for batch in batches]
        assert (np.concatenate(pairs, axis=1) == graph.edge_index()).all()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (np.ones((2, 4), np.bool_), "sampler_input has dtype bool; expected the ends of edges"),
        (np.ones((2, 4)), r"sampler_input\[0\] has dtype float64; expected integers"),
        ([[0, 1], [2, NODES]], rf"sampler_input\[1\]\[1\] is {NODES}; expected 0 <= id < {NODES}"),
        ([[0, -1], [2, 3]], rf"sampler_input\[0\]\[1\] is -1; expected 0 <= id < {NODES}"),
        ([[0, 1, 2]], r"sampler_input has shape \[1, 3\]; expected edges, \[2, n\]"),
        (("a", "to", "b"), r"names edge type \('a', 'to', 'b'\); this graph has no types"),
    ],
)
def test_edges_that_are_none_are_named(given: Any, message: str) -> None:
    spec = LinkSpec(neighbors=NeighborSpec(num_neighbors=(2,)))
    with web() as graph, backend_of(graph, spec, num_workers=0) as backend:
        with pytest.raises(ValueError, match=message):
            backend.register_input("a", given, batch_size=2)


def test_edges_may_be_given_as_tuples() -> None:
    spec = LinkSpec(neighbors=NeighborSpec(num_neighbors=(2,)))
    with web() as graph, backend_of(graph, spec, num_workers=0) as backend:
        backend.register_input("a", ((0, 1, 2), (5, 6, 7)), batch_size=3)
        backend.start_new_epoch_sampling("a", 0)
        (batch,) = rest(backend, "a")
        assert batch["n_id"][batch["edge_label_index"]].tolist() == [[0, 1, 2], [5, 6, 7]]
