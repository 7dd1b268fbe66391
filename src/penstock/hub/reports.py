"""Reports: errors as messages, which the rank raises again as exceptions.

Every report says what went wrong and, if there is one, which setting to change. Reports are limited
in size, because a worker can print megabytes, and a rank may leave its errors unread.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from msgspec import structs

from penstock.core.events import Fail
from penstock.errors import PenstockError, SamplingError, WorkerDied
from penstock.wire.messages import CAUSE, Report
from penstock.workers.autopsy import Autopsy
from penstock.workers.failures import Failure
from penstock.workers.incident import HeldBatch

LONGEST: Final = 64 << 10
SHORT: Final = 2 << 10


def report_of(error: Exception) -> Report:
    """Return the report of an error of the hub, for the rank to raise."""
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
    """Return whether a rank finds and raises this class by its name."""
    return kind in _PLAIN or kind.__module__ == PenstockError.__module__


# Besides Penstock's own errors: those caused by the caller or by the system.
_PLAIN: Final = (ValueError, KeyError, TypeError, MemoryError, TimeoutError, OSError)


@dataclass(frozen=True, slots=True)
class Mishap:
    """What went wrong with the seeds at `index`: an exception, or the death of a worker."""

    index: int
    what: Failure | Autopsy


def failure_report(
    order: Fail, mishap: Mishap | None, batch: HeldBatch | None, command: str | None
) -> Report:
    """Return the report on why a rank will not get a batch; `batch` is what is known of it."""
    match mishap:
        case Mishap(what=Autopsy() as autopsy):
            report = _death_report(replace(autopsy, command=command), order.attempts)
        case Mishap(what=Failure() as failure) if batch is not None:
            report = failure.full_report(batch, command)
            report = structs.replace(report, message=shortened(report.message, LONGEST))
        case _:
            report = Report(kind=SamplingError.__name__, message=order.cause)
    return structs.replace(report, details={**report.details, "attempts": order.attempts})


def _death_report(autopsy: Autopsy, attempts: int) -> Report:
    """Return the report on a batch that lost its workers, with the autopsy of the last one."""
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
            "host": autopsy.host,
        },
    )


def brief(report: Report) -> Report:
    """Return the report with a shortened message, for a rank with many unread messages."""
    return structs.replace(report, message=shortened(report.message, SHORT))


def breaker_report(group: str, cause: str, story: str = "") -> Report:
    """Return the report on a group whose workers cannot be started."""
    whom = f"for {group!r} " if group else ""
    message = f"no worker {whom}can be started: {cause}"
    if story:
        message = f"{message}\n{story}"
    return Report(kind=WorkerDied.__name__, message=shortened(message, LONGEST))


def shortened(text: str, longest: int) -> str:
    """Return `longest` characters of a text: a quarter from its start, the rest from its end."""
    if len(text) <= longest:
        return text
    head = longest // 4
    tail = longest - head
    return f"{text[:head]}\n… {len(text) - longest} characters left out …\n{text[-tail:]}"
