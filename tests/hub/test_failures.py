"""Batches that cannot be made and workers that lose their minds: typed errors, for them alone."""

from __future__ import annotations

import os
import resource
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.graph import Graph
from penstock.graph.shared import SharedArray
from penstock.graph.sharing import handle_of
from penstock.hub.connection import ENOUGH
from penstock.hub.recipes import LARGEST
from penstock.sampling.spec import CustomSpec, NeighborSpec
from penstock.wire.messages import (
    AskWorkers,
    BatchLost,
    BatchReady,
    ChannelBroken,
    CreateBackend,
    EpochDone,
    Refused,
    Resize,
    Resized,
)
from tests.hub.raw import (
    PATIENCE_S,
    ROOT,
    Rank,
    feed,
    inline,
    running_hub,
    same,
    small_graph,
    wait_until_gone,
)

pytestmark = pytest.mark.usefixtures("no_leaks")

# At a heartbeat the hub may open a file for a moment.
BEATING_NEVER = {"beat_every": 300.0, "silence": 600.0}


def custom(name: str, **options: Any) -> CustomSpec:
    return CustomSpec(sampler=f"tests.hub.samplers:{name}", options=options)


@pytest.fixture(autouse=True)
def _recipes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_RECIPES", str(tmp_path / "recipes"))


def test_a_sampler_that_raises_fails_that_batch_only() -> None:
    """CONTRACT 20: with its traceback; the worker lives."""
    with running_hub(workers=1) as hub:
        rank = hub.founder
        backend = rank.backend(custom("RaisesAtThree"))
        rank.workers(backend)
        pids = rank.worker_pids()
        channel = rank.register(backend, job="training")
        channel.start(0)
        batches, [lost], done = channel.finish()
        assert sorted(batches) == [0, 1, 2, 4, 5, 6, 7, 8, 9]
        assert (done.delivered, done.failed) == (9, 1)
        assert (lost.index, lost.batch.step) == (3, 3)
        assert lost.report.kind == "SamplingError"
        assert "ZeroDivisionError: three is a crowd" in lost.report.message
        assert "samplers.py" in lost.report.message
        assert rank.worker_pids() == pids


def test_a_batch_that_kills_its_workers_is_given_up_with_the_whole_story() -> None:
    """CONTRACT 19, 49: after `max_attempts` its rank gets the error, and goes on."""
    with running_hub(workers=1) as hub:
        rank = hub.founder
        backend = rank.backend(custom("DiesAtThree"))
        channel = rank.register(backend, max_attempts=2, job="training")
        channel.start(0)
        batches, [lost], done = channel.finish()
        assert sorted(batches) == [0, 1, 2, 4, 5, 6, 7, 8, 9]
        assert (done.delivered, done.failed) == (9, 1)
        story = lost.report.message
        assert lost.report.kind == "WorkerDied"
        assert lost.report.details["attempts"] == 2
        assert "given up after 2 attempts" in story
        assert "SIGKILL, no sign of memory pressure" in story
        assert f"job 'training', channel {channel.number}, epoch 0, batch 3" in story
        assert "last words of the sampler" in story
        [quarantined] = rank.statistics()["scheduler"]["quarantined"]
        assert "SIGKILL" in str(quarantined)


def test_the_story_ends_with_a_command_that_samples_the_batch_again() -> None:
    """CONTRACT 50: `penstock replay`, which dies of the same here."""
    with running_hub(workers=1) as hub:
        rank = hub.founder
        channel = rank.register(rank.backend(custom("DiesAtThree")), max_attempts=1)
        channel.start(0)
        _, [lost], _ = channel.finish()
        command = shlex.split(lost.report.message.splitlines()[-1])
        assert command[:2] == ["penstock", "replay"]
        again = subprocess.run(
            [sys.executable, "-m", *command], capture_output=True, text=True, timeout=PATIENCE_S
        )
        assert again.returncode == -9
        assert "last words of the sampler" in again.stderr


