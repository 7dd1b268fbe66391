"""What is waited for, in plain words: each verdict of made-up statistics, and one of a loader."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from penstock.loader.device.statistics import DeviceStatistics
from penstock.loader.watch.meter import LoaderStatistics, Waits
from penstock.loader.watch.verdict import (
    ENOUGH_BATCHES,
    LITTLE,
    TOO_EARLY,
    between,
    verdict_of,
    whole_run,
)
from tests.loader.device.standin import StandIn, stand_in_for_cuda
from tests.loader.epochs import digests, everyday, small_data

SECONDS = 100.0


def hub(*in_flight: int, busy: int = 8) -> dict[str, Any]:
    """What a hub tells of eight workers, and of channels that they make batches for."""
    channels = [{"id": number, "in_flight": count} for number, count in enumerate(in_flight)]
    return {"scheduler": {"groups": [{"busy": busy, "ready": 8}], "channels": channels}}


def told(
    *, device: tuple[float, float] | None = None, staged: int = 0, **waits: float
) -> LoaderStatistics:
    """A loader's statistics, after a hundred seconds."""
    return LoaderStatistics(
        epoch=0,
        step=500,
        steps=1000,
        batches=500,
        inputs=500_000,
        failed=0,
        substitutes=0,
        retries=0,
        copied=0,
        bytes=1 << 30,
        seconds=SECONDS,
        batches_per_second=5.0,
        inputs_per_second=5000.0,
        time_to_first_batch=0.0,
        sampling_cost=600.0,
        waits=Waits(**waits),
        restarts_of_workers=0,
        restarts_of_hub=0,
        num_workers=8,
        device=device and DeviceStatistics("cuda:0", 1000, staged, 1 << 20, *device),
        hub=hub(8),
    )


# --- with a GPU ----------------------------------------------------------------------------------


@pytest.mark.parametrize("device", [(0.0, 0.0), (4.0, 0.3), (0.0, 4.9)])
def test_a_gpu_that_waits_for_nothing_has_a_model_as_its_bottleneck(device: Any) -> None:
    """However long the program waits: it only has to be ahead of the GPU."""
    numbers = told(device=device, sampling=60.0, turn=50.0)
    assert numbers.verdict == "the GPU waits for nothing: your model is the bottleneck"


def test_a_gpu_that_waits_for_busy_workers_wants_more_of_them() -> None:
    assert told(device=(43.0, 2.0), sampling=43.0, turn=90.0).verdict == (
        "the GPU waits for batches 43% of the time: "
        "the workers are the bottleneck (8 of 8 busy): give more"
    )


def test_workers_that_others_use_may_be_shared_out_differently() -> None:
    numbers = told(device=(43.0, 2.0), sampling=43.0, turn=90.0)
    assert replace(numbers, hub=hub(4, 3, 0, 1)).verdict == (
        "the GPU waits for batches 43% of the time: the workers are the bottleneck "
        "(8 of 8 busy, for 3 loaders): give more, or this loader a larger weight"
    )


def test_too_few_slots_are_told_of() -> None:
    assert told(device=(30.0, 0.0), sampling=30.0, turn=1.0, credit=60.0).verdict == (
        "the GPU waits for batches 30% of the time: "
        "slots are the bottleneck: give a larger prefetch, or keep fewer batches"
    )


def test_workers_that_are_idle_are_not_blamed() -> None:
    numbers = told(device=(30.0, 0.0), sampling=30.0, turn=1.0, credit=0.0)
    assert replace(numbers, hub=hub(1, busy=1)).verdict == (
        "the GPU waits for batches 30% of the time: workers are not the bottleneck (1 of 8 busy), "
        "but the way to them, or epochs of few batches"
    )


def test_a_program_that_makes_batches_itself_wants_workers() -> None:
    numbers = told(device=(30.0, 0.0), sampling=30.0)
    assert replace(numbers, num_workers=0, hub={}).verdict == (
        "the GPU waits for batches 30% of the time: give more workers (num_workers)"
    )


def test_a_gpu_may_wait_for_what_the_program_does_with_batches() -> None:
    text = "the GPU waits for batches 20% of the time: "
    transform = told(device=(20.0, 1.0), sampling=2.0, transform=19.0)
    assert transform.verdict == text + "your transform is the bottleneck"
    transfer = told(device=(20.0, 1.0), sampling=2.0, transfer=19.0)
    assert transfer.verdict == text + "making tensors of batches is the bottleneck"


