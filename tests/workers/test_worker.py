"""A worker: samples what it is told to, and answers in order."""

from __future__ import annotations

import os

import numpy as np
import psutil
import pytest

from penstock.graph import Graph, SharedArray
from penstock.graph.segment import KIND_VARIABLE
from penstock.graph.sharing import descriptors_of, handle_of
from penstock.sampling.digest import batch_digest
from penstock.sampling.spec import Feed, NeighborSpec
from penstock.wire.frames import read
from penstock.wire.messages import Begun, CloseBackend, CloseChannel, Done, Supplement
from penstock.workers.arena import Arena
from tests.graph.shared_children import open_descriptors
from tests.sampling.graphs import library, made, maker_for, web
from tests.workers.benches import FEED, SPEC, bench, with_ids

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.fixture(scope="module")
def graph() -> Graph:
    return web()


# --- batches -------------------------------------------------------------------------------------


def test_a_worker_makes_the_batch_that_anybody_makes(graph: Graph) -> None:
    """CONTRACT 5: in a process of its own or inline, the same bytes."""
    with bench(graph) as worker:
        worker.open(SPEC, FEED)
        for index in (3, 0, 6):
            worker.ask(index, epoch=2)
            done = worker.done()
            inline = made(maker_for(graph, SPEC, FEED), 2, index, 1 << 20)
            assert worker.digest(done) == batch_digest(inline[1])
            assert done.facts == inline[0].facts
            assert done.nbytes == inline[0].nbytes
            assert done.cost > 0


def test_heterogeneous_batches_and_listed_inputs_come_as_well() -> None:
    """CONTRACT 5: in a process of its own or inline, the same bytes."""
    graph, ids = library(), np.arange(59, 0, -2)
    feed = Feed(num_inputs=30, batch_size=8, node_type="paper")
    with SharedArray.from_array(ids) as shared, bench(graph) as worker:
        worker.open(SPEC, with_ids(feed, shared), ids=shared)
        worker.ask(1)
        digest = worker.digest(worker.done())
    assert digest == batch_digest(made(maker_for(graph, SPEC, feed, ids), 0, 1, 1 << 20)[1])


def test_begun_is_said_before_anything_is_touched(graph: Graph) -> None:
    """CONTRACT 19: an attempt is recorded before it begins."""
    faults = [{"stage": "sampling", "action": "signal:SIGKILL"}]
    with bench(graph, faults=faults) as worker:
        worker.open(SPEC, FEED)
        batch = worker.ask(0)
        assert worker.last_words() == [Begun(batch=batch)]
        assert not worker.arenas[1].memory(0).any()


def test_answers_come_in_the_order_of_the_questions(graph: Graph) -> None:
    with bench(graph) as worker:
        worker.open(SPEC, FEED)
        asked = [worker.ask(index, slot=index % 2) for index in range(7)]
        assert [worker.done().batch for _ in asked] == asked


def test_a_batch_that_comes_again_is_begun_again(graph: Graph) -> None:
    """CONTRACT 19: every attempt is recorded before it begins, whatever was said with others."""
    with bench(graph) as worker:
        worker.open(SPEC, FEED)
        first, second = worker.ask(0), worker.ask(1, slot=1)
        assert [worker.done().batch for _ in range(2)] == [first, second]
        for batch in (worker.ask(1), worker.ask(1), worker.ask(0)):
            assert worker.done().batch == batch


def test_each_batch_lies_in_its_slot(graph: Graph) -> None:
    with bench(graph) as worker:
        worker.open(SPEC, FEED, slots=3)
        worker.ask(0, slot=2)
        first = worker.done()
        before = worker.digest(first, slot=2)
        worker.ask(1, slot=0)
        worker.done()
        assert worker.digest(first, slot=2) == before
        assert not worker.arenas[1].memory(1).any()


def test_out_edges_can_be_supplemented(graph: Graph) -> None:
    whole = web()
    whole.csr()
    news = {key: held for key, held in whole.arrays.items() if key.group == "csr"}
    spec = NeighborSpec(num_neighbors=(4,), direction="out")
    with bench(graph) as worker:
        handle = handle_of(whole.schema, news, None)
        worker.say(Supplement(graph=handle), descriptors_of(news))
        worker.open(spec, FEED)
        worker.ask(0)
        digest = worker.digest(worker.done())
    assert digest == batch_digest(made(maker_for(whole, spec, FEED), 0, 0, 1 << 20)[1])


