"""Stores attributes in a smaller type: which ones users name, their codecs, and the numbers.

Numbers are taken as float32 first, since that is how they will be read. float16 and bfloat16 are
the nearest such number, ties to even. int8 has 255 steps per column, from its smallest number to
its largest; a number is stored as the nearest step.

Arrays are read block by block, twice for int8, and no copy of one is made. The same numbers give
the same bytes on every machine: only single operations of IEEE 754 are used, in the order that they
stand here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from penstock.errors import suggestion
from penstock.graph.codec import MOST_COLUMNS, STORED, Array, Codec, Floats, Stored
from penstock.graph.dtypes import dtype_name
from penstock.graph.schema import ArrayKey
from penstock.graph.tensors import PlainArray, floats

# Numbers of a block: with what is computed of them, they fit a processor's cache.
_BLOCK: Final = 1 << 17
_LEAST, _MOST, _STEPS = -128, 127, 255
_FLOAT32: Final = np.finfo(np.float32)
_LARGEST: Final[Mapping[str, float]] = {"float16": 65504.0, "bfloat16": 255 * 2.0**120}
# So that no stored number times the scale exceeds float32.
_MOST_SCALE: Final = float(_FLOAT32.max) / -_LEAST
_FLOATS: Final = ("float32", "float64")
# Where each type's numbers may come from.
_SOURCES: Final[Mapping[str, tuple[str, ...]]] = {
    "int8": (*_FLOATS, "float16", "bfloat16"),
    "float16": _FLOATS,
    "bfloat16": _FLOATS,
}
# Samplers and losses read these as they are.
_EXACT: Final[Mapping[str, str]] = {
    "y": "labels",
    "time": "times",
    "edge_time": "times",
    "edge_weight": "weights",
}


@dataclass(frozen=True, slots=True)
class Quantization:
    """In which type an attribute is stored; made by `quantize`."""

    dtype: Stored


def quantize(dtype: Any) -> Quantization:
    """Return how to store an attribute in fewer bytes; everybody reads it as float32.

    Give it to `Graph.from_coo` or `Graph.from_pyg`, as `features={"x": ps.quantize("int8")}`.
    Workers, slots, networks and copies to a GPU carry the small numbers; batches and all questions
    about the graph have float32.

    Args:
        dtype: "int8": a quarter of the bytes. Each column has 255 equal steps from its smallest
            number to its largest, and the nearest one is stored: an error of half a step at most,
            none in a column of equal numbers. "float16": half the bytes, three digits, up to 65504.
            "bfloat16": half the bytes, two digits, as large as float32.

    Returns:
        A small value that says so.

    Raises:
        ValueError: There is no such type.

    Examples:
        >>> import numpy as np
        >>> import penstock as ps
        >>> x = np.array([[0, 1], [0.5, 1], [1, 1]], np.float32)
        >>> graph = ps.Graph.from_coo([[0, 1], [1, 2]], x=x, features={"x": ps.quantize("int8")})
        >>> graph
        Graph(num_nodes=3, num_edges=2, x=int8 → float32[3, 2])
        >>> graph.node_features("x").gather(np.array([0, 2])).tolist()
        [[0.0, 1.0], [1.0, 1.0]]
    """
    try:
        name = dtype_name(dtype)
    except ValueError:
        name = str(dtype)
    for known in STORED:
        if name == known:
            return Quantization(known)
    raise ValueError(
        f"dtype is {dtype!r}; expected one of {', '.join(STORED)}{suggestion(name, STORED)}"
    )


# --- which attributes ----------------------------------------------------------------------------


def quantized_among(
    features: Any, columns: Mapping[ArrayKey, PlainArray]
) -> dict[ArrayKey, Quantization]:
    """Return the attributes that `features` names, and how each is to be stored.

    Args:
        features: By name, which means every attribute that is called so; or by (type, name).
        columns: All arrays of the graph.

    Raises:
        ValueError: There is no such attribute, or it cannot be stored so.
    """
    if features is None:
        return {}
    if not isinstance(features, Mapping):
        raise ValueError(
            f"features is {type(features).__qualname__}; expected a mapping from names of "
            'attributes to penstock.quantize(…), such as {"x": penstock.quantize("int8")}'
        )
    there = {key: column for key, column in columns.items() if key.group in ("node", "edge")}
    found: dict[ArrayKey, Quantization] = {}
    for name, how in features.items():
        label = f"features[{name!r}]"
        if not isinstance(how, Quantization):
            raise ValueError(f"{label} is {how!r}; expected penstock.quantize(…)")
        for key in _named(name, there):
            if key in found:
                raise ValueError(f"{label} is given twice: by its name alone and with its type")
            _check(label, key, there[key], how)
            found[key] = how
    return found


def _named(name: Any, there: Mapping[ArrayKey, PlainArray]) -> list[ArrayKey]:
    """Return the attributes that are meant by a name, or by a type and a name."""
    if isinstance(name, tuple) and len(name) == 2:
        found = [key for key in there if (key.type, key.name) == name]
    else:
        found = [key for key in there if key.name == name]
    if found:
        return found
    names = [*dict.fromkeys(key.name for key in there)]
    typed = [(key.type, key.name) for key in there if any(key.type)]
    choices = typed if isinstance(name, tuple) else names
    raise ValueError(
        f"features has {name!r}, and there is no such attribute of nodes or edges; there are: "
        f"{', '.join(map(repr, choices)) or 'none'}{suggestion(_text(name), map(_text, choices))}"
    )


def _text(name: Any) -> str:
    match name:
        case (owner, str(attribute)):
            return f"{owner if isinstance(owner, str) else ' '.join(map(str, owner))} {attribute}"
    return str(name)


def _check(label: str, key: ArrayKey, column: PlainArray, how: Quantization) -> None:
    if (what := _EXACT.get(key.name)) is not None:
        raise ValueError(f"{label}: {column.label} are {what}, which are stored as they are")
    sources = _SOURCES[how.dtype]
    if column.dtype not in sources:
        raise ValueError(
            f"{label}: {column.label} is {column.dtype}; only {' or '.join(sources)} can be "
            f"stored as {how.dtype}"
        )
    if len(column.shape) not in (1, 2):
        raise ValueError(
            f"{label}: {column.label} has shape {list(column.shape)}; expected one or two "
            "dimensions"
        )
    if how.dtype == "int8" and _width(column) > MOST_COLUMNS:
        raise ValueError(
            f"{label}: {column.label} has {_width(column)} columns; int8 takes at most "
            f"{MOST_COLUMNS}, since each has a scale of its own. Take 'float16' or 'bfloat16'"
        )


# --- the codec -----------------------------------------------------------------------------------


def codec_of(column: PlainArray, how: Quantization) -> Codec:
    """Return the codec of an attribute; for int8 this reads all of it.

    Raises:
        ValueError: A number is not finite as float32, and is to be stored as int8.
    """
    if how.dtype != "int8":
        return Codec(how.dtype)
    ranges = Ranges(_width(column))
    ranges.add(column)
    if not ranges.are_finite:
        expected = "a number that is finite as float32"
        _refuse(column, lambda block: ~np.isfinite(block.numbers), expected)
    return ranges.codec()


class Ranges:
    """The smallest and the largest number of each column of an attribute that comes in pieces."""

    def __init__(self, width: int) -> None:
        self._lows = np.full(width, np.inf, np.float32)
        self._highs = np.full(width, -np.inf, np.float32)
        self._is_empty = True

    def add(self, piece: PlainArray) -> None:
        """Look at further rows."""
        for block in _blocks(piece, 0, piece.shape[0]):
            np.minimum(self._lows, block.numbers.min(axis=0), out=self._lows)
            np.maximum(self._highs, block.numbers.max(axis=0), out=self._highs)
            self._is_empty = False

    @property
    def are_finite(self) -> bool:
        """Whether all numbers are finite as float32."""
        return self._is_empty or bool((np.isfinite(self._lows) & np.isfinite(self._highs)).all())

    def codec(self) -> Codec:
        """Return the codec for int8 by which all of the numbers can be stored."""
        if self._is_empty:
            zeros = np.zeros(len(self._lows), np.float32)
            scales, offsets = _affine(zeros, zeros)
        else:
            # Which of two zeros is the smaller depends on the processor: + 0.0 makes both positive.
            scales, offsets = _affine(self._lows + np.float32(0), self._highs + np.float32(0))
        return Codec("int8", scale=scales.tobytes(), offset=offsets.tobytes())


def _affine(lows: Floats, highs: Floats) -> tuple[Floats, Floats]:
    """Return scales and offsets by which each range is covered."""
    low, high = lows.astype(np.float64), highs.astype(np.float64)
    step = (high - low) / _STEPS
    # Not smaller: where subnormal numbers count as zero, products would.
    scales = np.clip(step, _FLOAT32.tiny, _MOST_SCALE).astype(np.float32)
    scale = scales.astype(np.float64)
    # The smallest number is the first step. A range that is too wide lacks half a step at both
    # ends. Equal numbers are the offset.
    offset = np.where(step > _MOST_SCALE, (low + high + scale) / 2, low - _LEAST * scale)
    offset = np.where(low == high, low, offset)
    return scales, _in_reach(scales, offset.astype(np.float32))


def _in_reach(scales: Floats, offsets: Floats) -> Floats:
    """Return offsets with which no number is read as infinite because something was rounded up."""
    while True:
        with np.errstate(over="ignore"):
            is_infinite = np.isinf(np.float32(_MOST) * scales + offsets)
        if not is_infinite.any():
            return offsets
        below = np.nextafter(offsets, np.float32(-np.inf))
        offsets = np.where(is_infinite, below, offsets)


# --- the numbers ---------------------------------------------------------------------------------


def encode(column: PlainArray, codec: Codec, out: Array, first: int = 0) -> None:
    """Write rows of an attribute as they are stored.

    Args:
        column: The attribute.
        codec: Its codec, from `codec_of`.
        out: Where to write, in the storage dtype.
        first: The first row; there are as many as `out` has.

    Raises:
        ValueError: A number is larger than any of the type.
    """
    for block in _blocks(column, first, first + len(out)):
        stored = _stored(block.numbers, codec)
        most = _LARGEST.get(codec.stored)
        if most is not None and _exceeds(block, most).any():
            expected = f"at most {most:g}, the largest number of {codec.stored}"
            _refuse(column, partial(_exceeds, most=most), expected)
        target = out[block.first - first :][: len(stored)]
        target[...] = stored.reshape(target.shape)


def _stored(numbers: Floats, codec: Codec) -> Array:
    match codec.stored:
        case "int8":
            return _steps(numbers, codec)
        case "float16":
            return _float16(numbers)
        case "bfloat16":
            return _bfloat16(numbers)


def _steps(numbers: Floats, codec: Codec) -> Array:
    steps = numbers.astype(np.float64)
    steps -= codec.offsets.astype(np.float64)
    steps /= codec.scales.astype(np.float64)
    np.rint(steps, out=steps)  # ties to even
    return np.clip(steps, _LEAST, _MOST, out=steps).astype(np.int8)


def _float16(numbers: Floats) -> Array:
    with np.errstate(over="ignore"):
        stored = numbers.astype(np.float16)
    stored[np.isnan(numbers)] = np.nan  # processors keep different bits of a NaN
    return stored


def _bfloat16(numbers: Floats) -> Array:
    bits = numbers.view(np.uint32)
    # Half of what is cut off is added before, less one bit where a tie would become odd.
    rounded = bits + (np.uint32(0x7FFF) + ((bits >> 16) & 1))
    stored = (rounded >> 16).astype(np.uint16)
    stored[np.isnan(numbers)] = 0x7FC0
    return stored


def _exceeds(block: _Block, most: float) -> npt.NDArray[np.bool_]:
    """Return which numbers are finite as given, and would be infinite as they are stored."""
    found: npt.NDArray[np.bool_] = (np.abs(block.given) > most) & np.isfinite(block.given)
    return found


# --- blocks --------------------------------------------------------------------------------------


class _Block(NamedTuple):
    """Some rows: the first one, their numbers as given, and as float32, in two dimensions."""

    first: int
    given: Array
    numbers: Floats


def _blocks(column: PlainArray, first: int, end: int) -> Iterator[_Block]:
    width = _width(column)
    rows = max(1, _BLOCK // max(1, width))
    for begin in range(first, end, rows):
        piece = column.array[begin : min(end, begin + rows)]
        given = floats(piece, column.dtype).reshape(len(piece), width)
        with np.errstate(over="ignore"):
            numbers = np.ascontiguousarray(given, np.float32)
        yield _Block(begin, given, numbers)


def _width(column: PlainArray) -> int:
    return column.shape[1] if len(column.shape) == 2 else 1


def _refuse(
    column: PlainArray, is_wrong: Callable[[_Block], npt.NDArray[np.bool_]], expected: str
) -> NoReturn:
    """Raise `ValueError` for the first number that is wrong."""
    for block in _blocks(column, 0, column.shape[0]):
        wrong = np.argwhere(is_wrong(block))
        if len(wrong):
            row, place = wrong[0].tolist()
            at = [block.first + row, place][: len(column.shape)]
            value = block.given[row, place]
            raise ValueError(f"{column.label}{at} is {value}; expected {expected}")
    raise AssertionError(f"nothing is wrong with {column.label}")
