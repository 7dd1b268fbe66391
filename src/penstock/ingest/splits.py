"""Which nodes and links are held out.

A split is a function of the data alone: of row numbers in the whole table ("random"), of the users'
ids ("hash"), of times, or of a column. How rows are spread over files has no influence.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.graph.check import moments
from penstock.ingest.columns import is_date, plain_values, time_dtype, times
from penstock.ingest.description import Split
from penstock.ingest.states import KEPT, LEFT_OUT, TEST, TRAIN_ALONE, VAL
from penstock.ingest.tables import MOST_ROWS, Mask, Rows, Table
from penstock.ingest.workspace import Spool, Workspace
from penstock.kernels.random import permutation
from penstock.kernels.reference import mix

Array: TypeAlias = npt.NDArray[Any]
Words: TypeAlias = npt.NDArray[np.uint64]

NAMES: Final = {"train": KEPT, "val": VAL, "test": TEST}
# What a column says where the description does not.
_VALUES: Final = {
    "train": KEPT,
    "training": KEPT,
    "val": VAL,
    "valid": VAL,
    "validation": VAL,
    "dev": VAL,
    "test": TEST,
}
_SPLIT_DOMAIN: Final = 0x73706C6974000001
_DISJOINT_DOMAIN: Final = 0x646973
_SIGN: Final = np.uint64(1 << 63)
_DIGIT_BITS: Final = 16


class Splitter:
    """Says of rows in order which split they are in.

    Args:
        table: The table.
        said: How it is split.
        mask: Which rows are split; the others have no state.
        time: The column with times.
        hashes: Makes a word of the ids of rows, and says which columns it reads.
        workspace: For temporary files.
    """

    def __init__(
        self,
        table: Table,
        said: Split,
        mask: Mask | None,
        count: int,
        time: str | None,
        hashes: tuple[tuple[str, ...], Callable[[Rows], Words]],
        workspace: Workspace,
    ) -> None:
        self._table = table
        self._said = said
        self._mask = mask
        self._count = count
        self._time = said.column if said.column is not None else time
        self._hashes = hashes
        self._workspace = workspace
        self._label = f"{table.label}.split"

    def states(self) -> Iterator[Array]:
        """Yield the state of each row of the mask, in order, some at a time."""
        match self._said.by:
            case "column":
                found = self._by_column()
            case "random":
                found = self._by_number()
            case "hash":
                found = self._by_hash()
            case "time":
                found = self._by_time()
        if not self._said.disjoint:
            yield from found
            return
        done = 0
        for states in found:
            yield self._disjoint(states, done)
            done += len(states)

    # --- the ways ---

    def _by_column(self) -> Iterator[Array]:
        column = self._said.column
        assert column is not None
        meaning, is_given = self._meaning()
        for source, kind in self._table.types(column):
            if pa.types.is_nested(kind):
                raise ValueError(
                    f"{self._label}: column {column!r} of {source} is {kind}; expected single "
                    "values"
                )
        for rows in self._table.kept([column], self._mask):
            values = plain_values(rows, column).dictionary_encode()
            words = [
                meaning.get(value.strip().lower() if isinstance(value, str) else value)
                for value in values.dictionary.to_pylist()
            ]
            codes = values.indices.to_numpy(zero_copy_only=False)
            if values.null_count:
                codes = np.where(np.isnan(codes), len(words), codes).astype(np.int64)
            states = np.array([LEFT_OUT if word is None else word for word in words] + [LEFT_OUT])
            unknown = np.array([word is None for word in words] + [False])[codes]
            if unknown.any() and not is_given:
                rows.refuse(
                    int(unknown.argmax()),
                    column,
                    "train, val or test, or null for none (train, val and test of the split say "
                    "what other values mean)",
                )
            yield states[codes].astype(np.uint8)

    def _meaning(self) -> tuple[dict[Any, int], bool]:
        given: dict[Any, int] = {}
        for name, state in NAMES.items():
            values = getattr(self._said, name)
            for value in values if isinstance(values, list | tuple) else [values]:
                if value is not None:
                    given[value.strip().lower() if isinstance(value, str) else value] = state
        return (given, True) if given else (dict(_VALUES), False)

    def _by_number(self) -> Iterator[Array]:
        test, val = (round((share or 0) * self._count) for share in self._shares)
        for begin in range(0, self._count, MOST_ROWS):
            end = min(self._count, begin + MOST_ROWS)
            places = permutation(self._said.seed, 0, self._count, begin, end)
            yield _by_rank(places, test, test + val)

    def _by_hash(self) -> Iterator[Array]:
        columns, hashes = self._hashes
        test, val = (share or 0 for share in self._shares)
        key = mix(_word(_SPLIT_DOMAIN + self._said.seed))
        for rows in self._table.kept(columns, self._mask):
            yield _by_rank(_unit(mix(hashes(rows) ^ key)), test, test + val)

    def _by_time(self) -> Iterator[Array]:
        assert self._time is not None
        val_from, test_from = self._cuts()
        for rows in self._table.kept([self._time], self._mask):
            found = times(rows, self._time)
            states = np.full(len(found), KEPT, np.uint8)
            if val_from is not None:
                states[found >= val_from] = VAL
            if test_from is not None:
                states[found >= test_from] = TEST
            yield states

    @property
    def _shares(self) -> tuple[float, float]:
        return self._said.test, self._said.val

    # --- by time ---

    def _cuts(self) -> tuple[Any, Any]:
        """Return from when on rows are val, and test."""
        assert self._time is not None
        dtype = time_dtype(self._table, self._time)
        (_, kind), *_ = self._table.types(self._time)
        said = self._said
        if said.val_from is not None or said.test_from is not None:
            cuts = [self._cut(word, is_date(kind)) for word in ("val_from", "test_from")]
            if None not in cuts and cuts[0] > cuts[1]:
                raise ValueError(f"{self._label}: val_from is later than test_from")
            return cuts[0], cuts[1]
        spool = self._workspace.spool(np.int64 if dtype.kind in "iu" else np.float64)
        for rows in self._table.kept([self._time], self._mask):
            spool.append(times(rows, self._time))
        test, val = (round((share or 0) * spool.num_rows) for share in self._shares)
        cuts = [
            ranked(spool, spool.num_rows - held) if held else None
            for held in (test + val if val else 0, test)
        ]
        spool.remove()
        return cuts[0], cuts[1]

    def _cut(self, word: str, are_dates: bool) -> Any:
        value = getattr(self._said, word)
        if value is None:
            return None
        if isinstance(value, dt.date) != are_dates:
            what = "dates" if are_dates else "numbers"
            raise ValueError(
                f"{self._label}.{word} is {value!r}; column {self._time!r} has {what}, and it must "
                "be one of them"
            )
        if isinstance(value, dt.date):
            as_objects = np.empty(1, object)
            as_objects[0] = value
            return int(moments(f"{self._label}.{word}", as_objects)[0])
        return value

    # --- links of train that are no edges ---

    def _disjoint(self, states: Array, first: int) -> Array:
        key = mix(_word(_SPLIT_DOMAIN + self._said.seed) ^ _word(_DISJOINT_DOMAIN))
        numbers = np.arange(first, first + len(states), dtype=np.uint64)
        alone = (states == KEPT) & (
            _unit(mix(mix(numbers + np.uint64(1)) ^ key)) < self._said.disjoint
        )
        states[alone] = TRAIN_ALONE
        return states


def _by_rank(ranks: Array, test: float, held_out: float) -> Array:
    """Return states: of the lowest ranks test, then val, then train."""
    states = np.full(len(ranks), KEPT, np.uint8)
    states[ranks < held_out] = VAL
    states[ranks < test] = TEST
    return states


def _unit(words: Words) -> npt.NDArray[np.float64]:
    """Return words as numbers from 0 to below 1."""
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _word(value: int) -> Words:
    return np.array([value & (2**64 - 1)], np.uint64)


# --- the k-th of many times ----------------------------------------------------------------------


def ranked(spool: Spool, rank: int) -> Any:
    """Return the number at a rank, were they sorted: digit by digit, in four readings."""
    prefix, left = np.uint64(0), rank
    for shift in range(64 - _DIGIT_BITS, -1, -_DIGIT_BITS):
        counts = np.zeros(1 << _DIGIT_BITS, np.int64)
        for piece in spool.pieces(MOST_ROWS):
            words = _ordered(piece)
            if shift + _DIGIT_BITS < 64:
                above = np.uint64(shift + _DIGIT_BITS)
                words = words[words >> above == prefix >> above]
            digits = (words >> np.uint64(shift)) & np.uint64((1 << _DIGIT_BITS) - 1)
            counts += np.bincount(digits.astype(np.int64), minlength=len(counts))
        digit = int(np.searchsorted(np.cumsum(counts), left, side="right"))
        left -= int(counts[:digit].sum())
        prefix |= np.uint64(digit << shift)
    return _number(prefix, spool.dtype)


def _ordered(numbers: Array) -> Words:
    """Return words in the same order as numbers."""
    words: Words = numbers.view(np.uint64)
    if numbers.dtype.kind == "i":
        return words ^ _SIGN
    return np.where(words & _SIGN, ~words, words ^ _SIGN)


def _number(word: np.uint64, dtype: np.dtype[Any]) -> Any:
    is_turned = dtype.kind == "f" and not word & _SIGN
    bits = ~word if is_turned else word ^ _SIGN
    return np.array([bits], np.uint64).view(dtype)[0].item()