# --- giants --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["memfd", "named"])
def test_a_batch_larger_than_its_slot_gets_memory_of_its_own(graph: Graph, kind: str) -> None:
    """CONTRACT 21: a one-off, which goes when its reader lets it go."""
    expected = batch_digest(made(maker_for(graph, SPEC, FEED), 0, 0, 1 << 20)[1])
    with bench(graph, environment={KIND_VARIABLE: kind}) as worker:
        worker.open(SPEC, FEED, slot_bytes=4096, kind=kind)
        for _ in range(2):
            worker.ask(0)
            worker.next(Begun)
            done, (fd,) = worker.hear()
            assert isinstance(done, Done)
            assert done.one_off is not None
            assert ("memfd:" in os.readlink(f"/proc/self/fd/{fd}")) == (kind == "memfd")
            with Arena.attach_one_off(done.one_off, fd) as arena:
                assert batch_digest(read(arena.memory(0), done.layouts)) == expected
        worker.say(CloseChannel(channel=1))
        assert worker.retire() == 0


def test_a_batch_past_the_limit_is_an_error_that_names_the_size_and_the_setting(
    graph: Graph,
) -> None:
    """CONTRACT 21: a clear error, for that batch alone."""
    with bench(graph) as worker:
        worker.open(SPEC, FEED, slot_bytes=4096, most_bytes=8192)
        worker.ask(0)
        report = worker.failed().report
        assert report.kind == "BatchTooLarge"
        needed = int(report.message.split()[3])
        assert needed > 8192
        assert "at most 8192 are allowed: raise max_batch_bytes" in report.message
        worker.open(SPEC, FEED, number=2)
        worker.ask(0, channel=2)
        worker.done()


# --- what cannot be ------------------------------------------------------------------------------


def test_a_backend_that_cannot_be_opened_fails_its_batches_and_no_others(graph: Graph) -> None:
    """CONTRACT 20: fails that batch only; the worker lives."""
    with bench(graph) as worker:
        worker.open(NeighborSpec(num_neighbors=(-7,)), FEED, number=1)
        worker.open(SPEC, FEED, number=2)
        worker.ask(0, channel=1)
        worker.ask(0, channel=2)
        assert "num_neighbors[0] is -7" in worker.failed().report.message
        worker.done()


def test_a_channel_that_cannot_be_opened_fails_its_batches_and_no_others(graph: Graph) -> None:
    """CONTRACT 20: fails that batch only; the worker lives."""
    with bench(graph) as worker:
        worker.open(SPEC, Feed(num_inputs=201, batch_size=1), number=1)
        worker.open(SPEC, FEED, number=2)
        worker.ask(0, channel=1)
        worker.ask(0, channel=2)
        report = worker.failed().report
        assert (report.kind, report.message) == (
            "SamplingError",
            "num_inputs is 201; there are 200 nodes",
        )
        worker.done()


def test_an_input_that_is_no_node_fails_its_batch_alone(graph: Graph) -> None:
    """CONTRACT 20: fails that batch only; the worker lives."""
    with SharedArray.from_array(np.array([0, 999, 1])) as ids, bench(graph) as worker:
        worker.open(SPEC, with_ids(Feed(num_inputs=3, batch_size=1), ids), ids=ids)
        for index in range(3):
            worker.ask(index)
        worker.done()
        assert "is 999; expected 0 <= id < 200" in worker.failed().report.message
        worker.done()


def test_a_channel_that_is_closed_is_forgotten_with_all_it_had(graph: Graph) -> None:
    """CONTRACT 23: the number of open files stays constant; a heartbeat opens one for a moment."""
    with bench(graph, beat_every=300.0) as worker:
        process = psutil.Process(worker.process.pid)
        counts = []
        for number in range(1, 8):
            worker.open(SPEC, FEED, number=number)
            worker.ask(0, channel=number)
            worker.done()
            counts.append((process.num_fds(), len(process.memory_maps(grouped=False))))
            worker.say(CloseChannel(channel=number))
            worker.say(CloseBackend(backend=number))
        worker.ask(0, channel=7)
        assert worker.failed().report.message == "channel 7 is not open here"
        assert counts[-1][0] <= counts[0][0]


def test_no_descriptor_is_left_here_by_any_of_this(graph: Graph) -> None:
    before = open_descriptors()
    with bench(graph) as worker:
        worker.open(SPEC, FEED, slot_bytes=4096)
        worker.ask(0)
        worker.next(Begun)
        _, fds = worker.hear()
        for fd in fds:
            os.close(fd)
    assert open_descriptors() == before