def test_a_gpu_may_wait_for_copies() -> None:
    assert told(device=(2.0, 12.0), sampling=10.0).verdict == (
        "the GPU waits for copies 12% of the time: "
        "let batches have fewer bytes, or give a larger device_prefetch"
    )
    assert told(device=(2.0, 12.0), staged=310).verdict == (
        "the GPU waits for copies 12% of the time: "
        "31% of the bytes are not in page-locked memory, and copied once more"
    )


# --- without one ---------------------------------------------------------------------------------


def test_a_program_may_wait_for_batches() -> None:
    assert told(sampling=38.0, turn=80.0).verdict == (
        "your program waits for batches 38% of the time: "
        "the workers are the bottleneck (8 of 8 busy): give more"
    )


def test_a_program_may_wait_for_nothing() -> None:
    assert told(sampling=4.0, transfer=4.0, transform=4.0, credit=90.0).verdict == (
        "your program waits for nothing: its own work is the bottleneck"
    )


def test_a_program_may_be_held_up_by_what_it_does_with_batches() -> None:
    assert told(sampling=4.0, transform=30.0).verdict == (
        "your transform takes 30% of your program's time: it is the bottleneck"
    )
    assert told(sampling=4.0, transfer=30.0).verdict == (
        "making tensors of batches takes 30% of your program's time: it is the bottleneck"
    )


# --- when it can be told -------------------------------------------------------------------------


@pytest.mark.parametrize("device", [None, (43.0, 2.0)])
def test_a_few_batches_are_too_early_to_judge_by(device: Any) -> None:
    numbers = told(device=device, sampling=90.0, turn=90.0)
    assert replace(numbers, batches=ENOUGH_BATCHES - 1).verdict == TOO_EARLY
    assert TOO_EARLY.startswith("too early to say")
    assert replace(numbers, batches=ENOUGH_BATCHES).verdict != TOO_EARLY
    assert replace(numbers, batches=0, seconds=0.0).verdict == TOO_EARLY


def test_the_wait_for_the_first_batch_does_not_count() -> None:
    numbers = replace(told(sampling=22.0, turn=22.0), time_to_first_batch=20.0)
    assert whole_run(numbers).sampling == pytest.approx(2.0 / 80)
    assert "waits for nothing" in numbers.verdict
    late = replace(numbers, time_to_first_batch=30.0)  # part of it was the user's own
    assert whole_run(late).sampling == 0.0


def test_what_is_as_large_as_the_threshold_counts() -> None:
    assert "waits for batches 5%" in told(sampling=LITTLE * SECONDS).verdict


def test_the_last_seconds_can_be_judged_alone() -> None:
    first = told(device=(40.0, 0.0), sampling=40.0)
    last = replace(
        told(device=(40.1, 3.0), sampling=40.1, turn=0.0), batches=600, seconds=SECONDS + 10
    )
    recent = between(first, last, 10.0)
    assert recent.device_batches == pytest.approx(0.01)
    assert recent.device_copies == pytest.approx(0.3)
    assert "waits for batches 3" in last.verdict
    assert "waits for copies 30%" in verdict_of(last, recent)


def test_counters_that_begin_anew_are_no_time_gained() -> None:
    """The pool's, when a channel is opened again."""
    recent = between(told(turn=90.0), replace(told(turn=1.0), batches=600), 10.0)
    assert recent.turn == 0.0


def test_a_wait_that_ends_in_the_window_is_no_more_than_the_window() -> None:
    assert between(told(sampling=1.0), told(sampling=60.0), 10.0).sampling == 1.0


# --- from a loader -------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_leaks")
@pytest.mark.parametrize("seed", [None, 1])
def test_a_loader_with_a_device_has_a_verdict_on_the_gpu(
    seed: int | None, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    stand_in_for_cuda(monkeypatch, StandIn(seed))
    with everyday(small_data(), device="cuda", num_workers=1) as loader:
        assert loader.statistics().verdict == TOO_EARLY
        with loader.watch():
            digests(loader)
        assert loader.statistics().verdict.startswith("the GPU waits for ")
    last = capsys.readouterr().err.splitlines()[-1]
    assert "; GPU waits: batches " in last
    assert "; the GPU waits for " in last
