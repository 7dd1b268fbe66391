"""Reports from the hub, turned back into the errors they speak of."""

from __future__ import annotations

from typing import Final

from penstock import errors
from penstock.errors import BatchTooLarge, PenstockError
from penstock.hub.reports import CAUSE
from penstock.wire.messages import Report

# What a hub may blame on the caller, beside Penstock's own errors. No other name is looked up.
_BUILT_IN: Final[dict[str, type[Exception]]] = {
    "ValueError": ValueError,
    "KeyError": KeyError,
    "TypeError": TypeError,
    "MemoryError": MemoryError,
    "TimeoutError": TimeoutError,
    "OSError": OSError,
}


def error_of(report: Report) -> Exception:
    """The error a report speaks of; one of a kind unknown here is a plain `PenstockError`."""
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
