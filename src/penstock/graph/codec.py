"""How an attribute that is stored in a smaller type is read: as float32.

A `Codec` is part of a graph's schema, so it goes wherever the graph goes: to disk, to other
processes, into parts and over the network. Arrays, slots and messages have the stored numbers;
whoever gives rows to a user decodes them. NumPy here, and torch on any device, give the same bytes:
each step below is rounded once, to the nearest float32. This module must not know how numbers are
encoded (`quantization`).
"""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from penstock.graph.dtypes import itemsize

Array: TypeAlias = npt.NDArray[Any]
Floats: TypeAlias = npt.NDArray[np.float32]
Stored: TypeAlias = Literal["int8", "float16", "bfloat16"]

STORED: Final[tuple[Stored, ...]] = ("int8", "float16", "bfloat16")
_FLOAT32: Final = np.dtype("<f4")
# Columns of numbers read by scale and offset: these are part of messages, which are small.
MOST_COLUMNS: Final = 1 << 15


class Codec(msgspec.Struct, frozen=True):
    """How the stored numbers of an attribute are read.

    int8: `number * scale + offset` in float32, by column; the product is rounded, then the sum.
    float16 and bfloat16: as the same numbers in float32.

    Attributes:
        stored: The element type that is stored.
        dtype: The element type that is read.
        scale: For int8, of each column, as little-endian float32; else empty.
        offset: Likewise.
    """

    stored: Stored
    dtype: Literal["float32"] = "float32"
    scale: bytes = b""
    offset: bytes = b""

    @property
    def scales(self) -> Floats:
        """The scale of each column."""
        return np.frombuffer(self.scale, _FLOAT32)

    @property
    def offsets(self) -> Floats:
        """The offset of each column."""
        return np.frombuffer(self.offset, _FLOAT32)

    def decode(self, rows: Array, out: Floats | None = None) -> Floats:
        """Return rows as they are read.

        Args:
            rows: Rows as they are stored.
            out: Where to write them, float32 of the same shape; None allocates memory.
        """
        found = np.empty(rows.shape, np.float32) if out is None else out
        match self.stored:
            case "float16":
                found[...] = rows
            case "bfloat16":  # the upper half of a float32
                bits = found.view(np.uint32)
                bits[...] = rows
                bits <<= 16
            case "int8":
                np.multiply(rows, self.scales, out=found)
                np.add(found, self.offsets, out=found)
        return found

    def disagreement(self, dtype: str, shape: tuple[int, ...]) -> str | None:
        """Return why an array of this form cannot be read so, or None."""
        if dtype != self.stored:
            return f"it is to be read from {self.stored}"
        if len(shape) not in (1, 2):
            return "only one or two dimensions can be read by a codec"
        columns = (shape[1] if len(shape) == 2 else 1) if self.stored == "int8" else 0
        for name, values in (("scale", self.scale), ("offset", self.offset)):
            if len(values) != columns * _FLOAT32.itemsize:
                return f"its codec's {name} has {len(values)} bytes; {4 * columns} are needed"
        scales, offsets = self.scales, self.offsets
        if not (np.isfinite(offsets) & np.isfinite(scales) & (scales > 0)).all():
            return "its codec has numbers that are not finite, or a scale that is not above 0"
        return None

    def saved(self, shape: tuple[int, ...]) -> int:
        """Return how many bytes an array of this shape takes less than one of float32."""
        count = int(np.prod(shape, dtype=np.int64))
        return count * (itemsize(self.dtype) - itemsize(self.stored))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self}>"

    def __str__(self) -> str:
        return f"{self.stored} → {self.dtype}"
