"""The whole chain with real processes: a rank in bare messages, a hub, workers."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import numpy as np
import pytest

from penstock.graph import Graph
from penstock.graph.shared import SharedArray
from penstock.graph.sharing import descriptors_of, handle_of
from penstock.sampling.spec import NeighborSpec
from penstock.wire.messages import (
    AskGraph,
    BackendCreated,
    BatchReady,
    CreateBackend,
    EpochDone,
    GraphHere,
    Unregister,
)
from tests.hub.raw import (
    SPEC,
    Arrays,
    Rank,
    feed,
    inline,
    running_hub,
    same,
    small_graph,
    wait_until_gone,
)
from tests.processes import stopped, strike, until

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.mark.parametrize("workers", [1, 2])
def test_an_epoch_comes_whole(workers: int) -> None:
    """CONTRACT 2, 12: every input in exactly one batch; done is said once, after the last."""
    with running_hub(workers=workers) as hub:
        batches = hub.founder.register(hub.founder.backend()).epoch(0)
    assert sorted(batches) == list(range(10))
    inputs = np.concatenate([batch["input_id"] for batch in batches.values()])
    assert sorted(inputs.tolist()) == list(range(40))


def test_batches_are_the_same_for_any_number_of_workers() -> None:
    """CONTRACT 5, 59: neither workers nor their concurrency change a byte."""
    with running_hub(workers=3, worker_concurrency=4) as hub:
        many = hub.founder.register(hub.founder.backend(), slots=7).epoch(0)
    assert same(many, inline())


def test_epochs_differ_and_follow_one_another() -> None:
    """CONTRACT 4."""
    with running_hub() as hub:
        channel = hub.founder.register(hub.founder.backend())
        first, second = channel.epoch(0), channel.epoch(1)
    assert first.keys() == second.keys()
    assert not same(first, second)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_worker_that_is_killed_costs_no_batch(workers: int) -> None:
    """CONTRACT 18, 26: its batches are made again, the same, and another takes its place."""
    with running_hub(workers=workers) as hub:
        rank = hub.founder
        backend = rank.backend()
        rank.workers(backend)
        killed = rank.worker_pids()[0]
        channel = rank.register(backend, slots=2)
        channel.start(0)
        first = rank.hear(BatchReady)
        assert strike(killed)
        wait_until_gone(killed)
        batches = {first.index: channel.read(first)}
        rest, lost, done = channel.finish()
        assert not lost
        assert done.delivered == 10
        assert same(batches | rest, inline())
        assert rank.workers(backend) == workers
        assert killed not in rank.worker_pids()
        [gone] = rank.news
        assert (gone.pid, gone.verdict.split(":")[0]) == (
            killed,
            "SIGKILL, no sign of memory pressure",
        )


def test_all_workers_may_die_again_and_again() -> None:
    """CONTRACT 17, 18: every batch ends exactly once."""
    with running_hub(workers=2) as hub:
        rank = hub.founder
        backend = rank.backend()
        with Rank.join(hub.address) as other:
            channel = other.register(backend, slots=3, max_attempts=20)
            channel.start(0)
            batches: dict[int, Arrays] = {}
            while not isinstance(said := other.next(), EpochDone):
                assert isinstance(said, BatchReady)
                assert said.index not in batches
                batches[said.index] = channel.peek(said)
                if len(batches) in (2, 5, 8):
                    for pid in rank.worker_pids():
                        strike(pid)
                channel.give_back(said.slot)
            assert said.delivered == 10
        assert same(batches, inline())


def test_a_stopped_worker_is_replaced() -> None:
    """CONTRACT 51: an idle worker that stops answering is replaced too."""
    with running_hub(workers=1, silence=1.5, beat_every=0.1) as hub:
        rank = hub.founder
        rank.workers()
        victim = rank.worker_pids()[0]
        assert strike(victim, signal.SIGSTOP)
        wait_until_gone(victim)
        assert rank.workers() == 1
        assert rank.worker_pids() != [victim]
        # On a busy machine its successor may have been taken for silent as well.
        assert list(rank.statistics()["scheduler"]["groups"][0]["killed"]) == ["silence"]


def test_a_hub_that_was_stopped_takes_no_worker_for_silent() -> None:
    """CONTRACT 16: all input that is waiting is handled before the clock is looked at."""
    program = """
import signal, sys, time

real, late = time.monotonic, []
time.monotonic = lambda: real() + 3600 * len(late)
signal.signal(signal.SIGUSR1, lambda *_: late.append(1))

