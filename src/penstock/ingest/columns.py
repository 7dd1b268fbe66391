"""Turns columns of Arrow into arrays of NumPy; what cannot be turned is named with file and row."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.ingest.tables import Mask, Rows, Table, is_text
from penstock.kernels.id_table import Keys, Text

Array = npt.NDArray[Any]
Ids = npt.NDArray[np.int64]

_DAY_NS: Final = 86_400 * 10**9
_INT64_MAX: Final = 2**63 - 1


# --- what columns are ----------------------------------------------------------------------------


def element_of(kind: pa.DataType) -> pa.DataType:
    """Return the type of the values of lists, or the type itself."""
    if (
        pa.types.is_list(kind)
        or pa.types.is_large_list(kind)
        or pa.types.is_fixed_size_list(kind)
        or pa.types.is_list_view(kind)
        or pa.types.is_large_list_view(kind)
    ):
        return kind.value_type
    return kind


def is_list(kind: pa.DataType) -> bool:
    """Return whether a type is one of lists."""
    return element_of(kind) is not kind


def is_date(kind: pa.DataType) -> bool:
    """Return whether a type is one of dates or moments."""
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def is_number(kind: pa.DataType) -> bool:
    """Return whether a type is one of numbers, booleans among them."""
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_decimal(kind)
    )


def is_category(kind: pa.DataType) -> bool:
    """Return whether a type has a dictionary: its values are categories."""
    return bool(pa.types.is_dictionary(kind))


def numpy_dtype(kind: pa.DataType) -> np.dtype[Any]:
    """Return NumPy's type for numbers of a type; dates are days."""
    if pa.types.is_boolean(kind):
        return np.dtype(np.bool_)
    if is_date(kind):
        return np.dtype(np.float32)
    if pa.types.is_decimal(kind):
        return np.dtype(np.float64)
    if pa.types.is_floating(kind):
        return np.dtype(f"f{kind.bit_width // 8}")
    return np.dtype(f"{'i' if pa.types.is_signed_integer(kind) else 'u'}{kind.bit_width // 8}")


# --- numbers -------------------------------------------------------------------------------------


def numbers(rows: Rows, column: str, width: int | None = None) -> Array:
    """Return a column of numbers, [rows] or, of lists, [rows, width]; dates are days since 1970.

    Args:
        rows: The rows.
        column: The column's name.
        width: How many numbers each list has.

    Raises:
        ValueError: A value is missing, or a list has another length.
    """
    values = rows.column(column)
    _refuse_nulls(rows, column, "a value in every row")
    if not is_list(values.type):
        return plain_numbers(rows, column, values)
    lengths = pc.list_value_length(values).to_numpy(zero_copy_only=False)
    wrong = np.flatnonzero(lengths != width)
    if len(wrong):
        at = int(wrong[0])
        rows.refuse(at, column, f"{width} numbers, as in the first row; these are {lengths[at]}")
    flat = values.flatten()
    if flat.null_count:
        at = int(np.flatnonzero(flat.is_null().to_numpy(zero_copy_only=False))[0])
        rows.refuse(at // max(1, width or 0), column, "a list without nulls")
    return plain_numbers(rows, column, flat).reshape(len(rows), width or 0)


def plain_numbers(rows: Rows, column: str, values: pa.Array) -> Array:
    """Return values of a column that are numbers or dates, not lists and not null, as an array."""
    if is_date(values.type):
        return (_nanoseconds(rows, column, values) / _DAY_NS).astype(np.float32)
    if pa.types.is_decimal(values.type):
        values = values.cast(pa.float64())
    return np.asarray(values.to_numpy(zero_copy_only=False))


def as_dtype(rows: Rows, column: str, values: Array, dtype: np.dtype[Any]) -> Array:
    """Return numbers as another type; the first that becomes more than rounded is refused."""
    if values.dtype == dtype:
        return values
    with np.errstate(over="ignore", invalid="ignore"):
        found = values.astype(dtype)
    wrong = _changed(values, found)
    if wrong is not None and wrong.any():
        at = int(wrong.reshape(len(rows), -1).any(axis=1).argmax())
        rows.refuse(at, column, f"a number that {dtype} can tell")
    return found


def _changed(values: Array, found: Array) -> npt.NDArray[np.bool_] | None:
    """Return which numbers have become others by more than rounding; None: none of them."""
    if found.dtype.kind == "f":
        was_finite = np.isfinite(values) if values.dtype.kind == "f" else True
        return np.asarray(np.isinf(found) & was_finite)
    if values.dtype.kind == "f":
        with np.errstate(invalid="ignore"):
            return np.asarray(found.astype(values.dtype) != values)
    if np.can_cast(values.dtype, found.dtype):
        return None
    return np.asarray((found.astype(values.dtype) != values) | ((found < 0) != (values < 0)))


def first_width(table: Table, column: str, mask: Mask | None) -> int:
    """Return how many numbers the lists of a column have: as many as the first one that is kept."""
    (_, kind), *_ = table.types(column)
    if pa.types.is_fixed_size_list(kind):
        return int(kind.list_size)
    for rows in table.kept([column], mask):
        lengths = pc.list_value_length(rows.column(column))
        if lengths[0].as_py() is None:
            rows.refuse(0, column, "a list in every row")
        return int(lengths[0].as_py())
    return 0


def _refuse_nulls(rows: Rows, column: str, expected: str) -> None:
    values = rows.column(column)
    if values.null_count:
        at = int(np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))[0])
        rows.refuse(at, column, expected)


