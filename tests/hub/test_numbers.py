"""What a hub tells of itself: statistics, the log, and how little it does when idle."""

from __future__ import annotations

import os
import re
import signal
import time
from itertools import pairwise
from typing import Any

import pytest

from penstock.core.events import BatchKey
from penstock.core.scheduler import UnknownChannel
from penstock.errors import Overloaded
from penstock.hub.loop import DESCRIBE_EVERY_S
from penstock.hub.process import EXIT_INTERNAL
from penstock.hub.reports import report_of, shortened
from penstock.hub.timings import SLOW_ONES_KEPT, Timing, Window
from penstock.rpc.failures import error_of
from penstock.sampling.spec import CustomSpec
from penstock.wire.messages import BatchReady, EpochDone, Unregister
from tests.hub.raw import (
    PATIENCE_S,
    HubProcess,
    Rank,
    feed,
    inline,
    running_hub,
    same,
    small_graph,
)
from tests.processes import strike

pytestmark = pytest.mark.usefixtures("no_leaks")


def test_statistics_have_the_numbers_of_all_parts() -> None:
    """CONTRACT 56, 57: plain data, from one place."""
    with running_hub(workers=2, beat_every=0.05) as hub:
        rank = hub.founder
        channel = rank.register(rank.backend(), job="training", slots=3)
        channel.epoch(0)
        numbers = rank.statistics()
        [there] = numbers["scheduler"]["channels"]
        assert (there["epoch"], there["delivered"], there["total"]) == (0, 10, 10)
        own = numbers["channels"][str(channel.number)]
        assert (own["job"], own["pid"], own["slots"]) == ("training", os.getpid(), 3)
        assert own["fetching"]["count"] == own["handing_out"]["count"] == 10
        assert 0 < own["handing_out"]["mean"] <= own["handing_out"]["longest"]
        assert own["resident"] > 0
        assert numbers["hub"]["connections"] == 1
        assert numbers["hub"]["cpu"] > 0
        assert numbers["hub"]["arena_bytes"] == 3 * own["slot_bytes"]
        numbers = rank.until(all_have_beaten)
        for worker in numbers["pool"]["workers"]:
            assert worker["cpu"] > 0
            assert worker["age"] > 0
        assert numbers["describe"].startswith("channels: 1 registered, 0 active")


def all_have_beaten(numbers: dict[str, Any]) -> bool:
    """Whether every worker has told of itself."""
    return all(worker["private"] for worker in numbers["pool"]["workers"])


def test_the_log_shows_the_scheduler_when_a_channel_comes_starts_and_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """CONTRACT 54."""
    monkeypatch.setenv("PENSTOCK_LOG", "INFO")
    began = time.monotonic()
    with running_hub(workers=1) as hub:
        rank = hub.founder
        channel = rank.register(rank.backend(), job="training")
        channel.epoch(0)
        rank.say(Unregister(channel=channel.number))
        rank.statistics()
        hub.end()
        lines = lines_of(hub)
    assert len(unasked(lines)) <= (time.monotonic() - began) / DESCRIBE_EVERY_S
    name = "channel 1 (training)"
    assert f"{name} came; channels: 1 registered, 0 active, 0 runnable, 0 leaving; 1:idle" in lines
    assert any(line.startswith(f"{name} started epoch 0; channels: 1 reg") for line in lines)
    assert f"{name} left; channels: 0 registered, 0 active, 0 runnable, 0 leaving" in lines


def lines_of(hub: HubProcess) -> list[str]:
    """What it has logged, without its name."""
    return [line.partition(": ")[2] for line in hub.logged().splitlines()]


def unasked(lines: list[str]) -> list[str]:
    """Those that show the scheduler without anything to give reason for it."""
    return [line for line in lines if line.startswith("channels: ")]


