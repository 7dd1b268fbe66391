"""The station: whoever makes a batch, wherever, after whatever, it is the same."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import SamplingError
from penstock.graph import Graph
from penstock.sampling.buffer import SlotTooSmall
from penstock.sampling.digest import batch_digest
from penstock.sampling.inputs import ChannelInputs, request_of
from penstock.sampling.spec import CustomSpec, Feed, NeighborSpec, Spec
from penstock.wire.frames import private_memory, read
from penstock.workers.batch_maker import LARGEST_SLOT, BatchMaker, slot_bytes_for
from tests.sampling.graphs import library, made, maker_for, web

SPEC = NeighborSpec(num_neighbors=(5, 3))
FEED = Feed(num_inputs=200, batch_size=32, shuffle=True, seed=5)

COUNTING = """
import numpy as np

class Counting:
    made = 0
    def __init__(self, graph):
        self.graph = graph
    def sample(self, seeds, *, seed, epoch, index):
        Counting.made += 1
        seeds += 1  # whatever the user does to its arguments
        return {"n_id": seeds - 1, "big": np.full(1000, Counting.made)}
"""


@pytest.fixture(scope="module")
def graph() -> Graph:
    return web()


def digest_in(maker: BatchMaker, epoch: int, index: int, room: int) -> str:
    return batch_digest(made(maker, epoch, index, room)[1])


# --- the same batch ------------------------------------------------------------------------------


@given(room=st.integers(0, 1 << 17), index=st.integers(0, 6))
def test_a_batch_has_the_same_bytes_in_any_memory(room: int, index: int) -> None:
    """CONTRACT 5: byte-identical, however much memory there is."""
    graph = web()
    whole = digest_in(maker_for(graph, SPEC, FEED), 1, index, 1 << 20)
    assert digest_in(maker_for(graph, SPEC, FEED), 1, index, room) == whole


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 6), st.integers(0, 1 << 16))))
def test_a_batch_has_the_same_bytes_after_any_others(others: list[tuple[int, int, int]]) -> None:
    """CONTRACT 5: what a process has made before leaves no trace."""
    graph = web()
    used = maker_for(graph, SPEC, FEED)
    for epoch, index, room in others:
        made(used, epoch, index, room)
    assert digest_in(used, 2, 4, 30_000) == digest_in(maker_for(graph, SPEC, FEED), 2, 4, 1 << 20)


def test_a_heterogeneous_batch_has_the_same_bytes_in_any_memory() -> None:
    """CONTRACT 5: byte-identical, of every type."""
    graph = library()
    spec = NeighborSpec(num_neighbors=(3, 3))
    feed = Feed(num_inputs=60, batch_size=16, node_type="paper")
    digests = {
        digest_in(maker_for(graph, spec, feed), 0, 1, room)
        for room in (0, 100, 5_000, 10_000, 20_000, 1 << 20)
    }
    assert len(digests) == 1


def test_a_supplemented_graph_gives_what_one_that_made_it_itself_gives() -> None:
    """CONTRACT 5: out-edges made elsewhere are the same."""
    graph = web()
    spec = NeighborSpec(num_neighbors=(3,), direction="out")
    plain = Graph(graph.schema, graph.arrays)
    graph.csr()
    maker = BatchMaker(plain)
    maker.supplement({key: held for key, held in graph.arrays.items() if key.group == "csr"})
    assert maker.graph.arrays.keys() == graph.arrays.keys()
    maker.open_backend(1, spec)
    maker.open_channel(1, 1, FEED)
    assert digest_in(maker, 0, 0, 1 << 20) == digest_in(maker_for(graph, spec, FEED), 0, 0, 1 << 20)


# --- memory --------------------------------------------------------------------------------------


def test_a_batch_that_does_not_fit_says_how_much_it_needs_and_then_fits(graph: Graph) -> None:
    """CONTRACT 21: what is needed is told, and is enough."""
    maker = maker_for(graph, SPEC, FEED)
    with pytest.raises(SlotTooSmall) as caught:
        maker.sample(1, 0, 0, private_memory(1000))
    memory = private_memory(caught.value.needed)
    assert maker.sample(1, 0, 0, memory).nbytes <= memory.nbytes


def test_memory_for_the_largest_batch_is_never_too_small(graph: Graph) -> None:
    maker = maker_for(graph, SPEC, FEED)
    memory = private_memory(slot_bytes_for(SPEC, graph, FEED))
    for index in range(7):
        maker.sample(1, 0, index, memory)


def test_nothing_is_written_outside_the_memory(graph: Graph) -> None:
    """CONTRACT 21: writing past a slot is impossible."""
    fenced = private_memory(60_000)
    fenced.fill(0x5A)
    written = maker_for(graph, SPEC, FEED).sample(1, 0, 0, fenced[4096:-4096])
    assert written.nbytes <= 60_000 - 2 * 4096
    assert np.all(fenced[:4096] == 0x5A)
    assert np.all(fenced[-4096:] == 0x5A)


def test_a_slot_is_generous_but_not_endless() -> None:
    graph = Graph.from_coo([[0], [1]], 10**6, x=np.zeros((10**6, 600), np.float16))
    feed = Feed(num_inputs=10**6, batch_size=1024)
    assert slot_bytes_for(NeighborSpec(num_neighbors=(-1,)), graph, feed) < 4 << 20
    assert slot_bytes_for(NeighborSpec(num_neighbors=(10**6,)), graph, feed) == LARGEST_SLOT


def test_memory_may_be_bound_by_a_small_epoch(graph: Graph) -> None:
    few = Feed(num_inputs=2, batch_size=10**9)
    assert slot_bytes_for(SPEC, graph, few) < slot_bytes_for(SPEC, graph, FEED)


# --- inputs --------------------------------------------------------------------------------------


def test_seeds_are_the_batchs_inputs(graph: Graph) -> None:
    ids = np.arange(199, -1, -1)
    maker = maker_for(graph, SPEC, FEED, ids)
    _, arrays = made(maker, 3, 2, 1 << 20)
    seeds = maker.seeds(1, 3, 2)
    assert seeds.tolist() == ids[arrays["input_id"]].tolist()
    assert arrays["n_id"][: len(seeds)].tolist() == seeds.tolist()


def test_given_seeds_stand_in_for_inputs_that_are_gone(graph: Graph) -> None:
    ids = np.arange(199, -1, -1)
    whole = maker_for(graph, SPEC, FEED, ids)
    memory = private_memory(1 << 20)
    maker = maker_for(graph, SPEC, FEED)
    request = request_of(FEED, ChannelInputs(ids), 3, 2)
    written = maker.make(1, request, memory)
    assert batch_digest(read(memory, written.layouts)) == digest_in(whole, 3, 2, 1 << 20)


def test_an_input_that_is_no_node_is_told_by_its_place(graph: Graph) -> None:
    maker = maker_for(graph, SPEC, Feed(num_inputs=2, batch_size=2), np.array([0, 200]))
    with pytest.raises(ValueError, match=r"seeds\[0\]\[1\] is 200; expected 0 <= id < 200"):
        made(maker, 0, 0, 1 << 20)


def test_what_was_closed_is_not_open(graph: Graph) -> None:
    maker = maker_for(graph, SPEC, FEED)
    maker.close_backend(1)
    with pytest.raises(ValueError, match="backend 1 is not open here"):
        made(maker, 0, 0, 1 << 20)
    maker.close_channel(1)
    with pytest.raises(ValueError, match="channel 1 is not open here"):
        made(maker, 0, 0, 1 << 20)


@pytest.mark.parametrize("spec", [NeighborSpec(num_neighbors=(-2,)), NeighborSpec(by_type=())])
def test_a_spec_that_makes_no_sense_is_refused_when_it_is_opened(spec: Spec, graph: Graph) -> None:
    """CONTRACT 61: refused when the backend is made."""
    with pytest.raises(ValueError, match="num_neighbors"):
        BatchMaker(graph).open_backend(1, spec)


# --- users' samplers -----------------------------------------------------------------------------


@pytest.fixture
def counting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CustomSpec:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "counting.py").write_text(COUNTING)
    return CustomSpec(sampler=f"{tmp_path}/counting.py:Counting")


def test_a_users_batch_goes_with_its_inputs(graph: Graph, counting: CustomSpec) -> None:
    maker = maker_for(graph, counting, FEED)
    written, arrays = made(maker, 0, 0, 1 << 20)
    assert list(arrays) == ["input_id", "n_id", "big"]
    assert arrays["n_id"].tolist() == arrays["input_id"].tolist()
    assert written.facts == {"batch_size": 32}


def test_a_users_batch_that_does_not_fit_is_not_sampled_again(
    graph: Graph, counting: CustomSpec
) -> None:
    """CONTRACT 21: what took long to make is kept until there is room."""
    maker = maker_for(graph, counting, FEED)
    assert made(maker, 0, 0, 100)[1]["big"][0] == 1
    assert made(maker, 0, 0, 1 << 20)[1]["big"][0] == 2


def test_a_sampler_that_cannot_be_loaded_fails_its_batches_and_no_others(graph: Graph) -> None:
    """CONTRACT 20: fails that batch only."""
    maker = maker_for(graph, SPEC, FEED)
    maker.open_backend(2, CustomSpec(sampler="no_such_module_anywhere:Echo"))
    maker.open_channel(2, 2, FEED)
    with pytest.raises(SamplingError, match="No module named 'no_such_module_anywhere'"):
        maker.sample(2, 0, 0, private_memory(1 << 20))
    maker.sample(1, 0, 0, private_memory(1 << 20))


def test_stages_are_told_in_their_order(graph: Graph) -> None:
    stages: list[str] = []
    maker = BatchMaker(graph, reached=stages.append)
    maker.open_backend(1, SPEC)
    maker.open_channel(1, 1, FEED)
    made(maker, 0, 0, 1 << 20)
    assert stages == ["sampling", "writing"]
