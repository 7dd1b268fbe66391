"""How equal shares are, and over which time they can be compared. Arithmetic only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """An interval of time."""

    begin: float
    end: float

    @property
    def seconds(self) -> float:
        """Its length."""
        return self.end - self.begin


def jain(shares: Sequence[float]) -> float | None:
    """Return Jain's index: 1 for equal shares, 1/n if one has all; None if all are zero."""
    squares = sum(share * share for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else None


def common(spans: Iterable[Sequence[Span]]) -> list[Span]:
    """Return the time that lies in a span of every list; spans of one list do not overlap."""
    return reduce(_both, spans)  # type: ignore[arg-type]


def _both(one: Sequence[Span], other: Sequence[Span]) -> list[Span]:
    shared = (
        Span(max(mine.begin, theirs.begin), min(mine.end, theirs.end))
        for mine in one
        for theirs in other
    )
    return sorted(span for span in shared if span.seconds > 0)