def test_a_batch_with_no_end_of_inputs_has_no_recipe_and_harms_nobody() -> None:
    """CONTRACT 50, 53: whoever has so many can fill any memory, and it is not to be the hub's."""
    count = LARGEST // 2 + 1
    with running_hub(workers=1) as hub, SharedArray.from_array(np.full(count, -1)) as ids:
        rank = hub.founder
        inputs = feed(count, count, ids=ids.handle, shuffle=False)
        channel = rank.register(rank.backend(), inputs, ids.segment.descriptors, max_attempts=1)
        channel.start(0)
        _, [lost], _ = channel.finish()
        assert "seeds[0][0] is -1" in lost.report.message
        assert "penstock replay" not in lost.report.message
        assert f"more than {LARGEST} numbers to record" in hub.logged()


def test_an_derived_array_that_can_be_had_no_more_is_made_again_and_costs_no_worker(
    tmp_path: Path,
) -> None:
    """CONTRACT 53, 60: its maker is gone, and with it the file; no worker dies of that in vain."""
    spec = NeighborSpec(num_neighbors=(3, 2), direction="out")
    with small_graph() as graph:
        graph.csr()
        graph.save(tmp_path / "with.graph")
    with running_hub(workers=1) as hub, Graph.open(tmp_path / "with.graph") as saved:
        rank = hub.founder
        derived_arrays = {key: array for key, array in saved.arrays.items() if key.group == "csr"}
        backend = rank.backend(spec, supplement=handle_of(saved.schema, derived_arrays, None))
        shutil.rmtree(tmp_path / "with.graph")
        rank.workers()
        [worker] = rank.worker_pids()
        assert same(rank.register(backend).epoch(0), inline(spec=spec))
        assert rank.worker_pids() == [worker]


def test_a_batch_can_be_substituted() -> None:
    """CONTRACT 19: the rank gets another batch of the same epoch, marked as such."""
    with running_hub(workers=1) as hub:
        rank = hub.founder
        backend = rank.backend(custom("RaisesAtThree"))
        channel = rank.register(backend, on_error="substitute", max_substitutes=1)
        channel.start(0)
        steps: dict[int, tuple[int, bool]] = {}
        while not isinstance(said := rank.next(), EpochDone):
            assert isinstance(said, BatchReady)
            steps[said.batch.step] = said.index, said.substitute
            channel.read(said)
        assert said.delivered == 10
        assert steps.pop(3) == (4, True)
        assert steps == {step: (step, False) for step in steps}


def test_a_batch_past_its_deadline_costs_its_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """CONTRACT 51: stacks dumped, worker killed and reaped, batch given up after its attempts."""
    monkeypatch.setenv("PYTHONPATH", ROOT)
    with running_hub(workers=1, program=("-m", "tests.hub.patient")) as hub:
        rank = hub.founder
        channel = rank.register(rank.backend(custom("SleepsAtThree")), deadline=1.5, max_attempts=1)
        channel.start(0)
        batches, losses, _ = channel.finish()
        # On a busy machine others may miss it as well.
        assert sorted([*batches, *(lost.index for lost in losses)]) == list(range(10))
        assert all("past its deadline" in lost.report.message for lost in losses)
        [third] = [lost.report for lost in losses if lost.index == 3]
        assert third.kind == "WorkerDied"
        assert "in misbehave" in third.message


def test_a_batch_begun_after_the_deadline_of_another_is_not_blamed_for_it(tmp_path: Path) -> None:
    """CONTRACT 19, 51: the late one came after all; the next died with the worker, innocent."""
    with running_hub(workers=1) as hub:
        rank = hub.founder
        backend = rank.backend(custom("LateForItsEnd", once=str(tmp_path / "once")))
        batches = rank.register(backend, deadline=1.5, max_attempts=1).epoch(0)
        assert len(batches) == 10
        [gone] = rank.news
        assert gone.verdict.startswith("past its deadline")
        assert gone.batch == "channel 1, epoch 0, batch 0 (step 0, attempt 1)"


