"""Facts and figures in words, with no more digits than mean something."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.doctor.facts import Cores, Driver, Gpu, Limit, Limits, Memory, Native, Pinning, Torch
from penstock.doctor.figures import Figures, Gathering, Moving, Sampling, Subject
from penstock.doctor.numbers import in_one_line, many, plain, rate, rounded
from penstock.doctor.words import facts_in_words, figures_in_words
from tests.doctor.machines import CUDA, FINE, GB, H200, machine

PINNING = Pinning(16 * GB, 64 << 20)
FIGURES = Figures(
    Subject(500_000, 8_000_000, 512, 1024, (10, 5)),
    9.87,
    Sampling(0, 706.0, 16_712_345.0),
    Sampling(7, 4321.0, 98_765_432.0),
    Gathering(1.88e9, 3.77e9),
)


@pytest.mark.parametrize(
    ("number", "told"),
    [(0.3123, "0.31"), (4.71, "4.7"), (52.3, "52"), (1267, "1,300"), (99.6, "100"), (0, "0")],
)
def test_a_measured_number_has_two_digits(number: float, told: str) -> None:
    assert plain(number) == told


def test_large_numbers_are_told_in_millions() -> None:
    assert [many(840), many(25_400_000), many(1.3e9)] == ["840", "25 million", "1.3 billion"]


def test_a_rate_has_two_digits() -> None:
    assert [rate(3.14e8), rate(5.54e10)] == ["0.31 GB/s", "55 GB/s"]


def test_an_error_of_several_lines_or_without_words_takes_one_line() -> None:
    assert [in_one_line(OSError("no\n  room")), in_one_line(KeyError())] == ["no room", "KeyError"]


def test_rounding_keeps_the_digits_that_were_asked_for() -> None:
    assert [rounded(123456, 3), rounded(0.0012345, 3), rounded(0.0)] == [123000, 0.00123, 0]


def test_facts_are_told_in_words() -> None:
    told = dict(facts_in_words(machine(cores=Cores(16, 8, 2.5))))
    assert told["versions"] == (
        "Penstock 1.0, Python 3.12.1, NumPy 2.4.0, torch 2.9.0 without CUDA, PyG 2.7.0"
    )
    assert told["cores"] == (
        "16 cores, this process may run on 8, the control group (container) grants the time of "
        '2.5; num_workers="auto" starts 1 worker'
    )
    assert told["shared memory"] == "anonymous (memfd); /dev/shm has 34.4 GB of 34.4 GB free"
    assert told["GPU"] == "none"


def test_limits_are_told_with_what_they_can_be_raised_to() -> None:
    limits = Limits(Limit(1024, None), Limit(64 << 10, 64 << 10), processes=Limit(500, 1000))
    memory = Memory(64 * GB, 48 * GB, 8 * GB, 6 * GB)
    told = dict(facts_in_words(machine(limits=limits, memory=memory)))
    assert told["limits"] == (
        "open files 1,024 (up to any number), processes 500 (up to 1,000), "
        "locked memory 65.5 kB, address space unlimited"
    )
    assert told["memory"] == (
        "51.5 GB of 68.7 GB free; 6.4 GB left of 8.6 GB that the control group (container) allows"
    )


def test_a_gpu_is_told_with_its_memory_its_driver_and_what_can_be_locked() -> None:
    torch = replace(CUDA, pinning=PINNING)
    driver = Driver(("/dev/nvidia0",), "580.159.03")
    told = dict(facts_in_words(machine(torch=torch, driver=driver)))
    assert told["GPU"] == "NVIDIA H200 (141.0 GB); driver 580.159.03"
    assert told["pinned memory"] == "works (67.1 MB tried); a loader pins 17.2 GB at most"


def test_gpus_of_a_kind_are_counted() -> None:
    torch = replace(CUDA, gpus=(H200, H200, Gpu("NVIDIA T4", 16 * 10**9)))
    told = dict(facts_in_words(machine(torch=torch)))
    assert told["GPU"] == "2 x NVIDIA H200 (141.0 GB), NVIDIA T4 (16.0 GB)"
    assert told["pinned memory"] == "not tried: the loaders cannot be used"


def test_what_is_missing_is_told() -> None:
    facts = replace(FINE, torch=Torch(), native=Native(trouble="no such file"))
    told = dict(facts_in_words(facts))
    assert told["versions"].endswith("NumPy 2.4.0, no torch, no PyG")
    assert told["native module"] == "fails: no such file"


def test_figures_are_told_in_words() -> None:
    told = dict(figures_in_words(FIGURES, FINE.torch))
    assert told["sampling, no workers"] == "710 batches a second, 17 million edges a second"
    assert told["sampling, 7 workers"] == "4,300 batches a second, 99 million edges a second"
    assert told["gathering rows"] == "1.9 GB/s, by one thread; a plain copy: 3.8 GB/s"
    assert told["moving to a GPU"] == "not measured: torch sees none"


def test_moving_is_told_where_there_is_a_gpu() -> None:
    torch = replace(CUDA, pinning=PINNING)
    figures = replace(FIGURES, moving=Moving(412.0, 1.23e10, 5.5e10))
    assert dict(figures_in_words(figures, torch))["moving to a GPU"] == (
        "410 batches a second with their rows, 12 GB/s; a bare copy: 55 GB/s"
    )


def test_what_failed_is_told() -> None:
    told = dict(figures_in_words(replace(FIGURES, pool=None), FINE.torch))
    assert told["sampling, workers"] == "failed"