def test_the_log_shows_the_scheduler_now_and_then_while_it_is_at_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """CONTRACT 54: with hardly any time between two lines; never the same one twice in a row."""
    monkeypatch.setenv("PENSTOCK_LOG", "INFO")
    with running_hub(workers=1, program=changed("loop.DESCRIBE_EVERY_S = 0.0")) as hub:
        rank = hub.founder
        channel = rank.register(rank.backend(), slots=1)
        channel.epoch(0)
        rank.statistics()
        hub.end()
        lines = unasked(lines_of(hub))
    assert all(one != next_one for one, next_one in pairwise(lines))
    at_work = [line for line in lines if "1 registered, 1 active" in line]
    assert any(re.search(r"; 1:e0/\d+/\d+/10$", line) for line in at_work)
    assert lines[-1] == "channels: 1 registered, 0 active, 0 runnable, 0 leaving; 1:idle"


def changed(*changes: str) -> list[str]:
    """The program of a hub that is not quite as it should be."""
    program = """
import sys
from penstock.hub import loop, process
from penstock.hub import instructions
"""
    return ["-c", "\n".join([program, *changes, "sys.exit(process.main(sys.argv[1:]))"])]


def test_slow_steps_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """CONTRACT 55: with a threshold that everything passes."""
    monkeypatch.setenv("PENSTOCK_LOG", "INFO")
    with running_hub(workers=1, slow_step=1e-9) as hub:
        rank = hub.founder
        channel = rank.register(rank.backend(), feed(4, 4))
        channel.epoch(0)
        own = rank.statistics()["channels"][str(channel.number)]
        assert own["fetching"]["slow"] == 1
        assert own["fetching"]["slow_ones"][0]["batch"] == [1, 0, 0]
        rank.say(Unregister(channel=channel.number))
        rank.statistics()
        hub.end()
        logged = hub.logged()
    assert "slow: handing out (1, 0, 0) of channel 1 took" in logged
    assert "slow: fetching (1, 0, 0) of channel 1 took" in logged
    assert "slow: destroying of channel 1 took" in logged


def test_the_end_of_a_channel_is_timed() -> None:
    """CONTRACT 55."""
    with running_hub(workers=1, slow_step=600.0) as hub:
        rank = hub.founder
        backend = rank.backend()
        for _ in range(3):
            rank.say(Unregister(channel=rank.register(backend).number))
        destroying = rank.statistics()["hub"]["destroying"]
        assert (destroying["count"], destroying["slow"]) == (3, 0)
        assert 0 < destroying["mean"] <= destroying["longest"]


def test_an_end_that_takes_the_backend_along_may_take_longer() -> None:
    """CONTRACT 55: with a threshold that everything passes, unless so much more is allowed."""
    program = changed("instructions.WITH_BACKEND = 1e12")
    spec = CustomSpec(sampler="tests.hub.samplers:SleepsAtThree")
    with running_hub(workers=1, program=program, slow_step=1e-9) as hub:
        rank = hub.founder
        with Rank.join(hub.address) as other:
            backend = other.backend(spec)
            other.say(Unregister(channel=other.register(backend).number))
            destroying = other.statistics()["hub"]["destroying"]
            assert (destroying["count"], destroying["slow"]) == (1, 1)
            other.register(backend, slots=4).start(0)
            for _ in range(3):
                other.hear(BatchReady)
        # Only a batch that never comes holds the channel, and only the channel its backend.
        rank.until(lambda numbers: numbers["hub"]["connections"] == 1)
        assert rank.statistics()["hub"]["backends"] == 1
        for pid in rank.worker_pids():
            strike(pid)
        rank.until(lambda numbers: numbers["hub"]["backends"] == 0)
        destroying = rank.statistics()["hub"]["destroying"]
        assert (destroying["count"], destroying["slow"]) == (2, 1)


