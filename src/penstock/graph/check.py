"""Checks of arguments: each error names the argument, the first offending position and its value.

Checks raise `ValueError` and change nothing; what is valid but can hardly be meant, they warn of.
They read long arrays in pieces, so that a check needs no second array of that size. This module
does not know what the arguments are for.
"""

from __future__ import annotations

import datetime as dt
import operator
import sys
import warnings
from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from penstock import kernels
from penstock.graph.schema import EdgeType
from penstock.graph.tensors import PlainArray, floats

PIECE: Final = 1 << 18
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

# More nodes would not fit any machine; such an id is a hash or garbage.
MOST_NODES: Final = 1 << 40


def count(label: str, value: Any) -> int:
    """Return `value` as a number of nodes."""
    try:
        number = operator.index(value)
    except TypeError:
        number = -1
    if isinstance(value, bool | np.bool_) or number < 0:
        raise ValueError(f"{label} is {value!r}; expected a non-negative integer")
    if number > MOST_NODES:
        raise ValueError(f"{label} is {number}; expected at most {MOST_NODES}")
    return number


def warn(message: str) -> None:
    """Warn about an argument, at the user's line that passed it."""
    level, frame = 1, sys._getframe().f_back
    while frame is not None and frame.f_globals.get("__name__", "").startswith("penstock."):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, stacklevel=level + 1)


def warn_of_a_mask(label: str, ids: npt.NDArray[Any], num_nodes: int) -> None:
    """Warn if ids look like a mask of integers: nodes 0 and 1 alone, as often as there are nodes.

    Args:
        label: The argument's name.
        ids: The ids, which are in range.
        num_nodes: How many nodes there are.
    """
    if len(ids) == num_nodes > 2 and ids.dtype.kind in "iu" and ids.max() <= 1:
        warn(
            f"{label} has a 0 or a 1 for each of the {num_nodes} nodes, and is read as ids: nodes "
            "0 and 1 again and again. If it is a mask, make it one of bool"
        )


def warn_of_labels(label: str, y: Any, num_nodes: int | None) -> None:
    """Warn of a `y` that has several rows, but not one for each node: batches have all of it.

    One row is a label of the whole graph.
    """
    rows = len(y) if getattr(y, "ndim", 0) > 0 else 1
    if rows > 1 and num_nodes is not None:
        warn(
            f"{label} has {rows} rows, and there are {num_nodes} nodes: it is not taken for labels "
            "of nodes, and every batch has all of it"
        )


def node_type(label: str, name: object) -> str:
    """Return `name` if it can name a node type of a heterogeneous graph."""
    if not isinstance(name, str) or not is_name(name):
        raise ValueError(
            f"{label} has the node type {name!r}; expected a non-empty string "
            "without control characters and lone surrogates"
        )
    return name


def edge_type(label: str, name: object) -> EdgeType:
    """Return `name` if it can name an edge type of a heterogeneous graph."""
    match name:
        case (str(source), str(relation), str(destination)):
            names = (source, relation, destination)
            if all(map(is_name, names)):
                return names
    raise ValueError(
        f"{label} has the edge type {name!r}; expected (source, relation, destination): three "
        "non-empty strings without control characters and lone surrogates"
    )


def attribute_name(label: str, name: object) -> str:
    """Return `name` if it can name an attribute."""
    if not isinstance(name, str) or not is_name(name):
        raise ValueError(
            f"{label} has the name {name!r}; expected a non-empty string "
            "without control characters and lone surrogates"
        )
    return name


def is_name(name: str) -> bool:
    """Return whether a type or an attribute may have this name."""
    controls = any(ord(letter) < 32 or ord(letter) == 127 for letter in name)
    return name != "" and not controls and is_text(name)


