"""Turns an exception in a batch into the report that its rank receives."""

from __future__ import annotations

from penstock import errors
from penstock.errors import BatchTooLarge, SamplingError
from penstock.sampling.buffer import SlotTooSmall
from penstock.sampling.custom import fit_for_message, traceback_of
from penstock.wire.messages import Report


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


def too_large(small: SlotTooSmall, most_bytes: int) -> BatchTooLarge:
    """Return the error for a batch that needs more memory than its channel allows."""
    return BatchTooLarge(
        f"the batch needs {small.needed} bytes, and at most {most_bytes} are allowed: raise "
        "max_batch_bytes, or make batch_size or the fan-outs smaller",
        [],
        [],
    )