@pytest.mark.parametrize("name", ["Garbles", "ClaimsAnother", "BeginsTwice"])
def test_a_worker_that_talks_nonsense_is_killed_and_counts_as_lost(
    name: str, tmp_path: Path
) -> None:
    with running_hub(workers=1) as hub:
        rank = hub.founder
        backend = rank.backend(custom(name, once=str(tmp_path / "once")))
        batches = rank.register(backend).epoch(0)
        assert len(batches) == 10
        [group] = rank.statistics()["scheduler"]["groups"]
        assert (group["lost"], group["ready"]) == (1, 1)
        [gone] = rank.news
        assert "garbled" in gone.verdict


def test_a_sampler_that_cannot_be_loaded_opens_the_breaker_of_its_own_group() -> None:
    """CONTRACT 53, 24: no storm, no hang; the cause is told; other backends are served."""
    with running_hub(workers=1) as hub, Rank.join(hub.address) as other:
        rank = hub.founder
        backend = rank.backend(custom("Unloadable"))
        report = rank.ask(AskWorkers(request=0, backend=backend), Refused).report
        assert report.kind == "WorkerDied"
        assert "this sampler wants a licence" in report.message
        channel = rank.register(backend)
        channel.start(0)
        broken = rank.hear(ChannelBroken)
        assert (broken.channel, broken.epoch) == (channel.number, 0)
        assert "this sampler wants a licence" in broken.report.message
        assert len(other.register(other.backend()).epoch(0)) == 10
        started = {c["group"]: c["started"] for c in rank.statistics()["scheduler"]["groups"]}
        assert started == {"tests.hub.samplers:Unloadable": 5, "": 1}


def test_a_users_sampler_has_workers_of_its_own_as_many_as_asked_for() -> None:
    with running_hub(workers=1) as hub:
        rank = hub.founder
        spec = custom("Seeds")
        backend = rank.backend(spec, workers=2)
        assert rank.workers(backend) == 2
        assert rank.workers() == 1
        groups = sorted(worker["group"] for worker in rank.statistics()["pool"]["workers"])
        assert groups == ["", spec.sampler, spec.sampler]


def test_workers_that_no_descriptors_are_left_for_are_not_waited_for() -> None:
    """CONTRACT 24, 53: whoever waits for them is told why they do not come."""
    with running_hub(workers=1, **BEATING_NEVER) as hub:
        pid, rank = hub.process.pid, hub.founder
        backend = rank.backend(custom("Seeds"))
        assert rank.workers(backend) == 1
        taken = {int(name) for name in os.listdir(f"/proc/{pid}/fd")}
        # The first that is free: those between ones that were closed would do for a worker.
        limit = next(number for number in range(len(taken) + 1) if number not in taken)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, limit))
        report = rank.ask(AskWorkers(request=0), Refused).report
        assert report.kind == "WorkerDied"
        assert "Too many open files" in report.message


def test_a_pool_of_another_size_is_one_of_users_samplers_too() -> None:
    """CONTRACT 59: of those that were given no size of their own."""
    with running_hub(workers=1) as hub:
        rank = hub.founder
        following = rank.backend(custom("Seeds"))
        rank.backend(custom("Large"), workers=1)
        assert rank.ask(Resize(request=0, workers=2), Resized).workers == 2
        assert rank.workers(following) == 2
        wanted = {c["group"]: c["wanted"] for c in rank.statistics()["scheduler"]["groups"]}
        assert wanted == {custom("Seeds").sampler: 2, custom("Large").sampler: 1}


def test_users_samplers_that_have_gone_leave_nothing_behind() -> None:
    with running_hub(workers=0) as hub:
        for number in range(20):
            with Rank.join(hub.address) as other:
                other.backend(custom("Seeds", number=number))
            hub.founder.statistics()  # its leaving was noticed
        assert len(hub.founder.statistics()["scheduler"]["groups"]) <= 2


def test_the_workers_of_a_users_sampler_go_when_nobody_wants_it_any_more() -> None:
    with running_hub(workers=1) as hub:
        rank = hub.founder
        with Rank.join(hub.address) as other:
            channel = other.register(other.backend(custom("Seeds")))
            assert len(channel.epoch(0)) == 10
            pids = rank.worker_pids()
        for pid in pids:
            wait_until_gone(pid)
        numbers = rank.statistics()
        assert numbers["pool"]["workers"] == []
        assert numbers["hub"]["backends"] == 0
        # And it can come back.
        assert len(rank.register(rank.backend(custom("Seeds"))).epoch(0)) == 10


