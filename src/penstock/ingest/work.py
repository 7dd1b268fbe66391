"""How far a build is: bytes read and written, of those that there are."""

from __future__ import annotations

from penstock.graph.format import Meter
from penstock.graph.progress import Report


class Work:
    """Adds up the bytes read and written, and reports them."""

    def __init__(self, report: Report | None) -> None:
        self._report = report
        self._done = self._total = 0

    def expect(self, nbytes: int) -> None:
        """Add bytes that are still to be read or written."""
        self._total += nbytes
        self.add(0)

    def add(self, nbytes: int) -> None:
        """Add bytes that have been read or written."""
        self._done += nbytes
        if self._report is not None:
            self._report(min(self._done, self._total), self._total)


class WorkMeter(Meter):
    """Tells of what is written as of a part of the work."""

    def __init__(self, total: int, work: Work) -> None:
        super().__init__(total, None)
        self._work = work

    def add(self, nbytes: int) -> None:
        self._work.add(nbytes)