def test_a_hub_that_cannot_do_what_it_was_told_to_tells_the_story_and_ends() -> None:
    program = changed("instructions.Executor._finish_epoch = None")
    with small_graph() as graph:
        hub = HubProcess(graph, workers=1, program=program).greet()
        rank = hub.founder
        rank.register(rank.backend(), feed(4, 4)).start(0)
        assert [type(said) for said in rank.waits_for_end()] == [BatchReady]
        assert hub.process.wait(PATIENCE_S) == EXIT_INTERNAL
        logged = hub.logged()
        hub.close()
    assert re.search(r"FinishEpoch\(.*\) was not carried out: TypeError", logged)
    told = [line.split("(")[0].strip() for line in logged.splitlines() if " -> " in line]
    assert told[0] == "ChannelRegistered"
    assert told[-1] == "BatchDone"


def test_a_channel_that_rests_gives_its_pages_back() -> None:
    """And has the same batches in them afterwards as ever."""
    with running_hub(workers=1, trim_after=0.1) as hub:
        rank = hub.founder
        channel = rank.register(rank.backend(), slots=1)
        name = str(channel.number)
        channel.start(0)
        ready = rank.hear(BatchReady)  # as long as a rank has it, a slot does not rest
        assert rank.statistics()["channels"][name]["resident"] > 0
        channel.give_back(ready.slot)
        channel.finish()
        rank.until(lambda numbers: numbers["channels"][name]["resident"] == 0)
        assert same(channel.epoch(1), inline(1))


def test_a_channel_whose_reader_has_locked_its_pages_keeps_them() -> None:
    """CONTRACT 75: a GPU may copy from them, whatever their file has meanwhile."""
    with running_hub(workers=1, trim_after=0.1) as hub:
        rank = hub.founder
        backend = rank.backend()
        kept = rank.register(backend, slots=1, keep_pages=True)
        other = rank.register(backend, slots=1)
        for channel in (kept, other):
            channel.start(0)
            channel.give_back(rank.hear(BatchReady).slot)
            channel.finish()
        rank.until(lambda numbers: numbers["channels"][str(other.number)]["resident"] == 0)
        assert rank.statistics()["channels"][str(kept.number)]["resident"] > 0


def test_a_death_is_told_to_the_founder_at_once_and_to_nobody_else() -> None:
    """Whose log has it; the hub itself need not warn of it."""
    with running_hub(workers=1) as hub, Rank.join(hub.address) as other:
        rank = hub.founder
        rank.workers()
        [pid] = rank.worker_pids()
        assert strike(pid)
        other.until(lambda numbers: pid not in [w["pid"] for w in numbers["pool"]["workers"]])
        rank.workers()
        [gone] = rank.news
        assert (gone.worker, gone.pid, gone.batch) == (1, pid, None)
        assert gone.verdict.startswith("SIGKILL, no sign of memory pressure")
        assert other.news == []
        assert hub.logged() == ""


def test_statistics_tell_which_workers_died_and_why() -> None:
    """CONTRACT 56: a view can tell the story without reading logs."""
    with running_hub(workers=1) as hub:
        rank = hub.founder
        rank.workers()
        [pid] = rank.worker_pids()
        assert rank.statistics()["losses"] == []
        assert strike(pid)
        [loss] = rank.until(lambda numbers: bool(numbers["losses"]))["losses"]
        assert (loss["worker"], loss["pid"], loss["batch"]) == (1, pid, None)
        assert loss["verdict"].startswith("SIGKILL, no sign of memory pressure")


def test_an_idle_hub_does_nothing() -> None:
    """CONTRACT 16: nothing polls. Without workers nothing ever wakes it."""
    with running_hub(workers=0) as hub, Rank.join(hub.address) as rank:
        rank.register(rank.backend())
        before = rank.statistics()["hub"]["turns"]
        with pytest.raises(AssertionError, match="says nothing"):
            rank.next(patience=0.5)
        assert rank.statistics()["hub"]["turns"] == before + 1


