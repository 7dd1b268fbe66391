"""Turns an exception in a batch into the report that its rank receives.

The report on an exception has what one on a worker's death has (`autopsy`), as far as it is known
of a process that lives on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from msgspec import structs

from penstock import errors
from penstock.errors import BatchTooLarge, SamplingError
from penstock.sampling.buffer import SlotTooSmall
from penstock.sampling.custom import fit_for_message, traceback_of
from penstock.wire.messages import Report
from penstock.workers.incident import HeldBatch, again, chapter, megabytes
from penstock.workers.stacks import last_exception

# Bounds of what a message says of an exception's classes.
_MOST_CLASSES: Final = 32
_LONGEST_NAME: Final = 255


def report_of(error: BaseException) -> Report:
    """Return the report on an exception.

    Our own errors keep their names; bad arguments are reported by their message, all others with
    their traceback. Both of these become a `SamplingError`.
    """
    if isinstance(error, BatchTooLarge):
        details = {"nodes": error.nodes, "edges": error.edges}
        return Report(kind="BatchTooLarge", message=str(error), details=details)
    if getattr(errors, type(error).__name__, None) is type(error):
        return Report(kind=type(error).__name__, message=fit_for_message(str(error)))
    message = fit_for_message(str(error)) if isinstance(error, ValueError) else traceback_of(error)
    return Report(kind=SamplingError.__name__, message=message)


@dataclass(frozen=True, slots=True)
class Failure:
    """An exception in a batch, and the process that it was raised in.

    `report` is what `report_of` returned for it, `classes` what `classes_of` did.
    """

    report: Report
    classes: tuple[str, ...]
    pid: int
    host: str
    private: int  # bytes of the process's own memory at that time
    worker: int | None = None  # None without a pool
    attempt: int = 1

    @property
    def verdict(self) -> str:
        """The exception in one line."""
        message = self.report.message
        return last_exception(message) or next(iter(message.splitlines()), self.report.kind)

    def full_report(self, batch: HeldBatch, command: str | None) -> Report:
        """Return the report with all that is known."""
        details: dict[str, Any] = {"pid": self.pid, "host": self.host, "verdict": self.verdict}
        if self.worker is not None:
            details["worker"] = self.worker
        if self.classes:
            details["exception"] = self.classes[0]
        text = "\n".join(self._story(batch, command))
        return structs.replace(
            self.report, message=text, details={**self.report.details, **details}
        )

    def _story(self, batch: HeldBatch, command: str | None) -> Iterator[str]:
        if batch.attempt > 1:
            yield f"given up after {batch.attempt} attempts, this was the last:"
        who = "this process" if self.worker is None else f"worker {self.worker}"
        yield f"{who} (pid {self.pid}): {self.verdict}"
        yield from chapter("batch", [batch.describe()])
        yield from chapter("seeds", [batch.describe_seeds()])
        yield from chapter("host", [self.host])
        yield from chapter("memory", [f"{megabytes(self.private)} of its own when it raised"])
        if self.report.message != self.verdict:
            yield self.report.message
        yield from again(command)


def classes_of(error: BaseException) -> tuple[str, ...]:
    """Return the names of the classes of what the sampler raised, the derived ones first."""
    kinds = type(raised_by_user(error)).__mro__[:_MOST_CLASSES]
    return tuple(class_name(kind) for kind in kinds)


def raised_by_user(error: BaseException) -> BaseException:
    """Return what the user's code raised, for an error that was made of it; else the error."""
    cause = error.__cause__ if isinstance(error, SamplingError) else None
    return error if cause is None else cause


def class_name(kind: type) -> str:
    """Return a class's full name; a built-in one's without its module."""
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return f"{module}{kind.__qualname__}"[:_LONGEST_NAME]


def is_passing(classes: Sequence[str], retry_on: Sequence[str]) -> bool:
    """Return whether one of the classes is among those whose errors may go away by themselves."""
    return any(f".{name}".endswith(f".{wanted}") for name in classes for wanted in retry_on)


def too_large(small: SlotTooSmall, most_bytes: int) -> BatchTooLarge:
    """Return the error for a batch that needs more memory than its channel allows."""
    return BatchTooLarge(
        f"the batch needs {small.needed} bytes, and at most {most_bytes} are allowed: raise "
        "max_batch_bytes, or make batch_size or the fan-outs smaller",
        [],
        [],
    )