# --- times and weights ---------------------------------------------------------------------------


def times(rows: Rows, column: str) -> Array:
    """Return a column of times: dates as nanoseconds since 1970 in UTC, numbers as they are.

    Unsigned numbers become signed ones: those are kept.
    """
    values = rows.column(column)
    _refuse_nulls(rows, column, "a time in every row")
    if is_date(values.type):
        return _nanoseconds(rows, column, values)
    found = plain_numbers(rows, column, values)
    if found.dtype.kind == "f" and np.isnan(found).any():
        rows.refuse(int(np.isnan(found).argmax()), column, "a time")
    return as_dtype(rows, column, found, stored_dtype(found.dtype))


def time_dtype(table: Table, column: str) -> np.dtype[Any]:
    """Return the type of a column of times.

    Raises:
        ValueError: It has no times.
    """
    kinds = []
    for source, kind in table.types(column):
        if is_date(kind):
            kinds.append(np.dtype(np.int64))
        elif is_number(kind) and not pa.types.is_boolean(kind):
            kinds.append(numpy_dtype(kind))
        else:
            advice = f': of CSV, say csv = {{types = {{{column} = "TIMESTAMP"}}}}'
            more = advice if is_text(kind) else ""
            raise ValueError(
                f"{table.label}.time: column {column!r} of {source} is {kind}; expected dates, "
                f"timestamps or numbers{more}"
            )
    if len({is_date(kind) for _, kind in table.types(column)}) > 1:
        raise ValueError(
            f"{table.label}.time: column {column!r} has dates in one file, numbers in another"
        )
    return stored_dtype(np.result_type(*kinds))


def weights(rows: Rows, column: str) -> Array:
    """Return a column of weights, which are finite and not negative."""
    found = numbers(rows, column)
    wrong = ~(np.isfinite(found) & (found >= 0))
    if wrong.any():
        rows.refuse(int(wrong.argmax()), column, "a finite weight >= 0")
    return found


def _nanoseconds(rows: Rows, column: str, values: pa.Array) -> Ids:
    zone = getattr(values.type, "tz", None)
    try:
        exact = values.cast(pa.timestamp("ns", zone))
    except pa.ArrowInvalid:
        for at in range(len(values)):
            try:
                values.slice(at, 1).cast(pa.timestamp("ns", zone))
            except pa.ArrowInvalid:
                rows.refuse(at, column, "a time that nanoseconds can tell")
        raise
    found: Ids = exact.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return found


