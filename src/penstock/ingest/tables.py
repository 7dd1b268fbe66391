"""A table: rows from any number of files, or from memory, in one order.

Files are read in the order of their paths. A row has a number in the whole table, by which results
do not depend on how rows are spread over files, and one in its file, by which errors name it; both
count from 0, and the header of CSV is no row.
"""

from __future__ import annotations

import glob
import os
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NoReturn, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.errors import suggestion
from penstock.ingest.csv import CsvFiles
from penstock.ingest.description import EdgeTable, Format, NodeTable
from penstock.ingest.parts import (
    ArrowPart,
    MemoryPart,
    ParquetPart,
    Part,
    mapping_part,
    npy_part,
    npz_part,
)
from penstock.ingest.workspace import Workspace


class Mask(Protocol):
    """Which rows of a table are meant, by their numbers in it."""

    def __getitem__(self, rows: slice) -> npt.NDArray[np.bool_]: ...


# What files are, by the ends of their names.
_FORMATS: Final[Mapping[str, Format]] = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".csv.gz": "csv",
    ".tsv.gz": "csv",
    ".csv.zst": "csv",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".npy": "npy",
    ".npz": "npz",
}
# Rows that are read at a time, and the bytes that they may have.
MOST_ROWS: Final = 1 << 17
_FEWEST_ROWS: Final = 256
_SHARE: Final = 32
_MOST_BYTES: Final = 64 << 20
# DuckDB's types of whole numbers that ids may be.
_WHOLE_NUMBERS: Final = ("BIGINT", "INTEGER", "SMALLINT", "TINYINT", "UINTEGER", "UBIGINT")
# Libraries whose tables can be read as often as one likes, in the same order.
_TABLES: Final = ("pyarrow", "pandas", "polars")


@dataclass(frozen=True)
class Rows:
    """Consecutive rows.

    Attributes:
        table: The table.
        source: The file that they are from.
        first: The number of the first one in the file.
        begin: Its number in the table.
        batch: Their columns.
        places: Which of them these are, if some were left out.
    """

    table: Table
    source: str
    first: int
    begin: int
    batch: pa.RecordBatch
    places: npt.NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    @property
    def numbers(self) -> npt.NDArray[np.int64]:
        """Their numbers in the table."""
        places = np.arange(len(self)) if self.places is None else self.places
        return self.begin + places

    def only(self, chosen: npt.NDArray[np.bool_]) -> Rows:
        """Return some of these rows, which keep their numbers."""
        assert self.places is None
        return replace(
            self, batch=self.batch.filter(pa.array(chosen)), places=np.flatnonzero(chosen)
        )

    def column(self, name: str) -> pa.Array:
        """Return a column."""
        return self.batch.column(self.batch.schema.get_field_index(name))

    def refuse(self, at: int, column: str, expected: str) -> NoReturn:
        """Raise `ValueError` for the value of a column in row `at` of these."""
        shown = _told(self.column(column)[at])
        row = self.first + (at if self.places is None else int(self.places[at]))
        raise ValueError(
            f"{self.source}, row {row}: column {column!r} of {self.table.label} is "
            f"{shown}; expected {expected}"
        )


def _told(value: pa.Scalar) -> str:
    """Return a value in words: also one that Python cannot hold."""
    try:
        found = value.as_py()
    except UnicodeDecodeError:
        found = getattr(value, "value", value).as_buffer().to_pybytes()
    except (OverflowError, ValueError):  # a moment in a year beyond 9999
        return f"{value.value} ({value.type})"
    return "null" if found is None else f"{found!r:.80}"


