"""Turns an exception in a batch into the report that its rank receives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock import errors
from penstock.errors import BatchTooLarge, SamplingError
from penstock.sampling.buffer import SlotTooSmall
from penstock.sampling.custom import fit_for_message, traceback_of
from penstock.wire.messages import Report

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


def classes_of(error: BaseException) -> tuple[str, ...]:
    """Return the names of the classes of what the sampler raised, the derived ones first."""
    cause = error.__cause__ if isinstance(error, SamplingError) else None
    raised = error if cause is None else cause
    return tuple(class_name(kind) for kind in type(raised).__mro__[:_MOST_CLASSES])


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
