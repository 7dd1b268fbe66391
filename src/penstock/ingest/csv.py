"""CSV, read by DuckDB: what it is (delimiter, header, types) is found out by looking at all of it.

A file is turned into Parquet beside the graph, once, and read from there. Types are those that fit
every row of all files of a table, whichever file a row is in.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from penstock.ingest.parts import ParquetPart
from penstock.ingest.workspace import Workspace

# What DuckDB would find out by itself, and lose rows or take others by it: comments in a file that
# has none, lines before those that have as many columns as most, values of folders' names ("id=5").
_FIXED: Final = {"comment": "", "hive_partitioning": False}
_ABSENT: Final = re.compile(r"Columns with names: (.*) do not exist in the CSV File")
_LINE: Final = re.compile(r"CSV Error on Line: (\d+)")
_TEXT: Final = "VARCHAR"
# Files that are looked at together.
_SECTION: Final = 512


# Of what is read of a file at a time: a row may have 2 MiB, and DuckDB takes 32 MiB by itself.
_LEAST_BUFFER: Final = 4 << 20
_MOST_BUFFER: Final = 32 << 20
_MEMORY_OF_THREAD: Final = 64 << 20
_DATES: Final = ("DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE")
# Rows that tell whether the year is first, where dates cannot be mixed up.
_SAMPLE: Final = 2048
# What DuckDB's commonest types are to Arrow.
_ARROW: Final = {
    "BIGINT": pa.int64(),
    "BOOLEAN": pa.bool_(),
    "DATE": pa.date32(),
    "DOUBLE": pa.float64(),
    "TIMESTAMP": pa.timestamp("us"),
    "TIMESTAMP WITH TIME ZONE": pa.timestamp("us", "UTC"),
}


@dataclass(frozen=True)
class LookedAt:
    """A file whose columns are known, and nothing else of it."""

    source: str
    schema: pa.Schema
    width: int
    num_rows: int = 0

    def nbytes(self, columns: Sequence[str]) -> int:
        return os.path.getsize(self.source) * len(columns) // max(1, self.width)

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        return iter(())


class CsvFiles:
    """CSV files of one table."""

    def __init__(
        self,
        label: str,
        paths: Sequence[Path],
        words: Mapping[str, Any],
        workspace: Workspace,
        memory: int,
    ) -> None:
        self._label = label
        self._paths = paths
        self.source = str(paths[0])
        self._words = dict(words)
        self._given = dict(self._words.pop("types", None) or {})
        self._words.setdefault("header", "names" not in self._words)
        self._words = {**_FIXED, **({} if self._words["header"] else {"skip": 0}), **self._words}
        self._words["buffer_size"] = min(max(memory // 32, _LEAST_BUFFER), _MOST_BUFFER)
        self._workspace = workspace
        self._memory = memory
        self.types = self._sniffed()

    def parts(self, columns: Iterable[str], text: Iterable[str]) -> list[ParquetPart]:
        """Turn some columns into Parquet, those named `text` as they are written."""
        types = self._chosen(columns, text)
        self._check_dates(types)
        return [self._converted(path, types) for path in self._paths]

    def looks(self, columns: Iterable[str], text: Iterable[str]) -> list[LookedAt]:
        """Return the files with the types of columns, and without any rows."""
        types = self._chosen(columns, text)
        schema = pa.schema([(name, _ARROW.get(kind, pa.string())) for name, kind in types.items()])
        return [LookedAt(str(path), schema, len(self.types)) for path in self._paths]

    def _chosen(self, columns: Iterable[str], text: Iterable[str]) -> dict[str, str]:
        types = {name: self.types[name] for name in dict.fromkeys(columns) if name in self.types}
        return types | {name: _TEXT for name in text if name in types}

    def _sniffed(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for begin in range(0, len(self._paths), _SECTION):
            some = [_literal(path) for path in self._paths[begin : begin + _SECTION]]
            options = _options({**self._words, "sample_size": -1, "union_by_name": True})
            source = str(self._paths[begin])
            rows = self._run(source, f"DESCRIBE SELECT * FROM read_csv({_list(some)}{options})")
            for name, kind, *_ in rows:
                before = found.setdefault(name, kind)
                found[name] = kind if before == kind else _common(before, kind)
        for name, kind in self._given.items():
            if name not in found:
                raise ValueError(
                    f"{self._label}.csv.types names the column {name!r}, which there is not; "
                    f"there are: {', '.join(map(repr, found))}"
                )
            found[name] = str(kind)
        return found

    def _converted(self, path: Path, types: Mapping[str, str]) -> ParquetPart:
        target = self._workspace.path("csv.parquet")
        columns = ", ".join(map(_name, types)) or "1"
        given = ", ".join(f"{_text(name)}: {_text(kind)}" for name, kind in types.items())
        options = _options(self._words) + (f", types = {{{given}}}" if given else "")
        options += ", sample_size = -1"
        self._run(
            str(path),
            f"COPY (SELECT {columns} FROM read_csv({_text(_literal(path))}{options})) "
            f"TO {_text(str(target))} (FORMAT parquet, COMPRESSION 'lz4_raw')",
        )
        return ParquetPart.of(target, str(path))

    def _check_dates(self, types: Mapping[str, str]) -> None:
        """Raise an error if dates are day first in one file, and month first in another.

        DuckDB takes day first if a file does not tell: 03/02/2024 would depend on other rows of it.
        """
        columns = {name for name, kind in types.items() if kind in _DATES}
        if len(self._paths) == 1 or not columns:
            return
        known: dict[str, Path] = {}
        for path in self._paths:
            for word, form in self._date_formats(path, columns).items():
                other = next((each for each in known if _may_be_taken_for(each, form)), None)
                if other is not None:
                    raise ValueError(
                        f"{self._label}: dates are {other} in {known[other]} and {form} in {path}: "
                        f'say csv = {{{word} = "{form}"}}, or the other'
                    )
                known.setdefault(form, path)

    def _date_formats(self, path: Path, columns: set[str]) -> dict[str, str]:
        """Return the formats that DuckDB finds in a file, by the word that gives one."""
        words = {name: value for name, value in self._words.items() if name != "hive_partitioning"}
        found: dict[str, str] = {}
        for sample in (_SAMPLE, -1):
            options = _options({**words, "sample_size": sample})
            ((*formats, kinds),) = self._run(
                str(path),
                "SELECT DateFormat, TimestampFormat, Columns "
                f"FROM sniff_csv({_text(_literal(path))}{options})",
            )
            named = zip(("dateformat", "timestampformat"), formats, strict=True)
            found = {word: form for word, form in named if form}
            seen = {kind["name"] for kind in kinds if kind["type"] in _DATES}
            if columns <= seen and all(form.startswith("%Y") for form in found.values()):
                break
        return found

    def _run(self, source: str, statement: str) -> list[Any]:
        try:
            import duckdb
        except ImportError as error:
            raise ImportError(
                f"reading CSV needs DuckDB ({error}): pip install 'penstock-gnn[ingest]'"
            ) from error
        scratch = self._workspace.path("duckdb")
        config: dict[str, Any] = {
            "memory_limit": f"{max(64, self._memory >> 20)}MiB",
            "temp_directory": str(scratch),
        }
        try:
            with duckdb.connect(config=config) as connection:
                # Moments without a zone, beside others that have one: not those of this machine.
                connection.execute("SET TimeZone = 'UTC'")
                ((threads,),) = connection.execute("SELECT current_setting('threads')").fetchall()
                if threads > (most := max(1, self._memory // _MEMORY_OF_THREAD)):
                    connection.execute(f"SET threads = {most}")
                return list(connection.execute(statement).fetchall())
        except duckdb.IOException as error:
            raise OSError(f"{source}: {_first(error)}") from None
        except duckdb.Error as error:
            raise ValueError(f"{_named(source, str(error))}: {_advice(str(error))}") from None


def _named(source: str, words: str) -> str:
    """Return the file that DuckDB's error is about, and its line."""
    file = re.search(r"^\s*file = (.*)$", words, re.MULTILINE)
    line = _LINE.search(words)
    where = file[1] if file else source
    return f"{where}, line {line[1]}" if line else where