def is_text(value: str) -> bool:
    """Return whether `value` can be encoded for a file: a lone half of a surrogate pair cannot."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def rows(column: PlainArray, expected: int, of: str) -> None:
    """Check that an attribute has one row for each of `expected` nodes or edges."""
    if not column.shape:
        raise ValueError(f"{column.label} is a single number; expected one row per {of}")
    if column.shape[0] != expected:
        raise ValueError(
            f"{column.label} has {column.shape[0]} rows; expected {expected}, one per {of}"
        )


def one_per_node(label: str, count: int, expected: int) -> None:
    """Check that there is one of something for each of `expected` nodes."""
    if count != expected:
        raise ValueError(f"{label} has {count} ids; expected {expected}, one per node")


def vector(column: PlainArray) -> None:
    """Check that an array has one dimension."""
    _one_dimension(column.label, column.array)


def edge_index(pairs: PlainArray) -> None:
    """Check that an array is two rows of ids."""
    if len(pairs.shape) != 2 or pairs.shape[0] != 2:
        raise ValueError(
            f"{pairs.label} has shape {list(pairs.shape)}; expected [2, number of edges]"
        )
    id_dtype(pairs)


def id_dtype(numbers: PlainArray, expected: str = "int32 or int64") -> None:
    """Check that an array has a dtype of ids."""
    if numbers.dtype not in ("int32", "int64"):
        raise ValueError(f"{numbers.label} has dtype {numbers.dtype}; expected {expected}")


def ids(label: str, numbers: npt.NDArray[Any], bound: int) -> None:
    """Check that every id is below `bound`, the number of nodes, and not negative."""
    at = kernels.first_outside(numbers, bound)
    if at >= 0:
        raise ValueError(f"{label}[{at}] is {numbers[at]}; expected 0 <= id < {bound}")


def weights(column: PlainArray) -> None:
    """Check that weights can be sampled by: finite, not negative."""
    vector(column)
    if column.dtype == "bool":
        raise ValueError(f"{column.label} has dtype bool; expected numbers")
    at = _first(column, lambda piece: ~(np.isfinite(piece) & (piece >= 0)))
    if at >= 0:
        raise ValueError(
            f"{column.label}[{at}] is {_value(column, at)}; expected a finite weight >= 0"
        )


def finite(column: PlainArray) -> None:
    """Check that all numbers are finite; they may have any sign and any number of columns."""
    at = _first(column, lambda rows: ~np.isfinite(rows).all(axis=tuple(range(1, rows.ndim))))
    if at >= 0:
        raise ValueError(f"{column.label}[{at}] is {_value(column, at)}; expected a finite weight")


def times(column: PlainArray) -> None:
    """Check that times can be compared."""
    vector(column)
    if column.dtype == "bool":
        raise ValueError(f"{column.label} has dtype bool; expected numbers or datetime64")
    at = _first(column, np.isnan)
    if at >= 0:
        raise ValueError(f"{column.label}[{at}] is nan; expected a time")


def nanoseconds(label: str, dates: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return NumPy dates as nanoseconds since 1970, a unit in which they compare as integers."""
    _one_dimension(label, dates)
    at = first_true(np.isnat(dates[begin : begin + PIECE]) for begin in _begins(dates))
    if at >= 0:
        raise ValueError(f"{label}[{at}] is NaT; expected a time")
    with np.errstate(all="ignore"):
        exact = dates.astype("datetime64[ns]")
    at = first_true([exact.astype(dates.dtype) != dates])
    if at >= 0:
        raise ValueError(f"{label}[{at}] is {dates[at]}; expected a time that nanoseconds can tell")
    return exact.view(np.int64)


def moments(label: str, dates: npt.NDArray[np.object_]) -> npt.NDArray[np.int64]:
    """Return Python's dates as nanoseconds since 1970; those without a time zone are in UTC.

    A date is the midnight it begins with. Pandas' timestamps are such dates, too. If some have a
    time zone and others have none, it is unknown which come first: that is an error.
    """
    found = np.empty(len(dates), np.int64)
    for at, date in enumerate(dates):
        if date != date:  # pandas' NaT
            raise ValueError(f"{label}[{at}] is NaT; expected a time")
        if _has_zone(date) != _has_zone(dates[0]):
            has, lacks = (0, at) if _has_zone(dates[0]) else (at, 0)
            raise ValueError(
                f"{label}[{has}] is {str(dates[has])!r} and has a time zone, {label}[{lacks}] is "
                f"{str(dates[lacks])!r} and has none: give all of them with a time zone, or none"
            )
        found[at] = _moment(label, at, date)
    return found


def _has_zone(date: dt.date) -> bool:
    return isinstance(date, dt.datetime) and date.utcoffset() is not None


def _moment(label: str, at: int, date: dt.date) -> int:
    if not isinstance(date, dt.datetime):
        date = dt.datetime(date.year, date.month, date.day)
    zoned = date if _has_zone(date) else date.replace(tzinfo=dt.UTC)
    since = zoned - _EPOCH
    seconds = since.days * 86_400 + since.seconds
    nanoseconds = getattr(since, "nanoseconds", 0)  # pandas'
    moment = (seconds * 1_000_000 + since.microseconds) * 1_000 + nanoseconds
    if not -(2**63) < moment < 2**63:
        raise ValueError(f"{label}[{at}] is {date}; expected a time that nanoseconds can tell")
    return moment


def json_value(label: str, value: Any) -> Any:
    """Return a value as JSON will give it back after saving: a tuple becomes a list."""
    match value:
        case None | bool():
            return value
        case str() if is_text(value):
            return value
        case int() if -(2**63) <= value < 2**63:
            return int(value)
        case float() if np.isfinite(value):
            return float(value)
        case list() | tuple():
            return [json_value(f"{label}[{at}]", item) for at, item in enumerate(value)]
        case dict() if all(isinstance(name, str) and is_text(name) for name in value):
            return {name: json_value(f"{label}[{name!r}]", item) for name, item in value.items()}
    raise ValueError(
        f"{label} is {_shortened(value)} ({type(value).__qualname__}), which a graph cannot keep; "
        "make it an array, or a value that JSON can tell, or leave it out"
    )


def first_true(pieces: Iterable[npt.NDArray[np.bool_]]) -> int:
    """Return the first true position, counted over consecutive pieces; -1 if there is none."""
    begin = 0
    for piece in pieces:
        if piece.any():
            return begin + int(piece.argmax())
        begin += len(piece)
    return -1


def _one_dimension(label: str, array: npt.NDArray[Any]) -> None:
    if array.ndim != 1:
        raise ValueError(f"{label} has shape {list(array.shape)}; expected one dimension")


def _first(column: PlainArray, is_bad: Callable[[npt.NDArray[Any]], npt.NDArray[np.bool_]]) -> int:
    pieces = (column.array[begin : begin + PIECE] for begin in _begins(column.array))
    return first_true(is_bad(floats(piece, column.dtype)) for piece in pieces)


def _value(column: PlainArray, at: int) -> Any:
    return floats(column.array[at : at + 1], column.dtype)[0]


def _begins(array: npt.NDArray[Any]) -> range:
    return range(0, len(array), PIECE)


def _shortened(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
