"""What comes from a server in pieces, put together: batches, and answers with arrays.

A batch's pieces come after its `BatchReady`, in order; so do the parts of an answer. Nothing that
is said is trusted: a batch is no larger than was agreed, and a piece lies where the last one ended.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from penstock.client.remote.memory import Pool
from penstock.errors import ProtocolError
from penstock.kernels import copy_bytes
from penstock.wire.bulk import Arrays, Assembly
from penstock.wire.frames import Bytes
from penstock.wire.messages import BatchId, BatchReady
from penstock.wire.pieces import follows
from penstock.wire.remote import Answer, Part, Piece

# Batches on their way at once. There are not more slots than that.
_MOST_BATCHES: Final = 1024
# What arrays of any kind begin at a multiple of.
_ALIGNED: Final = 8


@dataclass(slots=True, eq=False)
class _Coming:
    """A batch, as far as it has come."""

    ready: BatchReady
    memory: Bytes | None = None
    end: int = 0

    def add(self, offset: int, piece: Bytes, pool: Pool) -> bool:
        """The next piece; True if it was the last.

        One that is all of the batch is not copied: its memory is that in which it came.
        """
        end, nbytes = offset + piece.nbytes, self.ready.nbytes
        if not follows(offset, self.end) or not offset < end <= nbytes:
            raise ProtocolError(
                f"a piece of {self.ready.batch} goes from {offset} to {end}, after {self.end} of "
                f"{nbytes} bytes"
            )
        if piece.nbytes == nbytes and piece.ctypes.data % _ALIGNED == 0:
            self.memory = piece
        else:
            self.memory = pool.lend(nbytes) if self.memory is None else self.memory
            copy_bytes(piece, self.memory[offset:end])
        self.end = end
        return end == nbytes


@dataclass(eq=False)
class Batches:
    """The batches of one channel, `most_bytes` each; `kept` pieces of memory are used again."""

    most_bytes: int
    kept: int
    _coming: dict[BatchId, _Coming] = field(default_factory=dict)
    _here: dict[BatchId, Bytes] = field(default_factory=dict)
    _pool: Pool = field(init=False)

    def __post_init__(self) -> None:
        self._pool = Pool(self.kept)

    def announce(self, ready: BatchReady) -> BatchReady | None:
        """A batch is on its way; it is given back if there is nothing more to come of it."""
        if not 0 <= ready.nbytes <= self.most_bytes:
            raise ProtocolError(f"{ready.batch} has {ready.nbytes} bytes, of {self.most_bytes}")
        if ready.batch in self._coming or len(self._coming) >= _MOST_BATCHES:
            raise ProtocolError(f"{ready.batch} comes twice, or there are too many")
        if not ready.nbytes:
            self._here[ready.batch] = self._pool.lend(0)
            return ready
        self._coming[ready.batch] = _Coming(ready)
        return None

    def add(self, piece: Piece, data: Any) -> BatchReady | None:
        """A piece has come: the batch that is complete by it."""
        coming = self._coming.get(piece.batch)
        if coming is None:
            raise ProtocolError(f"a piece of {piece.batch} came, which was not announced")
        if not coming.add(piece.offset, np.frombuffer(data, np.uint8), self._pool):
            return None
        del self._coming[piece.batch]
        assert coming.memory is not None
        self._here[piece.batch] = coming.memory
        return coming.ready

    def take(self, batch: BatchId) -> Bytes:
        """The memory of a batch that is complete."""
        try:
            return self._here.pop(batch)
        except KeyError:
            raise ProtocolError(f"{batch} has not come") from None


@dataclass(eq=False)
class Answers:
    """Answers with arrays, as far as they have come."""

    _coming: dict[int, tuple[Answer, Assembly]] = field(default_factory=dict)
    _here: dict[int, Arrays] = field(default_factory=dict)

    def announce(self, answer: Answer) -> Answer | None:
        """An answer; it is given back if there is nothing more to come of it."""
        assembly = Assembly(answer.bulk)
        if assembly.complete:
            self._here[answer.request] = assembly.arrays()
            return answer
        self._coming[answer.request] = answer, assembly
        return None

    def add(self, part: Part, data: Any) -> Answer | None:
        """A part has come: the answer that is complete by it."""
        if part.request not in self._coming:
            raise ProtocolError(f"a part of answer {part.request} came, which was not announced")
        answer, assembly = self._coming[part.request]
        assembly.add(part.offset, data)
        if not assembly.complete:
            return None
        del self._coming[part.request]
        self._here[part.request] = assembly.arrays()
        return answer

    def take(self, request: int) -> Arrays:
        """The arrays of an answer that is complete."""
        return self._here.pop(request, {})