def _advice(words: str) -> str:
    conversion = re.search(r"Error when converting column \"(.*)\"\. (.*)", words)
    if conversion:
        return (
            f"column {conversion[1]!r}: {conversion[2]} (csv = {{types = {{{conversion[1]} = "
            '"VARCHAR"}} reads it as text; nullstr says what stands for nothing)'
        )
    if absent := _ABSENT.search(words):
        return f"there is no column {absent[1].replace(',', ', ')}"
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    return " ".join(line for line in lines[:4] if not line.startswith("Original Line"))


def _may_be_taken_for(one: str, other: str) -> bool:
    """Return whether a date of one format may be one of another, which is not the same."""
    year = "%Y"
    return one != other and sorted(one) == sorted(other) and one.find(year) == other.find(year)


def _literal(path: Path) -> str:
    """Return a path as a pattern that only this file fits."""
    return glob.escape(str(path))


def _first(error: BaseException) -> str:
    return str(error).partition("\n")[0]


def _common(one: str, other: str) -> str:
    """Return a type for a column that is of two types in two sections of files."""
    numbers = ("BIGINT", "DOUBLE")
    return "DOUBLE" if one in numbers and other in numbers else _TEXT


def _options(words: Mapping[str, Any]) -> str:
    return "".join(f", {name} = {_value(value)}" for name, value in words.items())


def _value(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
        case list() | tuple():
            return "[" + ", ".join(map(_value, value)) + "]"
        case dict():
            return "{" + ", ".join(f"{_text(k)}: {_value(v)}" for k, v in value.items()) + "}"
    return _text(str(value))


def _list(paths: Iterable[str]) -> str:
    return "[" + ", ".join(map(_text, paths)) + "]"


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _name(value: str) -> str:
    return '"' + value.replace('"', '""') + '"'