from penstock.hub import process
sys.exit(process.main(sys.argv[1:]))
"""
    options = {"silence": 600.0, "beat_every": 0.1, "program": ["-c", program]}
    with running_hub(workers=2, **options) as hub:
        rank = hub.founder
        rank.workers()
        pids = rank.worker_pids()
        with stopped(hub.process.pid):
            enough = {pid: wakings(pid) + 3 for pid in pids}
            until(lambda: all(wakings(pid) >= enough[pid] for pid in pids), "all have beaten")
            assert strike(hub.process.pid, signal.SIGUSR1)  # for an hour, it will think
        numbers = rank.until(lambda numbers: numbers["hub"]["age"] > 3600)
        assert numbers["scheduler"]["groups"][0]["killed"] == {}
        assert sorted(rank.worker_pids()) == sorted(pids)


def wakings(pid: int) -> int:
    """How often the heartbeat of an idle worker has gone to sleep: once after each beat."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    [beating] = [thread for thread in threads if thread.name != str(pid)]
    found = re.search(r"^voluntary_ctxt_switches:\s*(\d+)$", (beating / "status").read_text(), re.M)
    assert found is not None
    return int(found[1])


def test_ranks_share_an_epoch_without_overlap() -> None:
    """CONTRACT 6: rank r of W takes batches r, r+W, …; the list does not depend on W."""
    with running_hub(workers=2) as hub, Rank.join(hub.address) as second:
        backend = hub.founder.backend()
        parts = []
        for number, rank in enumerate((hub.founder, second)):
            channel = rank.register(backend, rank=number, world_size=2)
            channel.start(0)
            parts.append(channel)
        (even, _, _), (odd, _, _) = (channel.finish() for channel in parts)
    assert sorted(even) == [0, 2, 4, 6, 8]
    assert sorted(odd) == [1, 3, 5, 7, 9]
    assert same(even | odd, inline())


def test_an_epoch_can_begin_in_the_middle() -> None:
    """CONTRACT 6: `first` and `first_step` say where to go on."""
    with running_hub() as hub:
        channel = hub.founder.register(hub.founder.backend())
        channel.start(0, first=4, first_step=3)
        batches, _, done = channel.finish()
    assert sorted(batches) == [7, 8, 9]
    assert done.delivered == 3


def test_given_ids_are_the_inputs() -> None:
    """CONTRACT 58."""
    chosen = np.array([5, 3, 100, 42, 7], np.int64)
    with running_hub() as hub, SharedArray.from_array(chosen) as ids:
        rank = hub.founder
        inputs = feed(5, 2, ids=ids.handle, shuffle=False)
        channel = rank.register(rank.backend(), inputs, ids.segment.descriptors)
        batches = channel.epoch(0)
    seeds = np.concatenate([batches[i]["n_id"][: len(batches[i]["input_id"])] for i in range(3)])
    assert seeds.tolist() == chosen.tolist()


def test_starting_over_cancels_what_is_left() -> None:
    """CONTRACT 13: no batch of the old epoch is ever seen after the first of the new one."""
    with running_hub(workers=2) as hub:
        rank = hub.founder
        channel = rank.register(rank.backend(), slots=3)
        channel.start(0)
        channel.read(rank.hear(BatchReady))
        channel.start(7)
        seen: list[int] = []
        while not isinstance(said := rank.next(), EpochDone):
            assert isinstance(said, BatchReady)
            seen.append(said.batch.epoch)
            channel.read(said)
        assert seen == sorted(seen)
        assert seen.count(7) == 10
        assert (said.epoch, said.delivered) == (7, 10)


def test_an_epoch_that_was_before_is_ignored() -> None:
    """CONTRACT 10."""
    with running_hub() as hub:
        channel = hub.founder.register(hub.founder.backend())
        channel.epoch(3)
        channel.start(3)
        channel.start(2)
        assert len(channel.epoch(4)) == 10


def test_an_epoch_without_batches_is_done_at_once() -> None:
    """CONTRACT 11, 32."""
    with running_hub() as hub:
        channel = hub.founder.register(hub.founder.backend(), feed(0, 4))
        assert channel.epoch(0) == {}