class Table:
    """The rows of a description's table."""

    def __init__(self, label: str, parts: Sequence[Part], memory: int) -> None:
        self.label = label
        self._parts = parts
        self._memory = memory
        self.begins = np.cumsum([0, *(part.num_rows for part in parts)]).tolist()
        # Told how many bytes have been read.
        self.meter: Callable[[int], object] = lambda nbytes: None

    def __reduce__(self) -> tuple[Any, ...]:
        return Table, (self.label, self._parts, self._memory)

    def run(self, first: int, end: int) -> Table:
        """Return some consecutive files as a table of its own, whose rows count from 0."""
        return Table(self.label, self._parts[first:end], self._memory)

    def sizes(self, columns: Iterable[str]) -> list[int]:
        """Return how much there is to read of some columns in each file, about."""
        names = list(dict.fromkeys(columns))
        return [part.nbytes(names) for part in self._parts]

    @property
    def num_rows(self) -> int:
        """How many rows there are."""
        return int(self.begins[-1])

    @property
    def num_parts(self) -> int:
        """How many files, or tables in memory, they are from."""
        return len(self._parts)

    @property
    def num_bytes(self) -> int:
        """How large the files are, or the tables in memory."""
        return sum(
            os.path.getsize(part.source)
            if os.path.isfile(part.source)
            else part.nbytes(part.schema.names)
            for part in self._parts
        )

    @property
    def columns(self) -> dict[str, pa.DataType]:
        """The columns of the first part, and their types."""
        return {field.name: field.type for field in self._parts[0].schema}

    def types(self, column: str) -> list[tuple[str, pa.DataType]]:
        """Return the types of a column, each with the first source where it has that type.

        What has no rows does not count, unless nothing has: a column of nothing may be of any type.
        """
        found: dict[pa.DataType, str] = {}
        for part in [part for part in self._parts if part.num_rows] or self._parts:
            found.setdefault(part.schema.field(self._index(part, column)).type, part.source)
        return [(source, kind) for kind, source in found.items()]

    def nbytes(self, columns: Iterable[str]) -> int:
        """Return how much there is to read of some columns, about."""
        names = list(dict.fromkeys(columns))
        return sum(part.nbytes(names) for part in self._parts)

    def rows(self, columns: Iterable[str]) -> Iterator[Rows]:
        """Yield all rows in order, some at a time, with some of their columns."""
        names = list(dict.fromkeys(columns))
        for part, begin in zip(self._parts, self.begins, strict=False):
            first, row = 0, part.nbytes(names) / max(1, part.num_rows)
            for batch in _ahead(part.batches(names, self._rows_at_once(part, names))):
                if batch.num_rows:
                    yield Rows(self, part.source, first, begin + first, _without_views(batch))
                first += batch.num_rows
                self.meter(int(row * batch.num_rows))
            if first != part.num_rows:
                raise ValueError(
                    f"{part.source} had {part.num_rows} rows, and now {first}: it was changed "
                    "while it was read"
                )

    def kept(self, columns: Iterable[str], mask: Mask | None) -> Iterator[Rows]:
        """Yield the rows that a mask keeps (None: all), as `rows` does."""
        for rows in self.rows(columns):
            if mask is None:
                yield rows
                continue
            chosen = mask[rows.begin : rows.begin + len(rows)]
            if chosen.any():
                yield rows if chosen.all() else rows.only(chosen)

    def where(self, row: int) -> str:
        """Return the file, and the row in it, of a row of the table, in words."""
        at = bisect_right(self.begins, row) - 1
        return f"{self._parts[at].source}, row {row - self.begins[at]}"

    def check(self, columns: Iterable[tuple[str, str]]) -> None:
        """Raise an error for the first column that is not there, given with what it is for."""
        for what, name in columns:
            for part in self._parts:
                self._index(part, name, what)

    def _index(self, part: Part, name: str, what: str = "") -> int:
        at = [place for place, column in enumerate(part.schema.names) if column == name]
        if len(at) == 1:
            return at[0]
        told = f"{self.label}.{what} is {name!r}, and " if what else f"{self.label}: "
        if at:
            raise ValueError(f"{told}{part.source} has {len(at)} columns that are called so")
        near = suggestion(name, part.schema.names)
        there = ", ".join(map(repr, part.schema.names)) or "none"
        raise ValueError(f"{told}{part.source} has no column {name!r}; there are: {there}{near}")

    def _rows_at_once(self, part: Part, names: Sequence[str]) -> int:
        width = part.nbytes(names) // max(1, part.num_rows) + 1
        room = min(_MOST_BYTES, self._memory // _SHARE)
        return min(MOST_ROWS, max(_FEWEST_ROWS, room // width))


def _without_views(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows with plain text in the place of views, with which Arrow computes little."""
    for at, (name, values) in enumerate(zip(batch.schema.names, batch.columns, strict=True)):
        plain = None
        if pa.types.is_dictionary(values.type) and pa.types.is_string_view(values.type.value_type):
            words = values.dictionary.cast(pa.large_string())
            plain = pa.DictionaryArray.from_arrays(values.indices, words)
        elif pa.types.is_string_view(values.type):
            plain = values.cast(pa.large_string())
        if plain is not None:
            batch = batch.set_column(at, name, plain)
    return batch


def _ahead(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield batches while a thread reads the next one."""
    with ThreadPoolExecutor(1, "penstock-read") as thread:
        coming = thread.submit(next, batches, None)
        while (batch := coming.result()) is not None:
            coming = thread.submit(next, batches, None)
            yield batch


# --- opening -------------------------------------------------------------------------------------


class Opener:
    """Opens the tables of a description."""

    def __init__(self, folder: Path, workspace: Workspace, memory: int) -> None:
        self._folder = folder
        self._workspace = workspace
        self._memory = memory

    def open(self, label: str, said: NodeTable | EdgeTable) -> OpenedTable:
        """Find the files, or read the data, of a table."""
        if said.data is not None:
            part = self._data(label, said.data)
            return OpenedTable(label, [part], None, self._memory)
        paths = files_of(label, said, self._folder)
        kind = _format_of(label, said.format, paths)
        if kind == "csv":
            words = {**({"delim": "\t"} if _are_tabs(paths) else {}), **said.csv}
            files = CsvFiles(label, paths, words, self._workspace, self._memory)
            return OpenedTable(label, [], files, self._memory)
        if said.csv:
            raise ValueError(f"{label} has the word 'csv', and its files are {kind}: leave it out")
        return OpenedTable(label, [_part(path, kind) for path in paths], None, self._memory)

    def _data(self, label: str, data: Any) -> Part:
        source = f"data of {label}"
        if isinstance(data, Mapping):
            return mapping_part(source, data)
        if not hasattr(data, "__arrow_c_stream__"):
            raise ValueError(
                f"{label}.data is {type(data).__qualname__}; expected a table (pandas, polars, "
                "DuckDB, pyarrow: anything with __arrow_c_stream__), or arrays by name"
            )
        try:
            return self._table(source, data)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise ValueError(f"{label}.data cannot be read: {error}") from None

    def _table(self, source: str, data: Any) -> Part:
        root = type(data).__module__.partition(".")[0]
        if root in _TABLES and not isinstance(data, pa.RecordBatchReader) and _is_there(data):
            return MemoryPart(pa.table(data), source)
        # A stream may be there once only, and a query may answer in another order next time.
        target = self._workspace.path("stream.parquet")
        with pa.RecordBatchReader.from_stream(data) as stream:
            # Columns that Parquet cannot have are none that a graph could have.
            kept = [at for at, each in enumerate(stream.schema) if _fits_parquet(each)]
            schema = pa.schema([stream.schema.field(at) for at in kept])
            with pq.ParquetWriter(target, schema, compression="lz4") as writer:
                for batch in stream:
                    writer.write_batch(batch.select(kept))
        return ParquetPart.of(target, source)


class OpenedTable:
    """A table that has been found; CSV is not read before it is known which columns are needed."""

    def __init__(
        self, label: str, parts: Sequence[Part], csv: CsvFiles | None, memory: int
    ) -> None:
        self.label = label
        self._parts = parts
        self._csv = csv
        self._memory = memory

    @property
    def is_csv(self) -> bool:
        """Whether it is read from CSV, where the type of a column can be chosen."""
        return self._csv is not None

    def is_text(self, column: str) -> bool | None:
        """Return whether the ids in a column are text; None if there is no such column.

        In CSV, whatever does not look like whole numbers is: dates, and numbers of 20 digits.
        """
        if self._csv is not None:
            kind = self._csv.types.get(column)
            return None if kind is None else kind.upper() not in _WHOLE_NUMBERS
        for part in self._parts:
            if part.schema.names.count(column) == 1:
                return is_text(part.schema.field(column).type)
        return None

    def check(self, columns: Iterable[tuple[str, str]]) -> None:
        """Raise an error for the first column that CSV does not have, given with what it is for."""
        for what, name in columns if self._csv is not None else ():
            assert self._csv is not None
            if name not in self._csv.types:
                there = ", ".join(map(repr, self._csv.types))
                raise ValueError(
                    f"{self.label}.{what} is {name!r}, and {self._csv.source} has no column "
                    f"{name!r}; there are: {there}{suggestion(name, self._csv.types)}"
                )

    def table(self, columns: Iterable[str], text: Iterable[str], *, only_look: bool) -> Table:
        """Return the table.

        Args:
            columns: The columns that will be read of CSV.
            text: Those of them that are read as text.
            only_look: Whether CSV is not read at all: it has types, and no rows.
        """
        if self._csv is None:
            return Table(self.label, self._parts, self._memory)
        read = self._csv.looks if only_look else self._csv.parts
        return Table(self.label, read(columns, text), self._memory)


def is_text(kind: pa.DataType) -> bool:
    """Return whether a type is text, maybe with a dictionary."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def files_of(label: str, said: NodeTable | EdgeTable, folder: Path) -> list[Path]:
    """Return the files of a table, sorted; one that several paths lead to is there once.

    Raises:
        FileNotFoundError: A pattern fits no file.
    """
    patterns = (said.files,) if isinstance(said.files, str) else said.files
    found: dict[str, None] = {}
    for pattern in patterns:
        whole = os.path.join(folder, os.path.expanduser(pattern))
        if os.path.isfile(whole):  # a name may have brackets
            found[whole] = None
            continue
        fitting = [path for path in glob.glob(whole, recursive=True) if os.path.isfile(path)]
        if not fitting:
            raise FileNotFoundError(
                f"{label}.files is {pattern!r}: there is no such file in {folder}"
            )
        found |= dict.fromkeys(fitting)
    files: dict[str, Path] = {}
    for path in sorted(map(Path, found)):
        files.setdefault(os.path.realpath(path), path)
    return list(files.values())


def _format_of(label: str, given: Format | None, paths: Sequence[Path]) -> Format:
    if given is not None:
        return given
    kinds = {_format_by_name(path): path for path in reversed(paths)}
    if None in kinds:
        raise ValueError(
            f"{label}: {kinds[None]} has a name that does not say what it is: say format = "
            '"parquet", "csv", "arrow", "npy" or "npz"'
        )
    if len(kinds) > 1:
        (one, path), (other, another), *_ = kinds.items()
        raise ValueError(
            f"{label} has files of several formats: {path} is {one}, {another} {other}"
        )
    (kind,) = kinds
    assert kind is not None
    return kind


def _format_by_name(path: Path) -> Format | None:
    name = path.name.lower()
    return next((kind for end, kind in _FORMATS.items() if name.endswith(end)), None)


def _are_tabs(paths: Sequence[Path]) -> bool:
    return all(".tsv" in path.suffixes for path in paths)


def _part(path: Path, kind: Format) -> Part:
    match kind:
        case "parquet":
            return ParquetPart.of(path)
        case "arrow":
            return ArrowPart.of(path)
        case "npy":
            return npy_part(path)
    return npz_part(path)


def _fits_parquet(field: pa.Field) -> bool:
    """Return whether a column can be in a Parquet file."""
    try:
        pq.ParquetWriter(pa.BufferOutputStream(), pa.schema([field])).close()
    except pa.ArrowNotImplementedError:
        return False
    return True


def _is_there(data: Any) -> bool:
    """Return whether a table is in memory, and not a plan to make one (polars' LazyFrame)."""
    return hasattr(data, "shape") or hasattr(data, "num_rows")
