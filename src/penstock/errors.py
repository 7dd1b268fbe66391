"""The errors Penstock raises on its own account.

Bad arguments are plain `ValueError`; these are for things that go wrong outside the caller's hands.
"""

from __future__ import annotations


class PenstockError(Exception):
    """Root of every error that is Penstock's own."""


class GraphFormatError(PenstockError):
    """A folder on disk is not a graph this version can read; names the file and what is wrong."""


class BatchTooLarge(PenstockError):
    """A batch does not fit the memory it was given; says how much it needs."""
