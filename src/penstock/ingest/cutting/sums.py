"""Checksums of arrays that are nowhere as a whole: their bytes pass by, in their order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from penstock import kernels
from penstock.graph.checksum import PIECE_NBYTES, Bytes, sum_of_pieces


@dataclass(frozen=True)
class Summed:
    """The form of an array of the whole graph, and its checksum."""

    dtype: str
    shape: tuple[int, ...]
    checksum: str


class Sum:
    """Sums up an array, whose bytes come in pieces of any size."""

    def __init__(self) -> None:
        self._digests: list[bytes] = []
        self._buffer = np.empty(0, np.uint8)
        self._held = 0

    def add(self, data: Bytes) -> None:
        """Add the bytes that come next."""
        while len(data):
            if not self._held and len(data) >= PIECE_NBYTES:
                self._digests.append(kernels.digest(data[:PIECE_NBYTES]))
                data = data[PIECE_NBYTES:]
                continue
            if not len(self._buffer):
                self._buffer = np.empty(PIECE_NBYTES, np.uint8)
            count = min(PIECE_NBYTES - self._held, len(data))
            self._buffer[self._held : self._held + count] = data[:count]
            self._held, data = self._held + count, data[count:]
            if self._held == PIECE_NBYTES:
                self._digests.append(kernels.digest(self._buffer))
                self._held = 0

    def add_digests(self, digests: Sequence[bytes]) -> None:
        """Add the digests of whole pieces that come next, where a piece has ended."""
        assert not (digests and self._held)
        self._digests += digests

    def taken(self) -> tuple[tuple[bytes, ...], Bytes]:
        """Return the digests of whole pieces, and the bytes that come after them."""
        return tuple(self._digests), self._buffer[: self._held]

    def checksum(self) -> str:
        """Return the checksum of all bytes."""
        last = [kernels.digest(self._buffer[: self._held])]
        return sum_of_pieces(self._digests + (last if self._held or not self._digests else []))
