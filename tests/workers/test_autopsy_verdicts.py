"""From the facts about an end to one sentence, which claims no more than they show."""

from __future__ import annotations

import signal
from dataclasses import replace

import pytest

from penstock.core.events import KillReason
from penstock.wire.messages import Heartbeat, OutOfMemory
from penstock.workers.autopsy import examine
from penstock.workers.ended import Breach, Ended
from penstock.workers.exits import EXIT_MEMORY, EXIT_ORPHANED, EXIT_SAMPLER
from penstock.workers.oom import Counters, Kills
from penstock.workers.process import Exit

STILL = Kills(Counters(0.0, 3, 9), Counters(5.0, 3, 9), moved=False)
MOVED = Kills(Counters(0.0, 3, 9), Counters(5.0, 4, 10), moved=True)

LIVED = Ended(
    worker=2,
    group="",
    pid=4321,
    exit=Exit(code=None, signal=signal.SIGKILL, cpu=1.25, peak=90 << 20),
    was_ready=True,
    asked_to_leave=False,
    lived=12.0,
    kills=STILL,
    last_beat=Heartbeat(private=64 << 20, cpu=1.0, batches=17),
    beat_age=0.4,
)


def by_signal(number: int, **facts: object) -> Ended:
    return replace(LIVED, exit=Exit(None, number), **facts)  # type: ignore[arg-type]


def by_code(code: int, **facts: object) -> Ended:
    return replace(LIVED, exit=Exit(code, None), **facts)  # type: ignore[arg-type]


def test_sigkill_alone_is_no_sign_of_memory_pressure() -> None:
    """CONTRACT 49: never "out of memory" on suspicion."""
    autopsy = examine(LIVED)
    assert autopsy.cause == "SIGKILL, no sign of memory pressure"
    assert "out of memory" not in autopsy.text()


def test_sigkill_with_a_kernel_counter_that_moved_is_out_of_memory() -> None:
    """CONTRACT 49: the kernel's own counters."""
    autopsy = examine(replace(LIVED, kills=MOVED))
    assert autopsy.verdict == (
        "out of memory: the kernel killed it; the oom_kill counter of its control group moved"
    )
    assert "its control group 3 → 4, machine 9 → 10" in autopsy.text()


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGTERM, signal.SIGABRT])
def test_another_signal_is_not_put_down_to_memory_by_a_counter(number: signal.Signals) -> None:
    """CONTRACT 49: the kernel kills by SIGKILL, and by nothing else."""
    autopsy = examine(by_signal(number, kills=MOVED))
    assert autopsy.cause == number.name
    assert not autopsy.out_of_memory


@pytest.mark.parametrize("number", sorted(signal.valid_signals()))
def test_every_signal_has_a_name_and_a_verdict(number: int) -> None:
    """CONTRACT 49: the signal by name."""
    name = next((s.name for s in signal.Signals if s == number), f"signal {number}")
    assert examine(by_signal(number)).verdict.startswith(name)


def test_our_own_limit_is_out_of_memory() -> None:
    """CONTRACT 49: our own limit struck."""
    words = OutOfMemory(batch=None, limit=256 << 20, private=250 << 20)
    assert examine(by_code(1, struck=words)).verdict == (
        "out of memory: it met its own hard limit of 256.0 MiB with 250.0 MiB in hand"
    )


def test_our_own_limit_is_known_by_the_exit_code_when_words_failed() -> None:
    """CONTRACT 49: our own limit struck, and left no memory to say so."""
    assert examine(by_code(EXIT_MEMORY)).out_of_memory


def test_killed_by_the_hub_for_memory_is_out_of_memory() -> None:
    """CONTRACT 52: over the hard limit."""
    assert examine(replace(LIVED, killed=KillReason.MEMORY)).out_of_memory


@pytest.mark.parametrize(
    ("why", "cause"),
    [
        (KillReason.DEADLINE, "past its deadline"),
        (KillReason.SILENCE, "silent"),
        (KillReason.START, "slow to start"),
        (Breach.GARBLED, "garbled"),
        (Breach.DEAF, "deaf"),
        (Breach.UNTOLD, "untold"),
        (Breach.CLOSING, "closed"),
    ],
)
def test_what_the_hub_did_is_not_put_down_to_anybody_else(
    why: KillReason | Breach, cause: str
) -> None:
    autopsy = examine(replace(LIVED, killed=why, kills=MOVED))
    assert (autopsy.cause, autopsy.out_of_memory) == (cause, False)


def test_a_worker_that_was_stopped_is_said_to_have_been() -> None:
    """CONTRACT 51: a stopped process cannot show its stacks; then its state is named."""
    verdict = examine(replace(LIVED, killed=KillReason.SILENCE, state="T", beat_age=11.0)).verdict
    assert verdict == (
        "silent: no heartbeat for 11.0 s, so the hub killed it; it was stopped (state T)"
    )


def test_one_that_died_before_the_hub_could_kill_it_died_of_that() -> None:
    assert examine(by_signal(signal.SIGSEGV, killed=KillReason.DEADLINE)).cause == "SIGSEGV"


def test_an_exit_code_comes_with_the_exception() -> None:
    printed = (
        "Traceback (most recent call last):\n"
        '  File "sampler.py", line 3, in sample\n'
        "    raise KeyError(7)\n"
        "KeyError: 7\n"
        "and something else\n"
    )
    assert examine(by_code(1, printed=printed)).verdict == "exit code 1: KeyError: 7"


def test_an_exit_code_without_an_exception_comes_with_the_last_line() -> None:
    assert examine(by_code(5, printed="one\n two \n\n")).verdict == "exit code 5: two"


def test_an_exit_code_of_a_silent_worker_is_all_there_is() -> None:
    assert examine(by_code(5)).verdict == "exit code 5"


def test_leaving_unasked_is_told_from_leaving_as_asked() -> None:
    unasked, asked = by_code(0), by_code(0, asked_to_leave=True)
    assert examine(unasked).cause == "exit code 0 without being asked"
    assert examine(asked).verdict == "left as asked"


def test_a_death_before_ready_says_so() -> None:
    """CONTRACT 53: deaths at the start are told from others."""
    verdict = examine(by_signal(signal.SIGSEGV, was_ready=False)).verdict
    assert verdict.startswith("SIGSEGV before it was ready: ")


def test_a_sampler_that_cannot_be_loaded_is_named_with_its_error() -> None:
    ended = by_code(EXIT_SAMPLER, was_ready=False, printed="cannot import 'mine'\n")
    assert examine(ended).verdict == "its sampler cannot be loaded: cannot import 'mine'"


def test_a_worker_that_lost_its_hub_says_so() -> None:
    assert examine(by_code(EXIT_ORPHANED)).cause == "orphaned"


def test_an_end_that_nobody_saw_is_unknown() -> None:
    assert examine(replace(LIVED, exit=Exit(None, None))).verdict == "exit status unknown"
