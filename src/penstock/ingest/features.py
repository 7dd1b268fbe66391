"""Arrays of features, labels, times and weights, made of columns while they are written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.graph.checksum import PIECE_NBYTES, Bytes
from penstock.graph.codec import MOST_COLUMNS, Codec
from penstock.graph.dtypes import dtype_name
from penstock.graph.layout import array_nbytes
from penstock.graph.quantization import Ranges, encode
from penstock.graph.tensors import PlainArray
from penstock.ingest.columns import (
    element_of,
    first_width,
    is_category,
    is_date,
    is_list,
    is_number,
    numbers,
    numpy_dtype,
    stored_dtype,
    time_dtype,
    times,
    weights,
)
from penstock.ingest.description import Feature
from penstock.ingest.tables import Mask, Rows, Table, is_text
from penstock.ingest.workspace import Spool

Array = npt.NDArray[Any]

# More categories than this are ids, or text that nobody meant as categories.
MOST_CATEGORIES: Final = 1 << 16
UNLABELLED: Final = -1
_LARGEST_FLOAT16: Final = 65504.0
_CHANGED: Final = "a table was changed while it was read: it has other rows now"


@dataclass(frozen=True)
class Column:
    """An array with a row for each node or edge, made of columns of a table.

    Attributes:
        table: The table.
        columns: Which columns are read.
        dtype: The type that is stored.
        width: How many numbers a row has; None: one, and the array has one dimension.
        block: Makes the rows.
        codec: How it is read, if it is stored in fewer bytes.
        attributes: What belongs to it, and is kept with its node or edge type.
    """

    table: Table
    columns: tuple[str, ...]
    dtype: str
    width: int | None
    block: Callable[[Rows], Array]
    codec: Codec | None = None
    attributes: dict[str, Any] = field(default_factory=dict)

    def source(self, masks: Sequence[Mask | None], count: int) -> Streamed:
        """Return the array as it is written: `count` rows, those of one mask after the other."""
        shape = (count,) if self.width is None else (count, self.width)

        def blocks() -> Iterator[Array]:
            for mask in masks:
                for rows in self.table.kept(self.columns, mask):
                    yield self.block(rows)

        return Streamed(self.dtype, shape, blocks)


class Streamed:
    """An array that comes block by block when it is written."""

    def __init__(
        self, dtype: str, shape: tuple[int, ...], blocks: Callable[[], Iterator[Array]]
    ) -> None:
        self.dtype = dtype
        self.shape = shape
        self._blocks = blocks

    def rows(self) -> Iterator[Array]:
        """Yield the rows, block by block, in place of pieces of a file."""
        done = 0
        for block in self._blocks():
            done += len(block)
            if done > self.shape[0]:
                break
            yield np.ascontiguousarray(block)
        if done != self.shape[0]:
            raise ValueError(_CHANGED)

    def pieces(self) -> Iterator[Bytes]:
        left = array_nbytes(self.dtype, self.shape)
        buffer, held, is_first = np.empty(min(PIECE_NBYTES, left), np.uint8), 0, True
        for block in self._blocks():
            data = np.ascontiguousarray(block).reshape(-1).view(np.uint8)
            done, left = 0, left - len(data)
            if left < 0:
                break
            while done < len(data):
                count = min(PIECE_NBYTES - held, len(data) - done)
                buffer[held : held + count] = data[done : done + count]
                held, done = held + count, done + count
                if held == PIECE_NBYTES:
                    yield buffer
                    held, is_first = 0, False
        if left:
            raise ValueError(_CHANGED)
        if held or is_first:
            yield buffer[:held]


def of_spool(spool: Spool, rows: int) -> Streamed:
    """Return an array that is in a temporary file."""
    mapped = spool.mapped()
    return Streamed(dtype_name(mapped.dtype), mapped.shape, lambda: spool.pieces(rows))


# --- features ------------------------------------------------------------------------------------


def feature_column(table: Table, name: str, said: Feature, mask: Mask | None) -> Column:
    """Return the array of a feature; reads its columns first where text or int8 asks for it.

    Raises:
        ValueError: A column has no numbers.
    """
    label = f"{table.label}.features.{name}"
    columns = [_FeatureColumn.of(label, table, column, said, mask) for column in said.names]
    dtype = _dtype_of(said, columns)
    is_flat = isinstance(said.columns, str) and columns[0].width is None
    width = None if is_flat else sum(1 if each.width is None else each.width for each in columns)
    joined = _Joined(columns, dtype, width)
    codes = {each.name: each.categories for each in columns if each.categories is not None}
    column = Column(
        table,
        said.names,
        dtype_name(dtype),
        width,
        joined.block,
        attributes={f"{name}_categories": codes} if codes else {},
    )
    return column if said.store is None else _quantized(label, column, joined, said.store, mask)


@dataclass(frozen=True)
class _FeatureColumn:
    """One column of a feature: numbers, lists of so many, dates, or codes of categories."""

    name: str
    dtype: np.dtype[Any]
    width: int | None = None
    categories: list[Any] | None = None

    @classmethod
    def of(
        cls, label: str, table: Table, name: str, said: Feature, mask: Mask | None
    ) -> _FeatureColumn:
        """Find out what a column is."""
        kinds = table.types(name)
        if any(is_category(kind) or is_text(kind) for _, kind in kinds):
            if not (said.categories or all(is_category(kind) for _, kind in kinds)):
                _refuse_text(label, table, name, kinds)
            return cls(name, np.dtype(np.int64), None, categories_of(table, name, mask))
        for source, kind in kinds:
            element = element_of(kind)
            if not (is_number(element) or is_date(element)):
                raise ValueError(
                    f"{label}: column {name!r} of {source} is {kind}; expected numbers, lists of "
                    "them, booleans, dates or categories"
                )
            if is_list(kind) != is_list(kinds[0][1]):
                raise ValueError(
                    f"{label}: column {name!r} is {kinds[0][1]} in {kinds[0][0]} and {kind} in "
                    f"{source}"
                )
        dtype = np.result_type(*(numpy_dtype(element_of(kind)) for _, kind in kinds))
        width = first_width(table, name) if is_list(kinds[0][1]) else None
        return cls(name, stored_dtype(dtype), width)

    def values(self, rows: Rows) -> Array:
        if self.categories is None:
            return numbers(rows, self.name, self.width)
        return _codes(rows, self.name, self.categories)


class _Joined:
    """Columns side by side."""

    def __init__(
        self, columns: list[_FeatureColumn], dtype: np.dtype[Any], width: int | None
    ) -> None:
        self._columns = columns
        self._dtype = dtype
        self._width = width

    def block(self, rows: Rows) -> Array:
        if self._width is None or len(self._columns) == 1:
            (column,) = self._columns
            found = self._cast(rows, column, column.values(rows))
            return found if self._width is None else found.reshape(len(rows), self._width)
        out, begin = np.empty((len(rows), self._width), self._dtype), 0
        for column in self._columns:
            end = begin + (1 if column.width is None else column.width)
            out[:, begin:end] = self._cast(rows, column, column.values(rows)).reshape(len(rows), -1)
            begin = end
        return out

    def column_at(self, place: int) -> str:
        """Return the column that a place of a row is from."""
        for column in self._columns:
            place -= 1 if column.width is None else column.width
            if place < 0:
                return column.name
        raise IndexError(place)

    def _cast(self, rows: Rows, column: _FeatureColumn, values: Array) -> Array:
        if values.dtype == self._dtype:
            return values
        with np.errstate(over="ignore", invalid="ignore"):
            found = values.astype(self._dtype)
        wrong = _changed(values, found)
        if wrong is not None and wrong.any():
            at = int(wrong.reshape(len(rows), -1).any(axis=1).argmax())
            rows.refuse(at, column.name, f"a number that {self._dtype} can tell")
        return found


def _changed(values: Array, found: Array) -> npt.NDArray[np.bool_] | None:
    """Return which numbers have become others by more than rounding."""
    if found.dtype.kind == "f":
        is_float = values.dtype.kind == "f"
        return np.asarray(np.isinf(found) & np.isfinite(values)) if is_float else None
    if values.dtype.kind == "f":
        with np.errstate(invalid="ignore"):
            return np.asarray(found.astype(values.dtype) != values)
    if np.can_cast(values.dtype, found.dtype):
        return None
    return np.asarray((found.astype(values.dtype) != values) | ((found < 0) != (values < 0)))


def _dtype_of(said: Feature, columns: list[_FeatureColumn]) -> np.dtype[Any]:
    if said.dtype is not None:
        return np.dtype(said.dtype)
    kinds = {column.dtype for column in columns}
    if said.store is not None or np.dtype(np.float64) in kinds:
        return np.dtype(np.float32)
    if any(kind.kind == "f" for kind in kinds) and len(kinds) > 1:
        return np.dtype(np.float32)
    return stored_dtype(np.result_type(*kinds))


def _refuse_text(label: str, table: Table, name: str, kinds: list[tuple[str, pa.DataType]]) -> None:
    shown = ""
    for rows in table.rows([name]):
        values = [value for value in rows.column(name).to_pylist() if not _is_number(value)]
        if values:
            at = rows.column(name).to_pylist().index(values[0])
            shown = f" ({rows.source}, row {rows.first + at}: {values[0]!r:.80})"
            break
    source = next(source for source, kind in kinds if is_text(kind))
    raise ValueError(
        f"{label}: column {name!r} of {source} is text{shown}; expected numbers. For codes of "
        f'categories: {{columns = ["{name}"], categories = true}}'
    )


def _is_number(value: str | None) -> bool:
    try:
        float(value or "nan")
    except ValueError:
        return False
    return True


# --- categories ----------------------------------------------------------------------------------


def categories_of(table: Table, column: str, mask: Mask | None) -> list[Any]:
    """Return the values of a column, sorted: the place of a value is its code.

    Raises:
        ValueError: There are very many.
    """
    found: set[Any] = set()
    for rows in table.kept([column], mask):
        values = rows.column(column)
        found.update(pc.unique(plain_values(values)).to_pylist())
        found.discard(None)
        if len(found) > MOST_CATEGORIES:
            raise ValueError(
                f"{table.label}: column {column!r} has more than {MOST_CATEGORIES} categories; is "
                "it an id?"
            )
    return sorted(found)


def _codes(rows: Rows, column: str, categories: list[Any], missing: int | None = None) -> Array:
    values = plain_values(rows.column(column))
    found = pc.index_in(values, value_set=pa.array(categories, values.type))
    if found.null_count:
        if missing is None:
            at = int(np.flatnonzero(found.is_null().to_numpy(zero_copy_only=False))[0])
            rows.refuse(at, column, "a category in every row")
        found = found.fill_null(missing)
    return np.asarray(found.to_numpy(zero_copy_only=False), np.int64)


def plain_values(values: pa.Array) -> pa.Array:
    """Return values without a dictionary, text in one type."""
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    return values.cast(pa.large_string()) if is_text(values.type) else values


# --- labels, times, weights ----------------------------------------------------------------------


def label_column(table: Table, column: str, name: str, mask: Mask | None) -> Column:
    """Return the array of labels: codes of text and of categories, numbers as they are.

    A row without a label has -1, or NaN among floats.
    """
    kinds = [kind for _, kind in table.types(column)]
    if any(is_category(kind) or is_text(kind) for kind in kinds):
        categories = categories_of(table, column, mask)

        def codes(rows: Rows) -> Array:
            return _codes(rows, column, categories, UNLABELLED)

        more = {f"{name}_categories": categories}
        return Column(table, (column,), "int64", None, codes, attributes=more)
    if any(is_list(kind) for kind in kinds):
        return feature_column(table, name, Feature(columns=column), mask)
    for source, kind in table.types(column):
        if not is_number(kind):
            raise ValueError(
                f"{table.label}.label: column {column!r} of {source} is {kind}; expected numbers, "
                "text or categories"
            )
    dtype = stored_dtype(np.result_type(*(numpy_dtype(kind) for kind in kinds)))
    if dtype.kind == "b":
        dtype = np.dtype(np.int64)
    if dtype == np.float64:
        dtype = np.dtype(np.float32)
    # Arrow has gaps where NumPy has none: -1 must be one of the numbers.
    if dtype == np.uint8:
        dtype = np.dtype(np.int64)

    def labels(rows: Rows) -> Array:
        values = rows.column(column)
        if pa.types.is_boolean(values.type):
            values = values.cast(pa.int8())
        if values.null_count:
            filler = np.nan if dtype.kind == "f" else UNLABELLED
            if pa.types.is_decimal(values.type):
                values = values.cast(pa.float64())
            elif pa.types.is_unsigned_integer(values.type):
                values = values.cast(pa.int64())
            values = values.fill_null(pa.scalar(filler, values.type))
        return np.asarray(values.to_numpy(zero_copy_only=False)).astype(dtype, copy=False)

    return Column(table, (column,), dtype_name(dtype), None, labels)


def time_column(table: Table, column: str) -> Column:
    """Return the array of times."""
    dtype = time_dtype(table, column)

    def moments(rows: Rows) -> Array:
        return times(rows, column).astype(dtype, copy=False)

    return Column(table, (column,), dtype_name(dtype), None, moments)


def weight_column(table: Table, column: str) -> Column:
    """Return the array of weights."""
    for source, kind in table.types(column):
        if not is_number(kind) or is_date(kind) or pa.types.is_boolean(kind):
            raise ValueError(
                f"{table.label}.weight: column {column!r} of {source} is {kind}; expected numbers"
            )
    dtype = stored_dtype(np.result_type(*(numpy_dtype(kind) for _, kind in table.types(column))))

    def found(rows: Rows) -> Array:
        return weights(rows, column).astype(dtype, copy=False)

    return Column(table, (column,), dtype_name(dtype), None, found)


# --- fewer bytes ---------------------------------------------------------------------------------


def _quantized(
    label: str, column: Column, joined: _Joined, store: str, mask: Mask | None
) -> Column:
    width = 1 if column.width is None else column.width
    if store == "int8" and width > MOST_COLUMNS:
        raise ValueError(
            f"{label} has {width} columns; int8 takes at most {MOST_COLUMNS}, since each has a "
            "scale of its own. Take 'float16' or 'bfloat16'"
        )
    codec = Codec(store)  # type: ignore[arg-type]  # the description has been checked
    if store == "int8":
        ranges = Ranges(width)
        for piece in _plain_pieces(label, column, joined, mask):
            ranges.add(piece)
        codec = ranges.codec()
    out_dtype = np.dtype({"int8": np.int8, "float16": np.float16, "bfloat16": np.uint16}[store])

    def block(rows: Rows) -> Array:
        found = joined.block(rows)
        _check_stored(rows, found, joined, store)
        out = np.empty(found.shape, out_dtype)
        encode(PlainArray(label, found, dtype_name(found.dtype)), codec, out)
        return out

    return Column(
        column.table, column.columns, store, column.width, block, codec, column.attributes
    )


def _plain_pieces(
    label: str, column: Column, joined: _Joined, mask: Mask | None
) -> Iterable[PlainArray]:
    for rows in column.table.kept(column.columns, mask):
        found = joined.block(rows)
        _check_stored(rows, found, joined, "int8")
        yield PlainArray(label, found, dtype_name(found.dtype))


def _check_stored(rows: Rows, found: Array, joined: _Joined, store: str) -> None:
    """Raise an error for the first number that cannot be stored so."""
    if store == "bfloat16":
        return
    flat = found.reshape(len(rows), -1)
    wrong = ~np.isfinite(flat)
    expected = "a number that is finite, to be stored as int8"
    if store == "float16":
        wrong = np.isfinite(flat) & (np.abs(flat) > _LARGEST_FLOAT16)
        expected = f"at most {_LARGEST_FLOAT16:g}, the largest number of float16"
    if wrong.any():
        at, place = np.argwhere(wrong)[0].tolist()
        rows.refuse(at, joined.column_at(place), expected)