def stored_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type in which numbers are kept: a graph has no unsigned ones but uint8."""
    wider = {"uint16": np.int32, "uint32": np.int64, "uint64": np.int64}
    return np.dtype(wider.get(dtype.name, dtype))


# --- ids -----------------------------------------------------------------------------------------


def keys(rows: Rows, column: str, *, text: bool) -> tuple[Keys, npt.NDArray[np.bool_] | None]:
    """Return the ids in a column that are there, and which rows have one (None: all have).

    Args:
        rows: The rows.
        column: The column's name.
        text: Whether ids are text, or numbers.
    """
    values = id_values(rows, column, text=text)
    valid = None
    if values.null_count:
        valid = values.is_valid().to_numpy(zero_copy_only=False)
        values = values.drop_null()
    return as_text(values) if text else values.to_numpy(zero_copy_only=False), valid


def id_values(rows: Rows, column: str, *, text: bool) -> pa.Array:
    """Return the ids in a column as large_string or int64; null where there is none.

    Raises:
        ValueError: A number has not 64 bits, or is not whole; or text is not UTF-8.
    """
    values = plain_values(rows, column)
    if text:
        return values.cast(pa.large_string())
    if pa.types.is_floating(values.type):
        return _whole_numbers(rows, column, values)
    if pa.types.is_uint64(values.type):
        found = values.fill_null(0).to_numpy(zero_copy_only=False)
        if (wrong := found > _INT64_MAX).any():
            rows.refuse(int(wrong.argmax()), column, "an id below 2^63, or ids that are text")
    return values.cast(pa.int64())


def plain_values(rows: Rows, column: str) -> pa.Array:
    """Return values without a dictionary, and text in one type.

    Raises:
        ValueError: Text is not UTF-8: files are not checked when they are read.
    """
    values = rows.column(column)
    if is_category(values.type):
        values = values.dictionary_decode()
    if not is_text(values.type):
        return values
    whole = values.cast(pa.large_string())
    try:
        whole.validate(full=True)
    except pa.ArrowInvalid as error:
        for at in range(len(whole)):
            try:
                whole.slice(at, 1).validate(full=True)
            except pa.ArrowInvalid:
                rows.refuse(at, column, f"text in UTF-8 ({error})")
        raise
    return whole


def as_text(values: pa.Array) -> Text:
    """Return text without nulls as the kernels read it; its memory is shared."""
    whole = values.cast(pa.large_string())
    _, offsets, data = whole.buffers()
    found = np.frombuffer(offsets, np.int64, len(whole) + 1, whole.offset * 8)
    begin, end = int(found[0]), int(found[-1])
    if data is None or begin == end:
        return Text(np.zeros(len(whole) + 1, np.int64), np.empty(0, np.uint8))
    text = np.frombuffer(data, np.uint8, end - begin, begin)
    return Text(found - begin if begin else found, text)


def _whole_numbers(rows: Rows, column: str, values: pa.Array) -> pa.Array:
    """Return floats as integers: pandas makes floats of integers, NaN where there is none."""
    found = values.to_numpy(zero_copy_only=False)
    missing = np.isnan(found)
    # From here on, floats are rounded: two ids may have become one.
    rounded = 2.0 ** (np.finfo(found.dtype).nmant + 1)
    with np.errstate(invalid="ignore"):
        wrong = ~missing & ((np.floor(found) != found) | (np.abs(found) >= rounded))
    if wrong.any():
        exact = f"{found.dtype} is exact below {rounded:.0f}"
        expected = f"a whole number, or text, for an id ({exact})"
        rows.refuse(int(wrong.argmax()), column, expected)
    return pa.array(np.where(missing, 0, found).astype(np.int64), mask=missing)


def key_is_text(table: Table, column: str, what: str) -> bool | None:
    """Return whether the ids in a column are text; None if all are missing.

    Raises:
        ValueError: They are neither text nor whole numbers.
    """
    kinds = set()
    for source, kind in table.types(column):
        value = kind.value_type if is_category(kind) else kind
        if not is_text(value) and not (
            pa.types.is_integer(value) or pa.types.is_floating(value) or pa.types.is_null(value)
        ):
            raise ValueError(
                f"{table.label}.{what}: column {column!r} of {source} is {kind}; ids are text or "
                "whole numbers"
            )
        if not pa.types.is_null(value):
            kinds.add(is_text(value))
    if len(kinds) > 1:
        raise ValueError(
            f"{table.label}.{what}: column {column!r} is text in one file and numbers in another"
        )
    return True in kinds if kinds else None