def test_a_channel_that_left_is_forgotten_and_the_others_go_on() -> None:
    """CONTRACT 15, 28."""
    with running_hub(workers=2) as hub:
        rank = hub.founder
        backend = rank.backend()
        with Rank.join(hub.address) as other:
            leaving = other.register(backend)
            leaving.start(0)
            other.say(Unregister(channel=leaving.number))
            other.say(Unregister(channel=leaving.number))
            leaving.start(1)  # CONTRACT 10: silently nothing
            leaving.give_back(0)
            assert len(rank.register(backend).epoch(0)) == 10
            # What the other worker had of it may come back later than our last batch.
            rank.until(lambda numbers: len(numbers["scheduler"]["channels"]) == 1)


def test_a_rank_that_vanishes_loses_its_lease() -> None:
    """CONTRACT 40: its channels and memory are freed; the others notice nothing."""
    with running_hub(workers=2) as hub:
        rank = hub.founder
        backend = rank.backend()
        staying = rank.register(backend)
        vanishing = Rank.join(hub.address)
        vanishing.register(backend).start(0)
        vanishing.close()
        assert len(staying.epoch(0)) == 10
        # What the other worker had of it may come back later than our last batch.
        numbers = rank.until(lambda numbers: numbers["hub"]["channels"] == 1)
        assert numbers["hub"]["connections"] == 1


def test_a_rank_that_does_not_read_holds_up_itself_alone() -> None:
    """CONTRACT 9, 40: the others keep their share, and commands are still handled."""
    with running_hub(workers=1) as hub, Rank.join(hub.address) as lazy:
        rank = hub.founder
        backend = rank.backend()
        stuck = lazy.register(backend, feed(200, 1), slots=2)
        stuck.start(0)
        channel = rank.register(backend)
        for epoch in range(3):
            assert len(channel.epoch(epoch)) == 10
        found = rank.statistics()["scheduler"]["channels"]
        assert [there["handed_out"] for there in found if there["id"] == stuck.number] == [2]


def test_a_rank_that_joins_is_given_the_graph() -> None:
    with small_graph() as graph:
        with running_hub(graph) as hub, Rank.join(hub.address) as other:
            here = other.ask(AskGraph(request=0), GraphHere)
            with Graph.attach(here.graph, other.fds) as attached:
                assert attached.version == graph.version


def test_out_edges_come_as_a_supplement_once() -> None:
    """CONTRACT 60: made once, by whoever asks, and shared by all workers."""
    out = NeighborSpec(num_neighbors=(3,), direction="out")
    with small_graph() as graph:
        with running_hub(graph, workers=2) as hub:
            rank = hub.founder
            assert "the hub has no csr" in rank.refusal(CreateBackend(request=0, spec=out))
            assert len(rank.register(rank.backend(SPEC)).epoch(0)) == 10
            graph.csr()
            news = {key: array for key, array in graph.arrays.items() if key.group == "csr"}
            made = handle_of(graph.schema, news, None)
            wish = CreateBackend(request=0, spec=out, supplement=made)
            backend = rank.ask(wish, BackendCreated, descriptors_of(news)).backend
            with Rank.join(hub.address) as other:
                again = other.ask(wish, BackendCreated, descriptors_of(news)).backend
                assert again == backend
                batches = other.register(backend).epoch(0)
        sources, destinations = graph.edge_index()
        edges = set(zip(destinations.tolist(), sources.tolist(), strict=True))
        for batch in batches.values():
            found = batch["n_id"][batch["edge_index"]]
            assert set(map(tuple, found.T.tolist())) <= edges


def test_a_batch_larger_than_its_slot_brings_its_own_memory() -> None:
    """CONTRACT 21."""
    with running_hub() as hub:
        channel = hub.founder.register(hub.founder.backend(), buffer_size=4)
        # Slots have whole pages, so the feed is such that no batch fits into one.
        large = hub.founder.register(hub.founder.backend(), feed(200, 200), buffer_size=4)
        small = channel.epoch(0)
        large.start(0)
        ready = hub.founder.hear(BatchReady)
        assert ready.one_off is not None
        assert len(large.read(ready)["input_id"]) == 200
        hub.founder.hear(EpochDone)
    assert same(small, inline())


def test_a_batch_past_the_limit_is_a_clear_error() -> None:
    """CONTRACT 21: names the size needed and the setting."""
    with running_hub() as hub:
        rank = hub.founder
        channel = rank.register(rank.backend(), feed(200, 200), buffer_size=4, max_batch_bytes=1)
        channel.start(0)
        batches, [lost], done = channel.finish()
        assert not batches
        assert done.failed == 1
        assert lost.report.kind == "BatchTooLarge"
        assert "max_batch_bytes" in lost.report.message
