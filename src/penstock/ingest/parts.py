"""The parts that a table is read from: files of any format, and tables in memory.

Each knows its columns and how many rows it has, and yields record batches of Arrow in order, as
often as it is asked. CSV and streams that can be read only once are turned into Parquet first
(`csv`, `tables`). This module does not know what columns mean.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

Array = npt.NDArray[Any]

# What a NumPy file without names has: all of it as one column, and each column by its number.
WHOLE: Final = "data"
# Bytes of a file that are read at a time.
_BUFFER: Final = 1 << 20
# Bytes of the values of Parquet's types.
_WIDTHS: Final = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8, "BYTE_ARRAY": 16}


class Part(Protocol):
    """Something with rows.

    `source` names it in errors, `num_rows` counts its rows, and `nbytes` says how much there is to
    read of some columns, about.
    """

    @property
    def source(self) -> str: ...
    @property
    def num_rows(self) -> int: ...
    @property
    def schema(self) -> pa.Schema: ...
    def nbytes(self, columns: Sequence[str]) -> int: ...
    def batches(self, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of some columns in order, at most `rows` at a time."""
        ...


@dataclass(frozen=True)
class ParquetPart:
    """A Parquet file; `source` is another name for one that was made of something else."""

    path: Path
    source: str
    schema: pa.Schema
    num_rows: int
    sizes: Mapping[str, int]

    @classmethod
    def of(cls, path: Path, source: str | None = None) -> ParquetPart:
        """Open a file, and read its footer."""
        with _refusing(source or str(path), "Parquet"), pq.ParquetFile(path) as file:
            metadata = file.metadata
            sizes: dict[str, int] = {}
            for group in range(metadata.num_row_groups):
                for at in range(metadata.num_columns):
                    chunk = metadata.row_group(group).column(at)
                    name = chunk.path_in_schema.partition(".")[0]
                    # Values that repeat are short in the file, and long where they are read.
                    read = chunk.num_values * _WIDTHS.get(chunk.physical_type, 0)
                    sizes[name] = sizes.get(name, 0) + max(read, chunk.total_uncompressed_size)
            return cls(path, source or str(path), file.schema_arrow, metadata.num_rows, sizes)

    def nbytes(self, columns: Sequence[str]) -> int:
        return sum(self.sizes.get(name, 0) for name in columns)

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        with _refusing(self.source, "Parquet"):
            # Without its buffer, which would hold whole row groups of a column.
            with pq.ParquetFile(self.path, buffer_size=_BUFFER, pre_buffer=False) as file:
                yield from file.iter_batches(batch_size=rows, columns=list(columns))


@dataclass(frozen=True)
class ArrowPart:
    """A file in Arrow's format (Feather), or in its format of streams; mapped."""

    path: Path
    source: str
    schema: pa.Schema
    num_rows: int

    @classmethod
    def of(cls, path: Path) -> ArrowPart:
        """Open a file, and count its rows."""
        with _refusing(str(path), "Arrow"):
            found = _arrow_batches(path)
            schema = next(found)
            return cls(path, str(path), schema, sum(batch.num_rows for batch in found))

    def nbytes(self, columns: Sequence[str]) -> int:
        return self.path.stat().st_size * len(columns) // max(1, len(self.schema))

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        with _refusing(self.source, "Arrow"):
            found = _arrow_batches(self.path)
            next(found)
            for batch in found:
                yield from _sliced(batch.select(list(columns)), rows)


@dataclass(frozen=True)
class MemoryPart:
    """A table in memory."""

    table: pa.Table
    source: str

    @property
    def schema(self) -> pa.Schema:
        return self.table.schema

    @property
    def num_rows(self) -> int:
        return int(self.table.num_rows)

    def nbytes(self, columns: Sequence[str]) -> int:
        return int(self.table.select(list(columns)).nbytes)

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        yield from self.table.select(list(columns)).to_batches(max_chunksize=rows)