def test_an_idle_pool_wakes_its_hub_by_heartbeats_alone() -> None:
    """CONTRACT 16."""
    with running_hub(workers=2, beat_every=0.25) as hub:
        rank = hub.founder
        rank.workers()
        before = turns_and_time(rank)
        with pytest.raises(AssertionError, match="says nothing"):
            rank.next(patience=1.0)
        turns, seconds = (b - a for a, b in zip(before, turns_and_time(rank), strict=True))
        # Two workers, four beats a second each; the rest is for questions and for luck.
        assert turns <= 8 * seconds + 4


def turns_and_time(rank: Rank) -> tuple[float, float]:
    numbers: dict[str, Any] = rank.statistics()["hub"]
    return numbers["turns"], numbers["age"]


def test_a_hub_that_is_terminated_lets_its_workers_finish() -> None:
    """SIGTERM: batches that were begun are delivered before the hub ends."""
    with small_graph() as graph:
        hub = HubProcess(graph, workers=1).greet()
        rank = hub.founder
        channel = rank.register(rank.backend(), slots=2)
        channel.start(0)
        rank.hear(BatchReady)
        os.kill(hub.process.pid, signal.SIGTERM)
        said = rank.waits_for_end()
        assert all(isinstance(message, BatchReady | EpochDone) for message in said)
        assert hub.process.wait(PATIENCE_S) == 0, hub.logged()
        hub.close()


def test_timings_keep_counts_means_and_the_last_slow_ones() -> None:
    """CONTRACT 56."""
    timing = Timing("fetching")
    for step in range(20):
        timing.add(float(step), threshold=5.0, batch=BatchKey(1, 0, step))
    numbers = timing.numbers()
    assert (numbers["count"], numbers["mean"], numbers["longest"]) == (20, 9.5, 19.0)
    assert numbers["slow"] == 15
    assert len(numbers["slow_ones"]) == SLOW_ONES_KEPT
    assert numbers["slow_ones"][-1] == {"batch": [1, 0, 19], "seconds": 19.0}


def test_a_window_has_the_steps_since_the_last_one() -> None:
    """CONTRACT 56: so that a change is seen, however long the channel has been read."""
    timing = Timing("fetching")
    found = []
    for seconds in (1.0, 3.0, 9.0, 2.0, 4.0, 1.0, 7.0):
        timing.add(seconds, threshold=3.0)
        found.append(timing.close_window(3))
    assert [window for window in found if window] == [
        Window(3, 13.0 / 3, longest=9.0, slow=2),
        Window(3, 7.0 / 3, longest=4.0, slow=1),
    ]
    assert found.index(timing.window) == 5
    assert timing.numbers()["window"] == {"count": 3, "mean": 7.0 / 3, "longest": 4.0, "slow": 1}
    assert timing.numbers()["count"] == 7


def test_a_timing_of_nothing_is_nothing() -> None:
    assert Timing("fetching").numbers()["window"] is None
    assert Timing("fetching").numbers()["mean"] == 0.0


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (ValueError("no"), "ValueError", "no"),
        (KeyError("no 3"), "KeyError", "no 3"),
        (FileNotFoundError(2, "gone", "/x"), "OSError", "[Errno 2] gone: '/x'"),
        (UnknownChannel(3), "PenstockError", "channel 3 was never registered"),
        (Overloaded("full"), "Overloaded", "full"),
        (RuntimeError("?"), "PenstockError", "?"),
        (MemoryError(), "MemoryError", "MemoryError"),
    ],
)
def test_errors_are_told_by_names_that_a_rank_can_raise(
    error: Exception, kind: str, message: str
) -> None:
    report = report_of(error)
    assert (report.kind, report.message) == (kind, message)
    assert type(error_of(report)).__name__ == kind


def test_long_texts_keep_their_beginning_and_more_of_their_end() -> None:
    text = "a" * 1000 + "b" * 1000
    short = shortened(text, 400)
    assert short.startswith("a" * 100 + "\n… 1600 characters left out")
    assert short.endswith("b" * 300)
    assert shortened(text, 2000) == text
