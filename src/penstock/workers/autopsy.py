"""Finds why a worker died: turns the facts about its end into a verdict and a report.

Pure: `examine` uses facts that others gathered, and claims no more than they show. It says "out of
memory" only when the kernel's own counters moved or a limit of ours was met.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from penstock.core.events import KillReason
from penstock.workers.ended import Breach, Ended
from penstock.workers.exits import EXIT_MEMORY, EXIT_ORPHANED, EXIT_SAMPLER
from penstock.workers.incident import HeldBatch, again, chapter, megabytes
from penstock.workers.libraries import loaded_twice, short_names
from penstock.workers.process import signal_name, state_in_words
from penstock.workers.stacks import Dump, last_dump, last_exception

_LINES_SHOWN: Final = 40

_SIGNALS: Final = {
    signal.SIGSEGV: "it touched memory that is not its own, in native code",
    signal.SIGBUS: "mapped memory was not there: a file was cut short, or shared memory is full",
    signal.SIGABRT: "native code gave up (abort)",
    signal.SIGFPE: "a division by zero or the like, in native code",
    signal.SIGILL: "an instruction this processor does not have: a library built for another one",
    signal.SIGTERM: "somebody told it to end; the hub did not",
    signal.SIGHUP: "its terminal or its hub is gone",
    signal.SIGXCPU: "a limit on processor time struck",
    signal.SIGSYS: "a system call that a sandbox forbids",
}


@dataclass(frozen=True, slots=True)
class Autopsy:
    """What a worker died of. `cause` is a few words, the same for the same kind of death."""

    cause: str
    verdict: str
    out_of_memory: bool
    ended: Ended
    batch: HeldBatch | None
    stacks: Dump | None
    printed: str  # without the stacks
    command: str | None
    host: str = ""

    def text(self) -> str:
        """Return the whole report; it ends with the command that samples the batch again."""
        return "\n".join(_story(self))


def examine(
    ended: Ended, batch: HeldBatch | None = None, command: str | None = None, host: str = ""
) -> Autopsy:
    """Return the conclusions.

    `command` samples the batch again in the foreground. `host` is the name of the machine.
    """
    stacks, printed = last_dump(ended.printed)
    finding = _finding(ended, printed)
    return Autopsy(
        cause=finding.cause,
        verdict=finding.sentence(ended),
        out_of_memory=finding.cause == _OUT_OF_MEMORY,
        ended=ended,
        batch=batch,
        stacks=stacks,
        printed=printed,
        command=command,
        host=host,
    )


# --- the verdict -----------------------------------------------------------------------------

_OUT_OF_MEMORY: Final = "out of memory"


@dataclass(frozen=True, slots=True)
class _Finding:
    cause: str
    reason: str = ""
    tells_when: bool = False

    def sentence(self, ended: Ended) -> str:
        known = self.tells_when or ended.was_ready or ended.asked_to_leave
        when = "" if known else " before it was ready"
        return f"{self.cause}{when}: {self.reason}" if self.reason else f"{self.cause}{when}"


def _finding(ended: Ended, printed: str) -> _Finding:
    ours = (signal.SIGKILL, signal.SIGTERM) if ended.killed is Breach.CLOSING else (signal.SIGKILL,)
    if ended.killed is not None and ended.exit.signal in ours:
        return _killed_by_us(ended, ended.killed)
    if ended.struck is not None or ended.exit.code == EXIT_MEMORY:
        return _Finding(_OUT_OF_MEMORY, _limit_in_words(ended))
    if ended.exit.signal is not None:
        return _by_signal(ended, ended.exit.signal)
    return _by_exit_code(ended, printed)


def _killed_by_us(ended: Ended, why: KillReason | Breach) -> _Finding:
    also = _state_in_words(ended)
    match why:
        case KillReason.DEADLINE:
            return _Finding("past its deadline", f"the hub killed it{also}")
        case KillReason.SILENCE:
            silent = f"no heartbeat for {ended.beat_age:.1f} s"
            return _Finding("silent", f"{silent}, so the hub killed it{also}")
        case KillReason.START:
            took = f"not ready after {ended.lived:.1f} s"
            return _Finding("slow to start", f"{took}, so the hub killed it{also}", tells_when=True)
        case KillReason.MEMORY:
            return _Finding(_OUT_OF_MEMORY, f"past its hard limit, so the hub killed it{also}")
        case Breach.GARBLED:
            return _Finding("garbled", f"it sent what is no message ({ended.garbled})")
        case Breach.DEAF:
            return _Finding("deaf", "it closed its connection and did not end")
        case Breach.UNTOLD:
            return _Finding("untold", "the hub could not send it a message: too many open files")
        case Breach.CLOSING:
            return _Finding("closed", f"the pool was closed and it did not go{also}")


def _by_signal(ended: Ended, number: int) -> _Finding:
    name = signal_name(number)
    if number != signal.SIGKILL:
        return _Finding(name, _SIGNALS.get(signal.Signals(number), "") if name[:3] == "SIG" else "")
    kills = ended.kills
    if not kills.moved:
        return _Finding(
            "SIGKILL, no sign of memory pressure", "somebody killed it, and it was not the hub"
        )
    return _Finding(_OUT_OF_MEMORY, f"the kernel killed it; {kills.source} moved")


def _by_exit_code(ended: Ended, printed: str) -> _Finding:
    match ended.exit.code:
        case 0 if ended.asked_to_leave:
            return _Finding("left as asked")
        case 0:
            return _Finding("exit code 0 without being asked", "something in it called exit")
        case code if code == EXIT_SAMPLER:
            return _Finding("its sampler cannot be loaded", _last_word(printed), tells_when=True)
        case code if code == EXIT_ORPHANED:
            return _Finding("orphaned", "it found its connection to the hub closed")
        case _:
            return _Finding(ended.exit.words, _last_word(printed))


def _last_word(printed: str) -> str:
    """Return the last exception it printed, or else its last line."""
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    return last_exception(printed) or (lines[-1] if lines else "")


def _limit_in_words(ended: Ended) -> str:
    if ended.struck is None:
        return "it met its own hard limit"
    limit, held = megabytes(ended.struck.limit), megabytes(ended.struck.private)
    return f"it met its own hard limit of {limit} with {held} in hand"


def _state_in_words(ended: Ended) -> str:
    if ended.state in ("T", "t"):
        # A stopped process runs no signal handler, so it could not show its stacks.
        return f"; it was {state_in_words(ended.state)} (state {ended.state})"
    return f"; it was {state_in_words(ended.state)}" if ended.state else ""


# --- the report ------------------------------------------------------------------------------


def _story(autopsy: Autopsy) -> Iterator[str]:
    ended = autopsy.ended
    yield f"worker {ended.worker} (pid {ended.pid}): {autopsy.verdict}"
    for name, tell in _CHAPTERS:
        yield from chapter(name, tell(autopsy))
    yield from again(autopsy.command)


def _tell_batch(autopsy: Autopsy) -> Iterator[str]:
    yield "none begun" if autopsy.batch is None else autopsy.batch.describe()


def _tell_seeds(autopsy: Autopsy) -> Iterator[str]:
    if autopsy.batch is not None:
        yield autopsy.batch.describe_seeds()


def _tell_host(autopsy: Autopsy) -> Iterator[str]:
    if autopsy.host:
        yield autopsy.host


def _tell_end(autopsy: Autopsy) -> Iterator[str]:
    ended = autopsy.ended
    group = f" of group {ended.group!r}" if ended.group else ""
    made = 0 if ended.last_beat is None else ended.last_beat.batches
    yield (
        f"{ended.exit.words} after {ended.lived:.1f} s{group}, {made} batches told of, "
        f"{ended.exit.cpu:.1f} s of processor time"
    )


def _tell_memory(autopsy: Autopsy) -> Iterator[str]:
    beat, age = autopsy.ended.last_beat, autopsy.ended.beat_age
    peak = f"peak {megabytes(autopsy.ended.exit.peak)} with all that is shared"
    if beat is None:
        yield f"no reading; {peak}"
    else:
        yield f"{megabytes(beat.private)} of its own {age:.1f} s before its end; {peak}"


def _tell_kernel(autopsy: Autopsy) -> Iterator[str]:
    yield f"killed for lack of memory: {autopsy.ended.kills.describe()}"


def _tell_stacks(autopsy: Autopsy) -> Iterator[str]:
    if autopsy.stacks is None:
        yield "none"
        return
    if autopsy.stacks.reason:
        yield autopsy.stacks.reason
    for stack in autopsy.stacks.stacks:
        yield "the thread at fault, innermost call first:" if stack.current else "another thread:"
        yield from (f"  {frame}" for frame in stack.frames)


def _tell_libraries(autopsy: Autopsy) -> Iterator[str]:
    libraries = autopsy.ended.libraries
    for name, paths in loaded_twice(libraries).items():
        yield f"{name} is loaded {len(paths)} times: {', '.join(paths)}"
    if libraries:
        yield ", ".join(short_names(libraries))
    if autopsy.stacks is not None and autopsy.stacks.extensions:
        yield f"Python's extensions: {', '.join(autopsy.stacks.extensions)}"
    if not libraries and (autopsy.stacks is None or not autopsy.stacks.extensions):
        yield "unknown: it was not seen alive for long enough"


def _tell_output(autopsy: Autopsy) -> Iterator[str]:
    lines = autopsy.printed.splitlines()
    left_out = len(lines) > _LINES_SHOWN or autopsy.ended.dropped > 0
    if not lines:
        yield "nothing"
    if left_out:
        yield f"… the last {min(len(lines), _LINES_SHOWN)} lines:"
    yield from lines[-_LINES_SHOWN:]


_CHAPTERS: Final[tuple[tuple[str, Callable[[Autopsy], Iterator[str]]], ...]] = (
    ("batch", _tell_batch),
    ("seeds", _tell_seeds),
    ("host", _tell_host),
    ("end", _tell_end),
    ("memory", _tell_memory),
    ("kernel", _tell_kernel),
    ("stacks", _tell_stacks),
    ("native", _tell_libraries),
    ("stderr", _tell_output),
)
