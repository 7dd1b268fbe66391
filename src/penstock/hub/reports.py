"""Errors on their way to a rank: from what happened here to what is raised over there.

Every report says what went wrong and, where there is one, which setting to turn. They are bounded:
a worker can print megabytes, and a rank may leave its errors unread.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from msgspec import structs

from penstock.core.events import Fail
from penstock.errors import PenstockError, SamplingError, WorkerDied
from penstock.wire.messages import Report
from penstock.workers.autopsy import Autopsy

LONGEST: Final = 64 << 10
SHORT: Final = 2 << 10
# In the details of a report: what the error came of, in few words.
CAUSE: Final = "cause_of"
REPLAY: Final = "To sample this batch again, in the foreground:"


def report_of(error: Exception) -> Report:
    """An error of ours, as the rank is to see it."""
    report = _plain_report(error)
    if not isinstance(error, PenstockError):
        return report
    details = dict(error.details)
    if isinstance(error.__cause__, Exception):
        cause = brief(_plain_report(error.__cause__))
        details[CAUSE] = {"kind": cause.kind, "message": cause.message}
    return structs.replace(report, details=details)


def _plain_report(error: Exception) -> Report:
    # A KeyError's text is the repr of its argument.
    message = str(error.args[0]) if type(error) is KeyError and error.args else str(error)
    kind = next((k for k in type(error).__mro__ if _is_raised_by_name(k)), PenstockError)
    return Report(kind=kind.__name__, message=shortened(message, LONGEST) or kind.__name__)


def _is_raised_by_name(kind: type) -> bool:
    """Whether a rank raises this very class when it reads its name."""
    return kind in _PLAIN or kind.__module__ == PenstockError.__module__


# What may be blamed on the caller, or on the system, beside our own errors.
_PLAIN: Final = (ValueError, KeyError, TypeError, MemoryError, TimeoutError, OSError)


@dataclass(frozen=True, slots=True)
class Mishap:
    """What went wrong when the seeds at `index` were sampled: the worker told, or died of it."""

    index: int
    what: Report | Autopsy


def failure_report(order: Fail, mishap: Mishap | None, command: str | None) -> Report:
    """Why a rank will not get a batch."""
    match mishap:
        case Mishap(what=Autopsy() as autopsy):
            report = _death_report(replace(autopsy, command=command), order.attempts)
        case Mishap(what=Report() as said):
            again = f"\n{REPLAY}\n  {command}" if command else ""
            report = structs.replace(said, message=shortened(said.message, LONGEST) + again)
        case _:
            report = Report(kind=SamplingError.__name__, message=order.cause)
    return structs.replace(report, details={**report.details, "attempts": order.attempts})


def _death_report(autopsy: Autopsy, attempts: int) -> Report:
    """A batch lost its workers: the whole story of the last one."""
    first = f"given up after {attempts} attempts, this was the last:\n" if attempts > 1 else ""
    return Report(
        kind=WorkerDied.__name__,
        message=shortened(first + autopsy.text(), LONGEST),
        details={
            "worker": autopsy.ended.worker,
            "pid": autopsy.ended.pid,
            "cause": autopsy.cause,
            "verdict": autopsy.verdict,
            "out_of_memory": autopsy.out_of_memory,
        },
    )


def brief(report: Report) -> Report:
    """The same in few words, for a rank that has much to read already."""
    return structs.replace(report, message=shortened(report.message, SHORT))


def breaker_report(group: str, cause: str, story: str = "") -> Report:
    """Nobody can be started to serve a channel."""
    whom = f"for {group!r} " if group else ""
    message = f"no worker {whom}can be started: {cause}"
    if story:
        message = f"{message}\n{story}"
    return Report(kind=WorkerDied.__name__, message=shortened(message, LONGEST))


def shortened(text: str, longest: int) -> str:
    """At most so many characters: the beginning and, more of it, the end."""
    if len(text) <= longest:
        return text
    head = longest // 4
    tail = longest - head
    return f"{text[:head]}\n… {len(text) - longest} characters left out …\n{text[-tail:]}"
