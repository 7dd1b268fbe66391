"""Errors on their way to a rank: from what happened here to what is raised over there.

Every report says what went wrong and, where there is one, which setting to turn. They are bounded:
a worker can print megabytes, and a rank may leave its errors unread.
"""

from __future__ import annotations

from typing import Final

from penstock.core.events import Fail
from penstock.errors import SamplingError, WorkerDied
from penstock.wire.messages import Report
from penstock.workers.autopsy import Autopsy

LONGEST: Final = 64 << 10
SHORT: Final = 2 << 10


def report_of(error: Exception) -> Report:
    """An error of ours, as the rank is to see it."""
    # A KeyError's text is the repr of its argument.
    message = str(error.args[0]) if type(error) is KeyError and error.args else str(error)
    known = next(kind for kind in type(error).__mro__ if kind.__module__ in _RAISED_BY_NAME)
    return Report(kind=known.__name__, message=message or known.__name__)


# Where a rank finds the classes of errors by their names.
_RAISED_BY_NAME: Final = ("builtins", "penstock.errors")


def death_report(autopsy: Autopsy) -> Report:
    """A batch lost a worker: the whole story."""
    return Report(
        kind=WorkerDied.__name__,
        message=shortened(autopsy.text(), LONGEST),
        details={
            "worker": autopsy.ended.worker,
            "pid": autopsy.ended.pid,
            "cause": autopsy.cause,
            "verdict": autopsy.verdict,
            "out_of_memory": autopsy.out_of_memory,
        },
    )


def failure_report(order: Fail, known: Report | None, *, brief: bool) -> Report:
    """Why a rank will not get a batch: what its worker said, or what its worker died of."""
    report = known or Report(kind=SamplingError.__name__, message=order.cause)
    message, attempts = report.message, order.attempts
    if report.kind == WorkerDied.__name__ and attempts > 1:
        message = f"given up after {attempts} attempts, of which this was the last\n{message}"
    return Report(
        kind=report.kind,
        message=shortened(message, SHORT if brief else LONGEST),
        details={**report.details, "attempts": attempts},
    )


def breaker_report(crew: str, cause: str, story: str = "") -> Report:
    """Nobody can be started to serve a channel."""
    whom = f"for {crew!r} " if crew else ""
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
