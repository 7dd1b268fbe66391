"""The last part of what a worker printed.

A worker's stdout and stderr are one pipe, which the hub drains whenever there is data. A worker
that prints megabytes costs the hub a bounded buffer and a bounded time per turn of its loop.
Neither waits for the other.
"""

from __future__ import annotations

import os
from typing import Final

KEEP: Final = 64 << 10
_PIECE: Final = 64 << 10
# Pieces per turn: large output must not keep the hub from its other work.
_PIECES: Final = 4


class Tail:
    """The reading end of the pipe, and the last bytes that came from it."""

    def __init__(self, fd: int, keep: int = KEEP) -> None:
        os.set_blocking(fd, False)
        self.fd = fd
        self.total = 0  # bytes printed so far
        self.ended = False  # the writing end is closed everywhere, or we closed ours
        self._keep = keep
        self._bytes = bytearray()

    def drain(self, pieces: int = _PIECES) -> int:
        """Read what is there, up to a bound; return how many bytes that was."""
        before = self.total
        for _ in range(pieces):
            if not self._take():
                break
        return self.total - before

    def bytes(self) -> bytes:
        """Return the last bytes printed, at most as many as are kept."""
        return bytes(self._bytes[-self._keep :])

    def text(self) -> str:
        """Return them as text, with invalid bytes replaced and without the first, partial line."""
        text = self.bytes().decode(errors="replace")
        return text.partition("\n")[2] if self.dropped and "\n" in text else text

    @property
    def dropped(self) -> int:
        """Return how many bytes came before those that are kept."""
        return max(0, self.total - self._keep)

    def close(self) -> None:
        """Close the pipe; what was printed is kept."""
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1
        self.ended = True

    def _take(self) -> bool:
        if self.ended:
            return False
        try:
            piece = os.read(self.fd, _PIECE)
        except BlockingIOError:
            return False
        self.ended = not piece
        self.total += len(piece)
        self._bytes += piece
        if len(self._bytes) > 2 * self._keep:  # now and then, not at each piece
            del self._bytes[: -self._keep]
        return bool(piece)