@dataclass(frozen=True)
class NumpyPart:
    """Columns of NumPy by name, in memory or in a file: of one dimension or two.

    `read` yields a column's rows from the beginning, so many at a time.
    """

    source: str
    schema: pa.Schema
    num_rows: int
    widths: Mapping[str, int]
    read: Callable[[str, int], Iterator[Array]]
    # What opens a file again: pickled, it is a path.
    again: tuple[Callable[[Path], NumpyPart], Path] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        assert self.again is not None, "arrays in memory stay in their process"
        return self.again[0], self.again[1:]

    def nbytes(self, columns: Sequence[str]) -> int:
        return sum(self.num_rows * self.widths[name] for name in columns)

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        schema = pa.schema([self.schema.field(name) for name in columns])
        for pieces in zip(*(self.read(name, rows) for name in columns), strict=True):
            arrays = [
                _arrow_of(piece, field.type) for piece, field in zip(pieces, schema, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


# --- NumPy ---------------------------------------------------------------------------------------


def npy_part(path: Path) -> NumpyPart:
    """Return a .npy file as a part: `data` is all of it, "0", "1", … are its columns."""
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise ValueError(f"{path}: not a .npy file that can be read: {error}") from None
    if array.dtype.names:
        columns = {name: array[name] for name in array.dtype.names}
    else:
        columns = {WHOLE: array}
        if array.ndim == 2:
            columns |= {str(at): array[:, at] for at in range(array.shape[1])}
    return replace(_numpy_part(str(path), columns), again=(npy_part, path))


def npz_part(path: Path) -> NumpyPart:
    """Return a .npz file as a part: each of its arrays is a column, and is read in pieces."""
    shapes: dict[str, tuple[np.dtype[Any], tuple[int, ...]]] = {}
    with _naming_npz(path), zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            with archive.open(name) as file:
                shapes[name.removesuffix(".npy")] = _header(file)

    def read(name: str, rows: int) -> Iterator[Array]:
        dtype, shape = shapes[name]
        row = int(np.prod(shape[1:], dtype=np.int64)) * dtype.itemsize
        with _naming_npz(path), zipfile.ZipFile(path) as archive:
            with archive.open(f"{name}.npy") as file:
                _header(file)
                for begin in range(0, shape[0], rows):
                    count = min(rows, shape[0] - begin)
                    data = file.read(count * row)
                    yield np.frombuffer(data, dtype).reshape(count, *shape[1:])

    return replace(_from_shapes(str(path), shapes, read), again=(npz_part, path))


@contextmanager
def _naming_npz(path: Path) -> Iterator[None]:
    """Turn what damaged archives end in into an error that names the file."""
    try:
        yield
    except (
        *(ValueError, OSError, EOFError, LookupError, NotImplementedError, RuntimeError),
        *(zipfile.BadZipFile, zlib.error, struct.error),
    ) as error:
        raise ValueError(f"{path}: not a .npz file that can be read: {error}") from None


def mapping_part(source: str, columns: Mapping[str, Any]) -> MemoryPart:
    """Return arrays or lists by name as a part."""
    found = {str(name): _column(source, str(name), values) for name, values in columns.items()}
    _check_as_long(source, {name: len(array) for name, array in found.items()})
    return MemoryPart(pa.table(found), source)


def _column(source: str, name: str, values: Any) -> Any:
    """Return what was given for a column as Arrow has it."""
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    # NumPy would make text of numbers beside text, and cut off a NUL at the end of text.
    array = None if isinstance(values, list | tuple) and len(values) else np.asarray(values)
    if array is not None and array.dtype.kind != "O":
        _check_dimensions(source, name, array.shape)
        return _arrow_of(array, _arrow_type(source, name, array.dtype, array.shape))
    try:
        return pa.array(values if array is None else array, from_pandas=array is not None)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise ValueError(f"{source}: {name!r} is no column: {error}") from None


def _numpy_part(source: str, arrays: Mapping[str, Array]) -> NumpyPart:
    def read(name: str, rows: int) -> Iterator[Array]:
        array = arrays[name]
        for begin in range(0, len(array), rows):
            yield array[begin : begin + rows]

    shapes = {name: (array.dtype, array.shape) for name, array in arrays.items()}
    return _from_shapes(source, shapes, read)


def _from_shapes(
    source: str,
    shapes: Mapping[str, tuple[np.dtype[Any], tuple[int, ...]]],
    read: Callable[[str, int], Iterator[Array]],
) -> NumpyPart:
    fields, widths, counts = [], {}, {}
    for name, (dtype, shape) in shapes.items():
        _check_dimensions(source, name, shape)
        fields.append(pa.field(name, _arrow_type(source, name, dtype, shape)))
        counts[name] = shape[0]
        widths[name] = dtype.itemsize * (shape[1] if len(shape) == 2 else 1)
    _check_as_long(source, counts)
    return NumpyPart(source, pa.schema(fields), next(iter(counts.values()), 0), widths, read)


def _check_dimensions(source: str, name: str, shape: tuple[int, ...]) -> None:
    if len(shape) not in (1, 2):
        raise ValueError(
            f"{source}: {name!r} has shape {list(shape)}; expected one or two dimensions"
        )


def _check_as_long(source: str, counts: Mapping[str, int]) -> None:
    if len(set(counts.values())) > 1:
        (first, rows), *others = counts.items()
        other, found = next(each for each in others if each[1] != rows)
        raise ValueError(f"{source}: {other!r} has {found} rows, and {first!r} has {rows}")


def _header(file: Any) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """Read what a .npy says of itself, up to where its numbers begin."""
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
    else:
        shape, fortran, dtype = np.lib.format.read_array_header_2_0(file)
    if fortran and len(shape) > 1:
        raise ValueError("an array is in the order of Fortran, column by column: save a C array")
    if dtype.hasobject:
        raise ValueError("an array has Python objects: save numbers, or text of a fixed width")
    return dtype, shape


def _arrow_type(
    source: str, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]
) -> pa.DataType:
    if dtype.kind in "UO":
        kind = pa.large_string()
    else:
        try:
            kind = pa.from_numpy_dtype(dtype.newbyteorder("="))
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
            raise ValueError(f"{source}: {name!r} is {dtype}, which cannot be read") from None
    return pa.list_(kind, shape[1]) if len(shape) == 2 else kind


def _arrow_of(array: Array, kind: pa.DataType) -> pa.Array:
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("="))
    if array.ndim == 2:
        flat = np.ascontiguousarray(array).reshape(-1)
        return pa.FixedSizeListArray.from_arrays(pa.array(flat, kind.value_type), kind.list_size)
    return pa.array(np.ascontiguousarray(array), kind)


# --- Arrow ---------------------------------------------------------------------------------------


def _arrow_batches(path: Path) -> Iterator[Any]:
    """Yield the schema, then all batches."""
    with pa.memory_map(str(path)) as file:
        try:
            reader = pa.ipc.open_file(file)
        except pa.ArrowInvalid:
            file.seek(0)
            stream = pa.ipc.open_stream(file)
            yield stream.schema
            yield from stream
            return
        yield reader.schema
        for at in range(reader.num_record_batches):
            yield reader.get_batch(at)


def _sliced(batch: pa.RecordBatch, rows: int) -> Iterator[pa.RecordBatch]:
    for begin in range(0, batch.num_rows, rows):
        yield batch.slice(begin, rows)


class _refusing:  # noqa: N801  # reads as a statement
    """Turns Arrow's errors into ones that name the file."""

    def __init__(self, source: str, what: str) -> None:
        self._source = source
        self._what = what

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, pa.ArrowException | EOFError) or (
            isinstance(error, OSError) and error.errno is None
        ):
            raise ValueError(
                f"{self._source}: not {self._what} that can be read: {error}"
            ) from None
