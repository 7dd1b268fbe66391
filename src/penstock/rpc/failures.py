"""Turns a hub's reports of failures back into the errors that they describe."""

from __future__ import annotations

from typing import Final

from penstock import errors
from penstock.errors import BatchTooLarge, PenstockError
from penstock.wire.messages import CAUSE, Report

# The errors that a report may name, besides Penstock's own. No other name is looked up.
_BUILT_IN: Final[dict[str, type[Exception]]] = {
    "ValueError": ValueError,
    "KeyError": KeyError,
    "TypeError": TypeError,
    "MemoryError": MemoryError,
    "TimeoutError": TimeoutError,
    "OSError": OSError,
}


def error_of(report: Report) -> Exception:
    """Return the error that a report describes; an unknown kind becomes a plain `PenstockError`."""
    error = _made(report)
    if isinstance(error, PenstockError):
        error.details = report.details
        match report.details.get(CAUSE):
            case {"kind": str(kind), "message": str(message)}:
                error.__cause__ = _made(Report(kind=kind, message=message))
    return error


def _made(report: Report) -> Exception:
    if report.kind == BatchTooLarge.__name__:
        nodes, edges = (report.details.get(name) or () for name in ("nodes", "edges"))
        return BatchTooLarge(report.message, nodes, edges)
    known = _BUILT_IN.get(report.kind) or getattr(errors, report.kind, None)
    if isinstance(known, type) and issubclass(known, Exception):
        return known(report.message)
    return PenstockError(f"{report.kind}: {report.message}")