def test_a_backend_outlives_whoever_asked_for_it_while_it_has_channels() -> None:
    with running_hub(workers=1) as hub:
        rank = hub.founder
        with Rank.join(hub.address) as other:
            backend = other.backend(custom("Seeds"))
            channel = rank.register(backend)
        assert len(channel.epoch(0)) == 10


def test_errors_that_nobody_reads_are_kept_short() -> None:
    """CONTRACT 9, 17: none is lost, and they do not fill the hub's memory."""
    with small_graph(1000) as graph, running_hub(graph, workers=1) as hub:
        rank = hub.founder
        with Rank.join(hub.address) as deaf:
            channel = deaf.register(deaf.backend(custom("RaisesAlways")), feed(1000, 1))
            channel.start(0)
            rank.until(lambda numbers: numbers["scheduler"]["channels"][0]["failed"] == 1000)
            assert rank.statistics()["channels"][str(channel.number)]["unread"] > ENOUGH
            lost = [deaf.hear(BatchLost) for _ in range(1000)]
            assert deaf.hear(EpochDone).failed == 1000
        assert len(lost[0].report.message) > 3000
        assert len(lost[-1].report.message) < 3000


def test_errors_end_with_a_command_that_samples_the_batch_again_too() -> None:
    with running_hub(workers=1) as hub:
        rank = hub.founder
        channel = rank.register(rank.backend(custom("RaisesAtThree")))
        channel.start(0)
        _, [lost], _ = channel.finish()
        assert "penstock replay" in lost.report.message.splitlines()[-1]


def test_a_large_batch_of_a_users_sampler_brings_its_own_memory() -> None:
    """CONTRACT 21."""
    with running_hub(workers=1) as hub:
        rank = hub.founder
        channel = rank.register(rank.backend(custom("Large")), feed(4, 4), buffer_size=4 * 4096)
        [batch] = channel.epoch(0).values()
        assert batch["weights"].shape == (1 << 20,)


def test_descriptors_of_one_offs_are_closed() -> None:
    """CONTRACT 23: the number of open files stays constant."""
    with running_hub(workers=1, **BEATING_NEVER) as hub:
        rank = hub.founder
        channel = rank.register(rank.backend(custom("Large")), buffer_size=4 * 4096)
        channel.epoch(0)
        rank.statistics()
        before = len(os.listdir(f"/proc/{hub.process.pid}/fd"))
        channel.epoch(1)
        rank.statistics()
        assert len(os.listdir(f"/proc/{hub.process.pid}/fd")) == before


def test_descriptors_of_one_offs_that_nobody_wants_any_more_are_closed() -> None:
    """CONTRACT 13, 14: completions of a cancelled epoch are dropped, with all that came along."""
    with running_hub(workers=1, **BEATING_NEVER) as hub:
        rank = hub.founder
        channel = rank.register(rank.backend(custom("Large")), buffer_size=4 * 4096)
        channel.epoch(0)
        rank.statistics()
        before = len(os.listdir(f"/proc/{hub.process.pid}/fd"))
        for epoch in range(1, 5):
            channel.start(epoch)
        seen = []
        while not isinstance(said := rank.next(), EpochDone):
            assert isinstance(said, BatchReady)
            seen.append(said.batch.epoch)
            channel.read(said)
        assert (said.epoch, seen.count(4)) == (4, 10)
        rank.statistics()
        assert len(os.listdir(f"/proc/{hub.process.pid}/fd")) == before


def test_a_refused_sampler_leaves_no_backend() -> None:
    with running_hub(workers=0) as hub:
        rank = hub.founder
        refusal = rank.refusal(CreateBackend(request=0, spec=CustomSpec(sampler="nonsense")))
        assert "expected 'module:Class'" in refusal
        assert rank.statistics()["hub"]["backends"] == 0
