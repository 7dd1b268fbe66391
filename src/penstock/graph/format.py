"""The format on disk: writes, reads and verifies a schema and its arrays.

docs/format.md describes the format; `folder` makes changes atomic. Reading maps the files: whatever
their size, only the manifest is parsed and the sizes of files are checked. Only `verify` checks
checksums. This module knows nothing about the meaning of the arrays.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

import msgspec
import numpy as np

from penstock import kernels
from penstock.errors import GraphFormatError
from penstock.graph.checksum import (
    PIECE_NBYTES,
    Bytes,
    content_version,
    pieces,
    sum_of_pieces,
    version_from_sums,
    version_within,
)
from penstock.graph.folder import (
    MANIFEST,
    claimed,
    commit,
    load_manifest,
    naming,
    new_generation,
    write_durably,
)
from penstock.graph.inventory import first_disagreement, key_text
from penstock.graph.manifest import ArrayEntry, Manifest, file_name, writer_name
from penstock.graph.progress import Report
from penstock.graph.schema import ArrayKey, Arrays, Schema
from penstock.graph.shared import SharedArray

if TYPE_CHECKING:
    from concurrent.futures import Executor

__all__ = [
    "ArraySource",
    "Opened",
    "content_version",
    "read",
    "verify",
    "version_within",
    "write",
    "write_sources",
]

StrPath = str | os.PathLike[str]

_Answer = TypeVar("_Answer")


class Opened(NamedTuple):
    """A graph that was read. Its arrays are mapped, and live as long as they are used."""

    schema: Schema
    arrays: dict[ArrayKey, SharedArray]
    version: str


class ArraySource(Protocol):
    """The bytes of an array that is to be written, wherever they come from."""

    @property
    def dtype(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...

    def pieces(self) -> Iterator[Bytes]:
        """Yield the bytes in order, `PIECE_NBYTES` at a time; for an empty array, none once.

        A piece is valid until the next one is asked for.
        """


class Stored:
    """An array that is there as it is to be written."""

    def __init__(self, array: SharedArray) -> None:
        self._array = array

    @property
    def dtype(self) -> str:
        return self._array.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self._array.shape

    def pieces(self) -> Iterator[Bytes]:
        return pieces(self._array.array)


def write(path: StrPath, schema: Schema, arrays: Arrays, progress: Report | None = None) -> str:
    """Save a graph in the folder `path`, replacing one that may be there.

    Arrays may be mapped from the very graph that is replaced: they stay valid.

    Returns:
        The graph's version.
    """
    sources = {key: Stored(array) for key, array in arrays.items()}
    meter = Meter(sum(array.nbytes for array in arrays.values()), progress)
    return write_sources(path, schema, sources, meter)


def write_sources(
    path: StrPath,
    schema: Schema,
    arrays: Mapping[ArrayKey, ArraySource],
    meter: Meter,
    pool: Executor | None = None,
) -> str:
    """Save a graph whose arrays are read, or made, while they are written; return its version.

    Args:
        path: The folder.
        schema: The types.
        arrays: The arrays.
        meter: Told of every piece that is written.
        pool: Writes several arrays at a time, if it is given.
    """
    _check_arguments(schema, arrays)
    folder = _folder(path)
    with claimed(folder), new_generation(folder) as generation:
        entries = _write_arrays(generation, arrays, meter, pool)
        version = version_from_sums(schema, {entry.key: entry for entry in entries})
        commit(folder, Manifest(writer_name(), version, generation.name, schema, entries))
    return version


def read(path: StrPath) -> Opened:
    """Open the graph saved in the folder `path`, without reading its arrays."""

    def opened(folder: Path, manifest: Manifest) -> Opened:
        arrays = {entry.key: _map_array(folder, manifest, entry) for entry in manifest.arrays}
        return Opened(manifest.schema, arrays, manifest.version)

    return _with_manifest(_folder(path), opened)


def verify(path: StrPath, progress: Report | None = None) -> str:
    """Read all files of a saved graph, compare their checksums, and return the graph's version."""

    def verified(folder: Path, manifest: Manifest) -> str:
        meter = Meter(manifest.nbytes, progress)
        for entry in manifest.arrays:
            _verify_array(folder, manifest, entry, meter)
        if version_from_sums(manifest.schema, manifest.by_key()) != manifest.version:
            raise GraphFormatError(f"{folder / MANIFEST}: its version is not that of its content")
        return manifest.version

    return _with_manifest(_folder(path), verified)


def _folder(path: StrPath) -> Path:
    if not os.fspath(path):  # an empty path would mean the current folder
        raise ValueError("path is empty; expected the folder of a graph")
    return Path(os.path.abspath(path))


class Meter:
    """Adds up the bytes done, and reports them."""

    def __init__(self, total: int, progress: Report | None) -> None:
        self._done = 0
        self._total = total
        self._progress = progress

    def add(self, nbytes: int) -> None:
        self._done += nbytes
        if self._progress is not None:
            self._progress(self._done, self._total)


def _check_arguments(schema: Schema, arrays: Mapping[ArrayKey, ArraySource]) -> None:
    if (complaint := first_disagreement(schema, arrays)) is not None:
        raise ValueError(f"arrays: {complaint}")
    # What the manifest cannot store is found out before gigabytes are written.
    version_from_sums(schema, {})
    msgspec.json.encode((schema, list(arrays)))


def _write_arrays(
    generation: Path,
    arrays: Mapping[ArrayKey, ArraySource],
    meter: Meter,
    pool: Executor | None,
) -> tuple[ArrayEntry, ...]:
    def written(position: int, key: ArrayKey, array: ArraySource) -> ArrayEntry:
        file = file_name(position, key)
        checksum = _write_array(generation / file, array, meter)
        return ArrayEntry(key, array.dtype, array.shape, file, checksum)

    tasks = [(position, *each) for position, each in enumerate(arrays.items())]
    if pool is None:
        return tuple(written(*task) for task in tasks)
    writing = [pool.submit(written, *task) for task in tasks]
    try:
        return tuple(each.result() for each in writing)
    finally:  # after a failure nobody may write to the folder any more
        for each in writing:
            each.cancel()
        from concurrent.futures import wait  # workers, who write nothing, need not import it

        wait(writing)


def _write_array(path: Path, array: ArraySource, meter: Meter) -> str:
    digests: list[bytes] = []

    def summed() -> Iterator[memoryview]:
        for piece in array.pieces():
            digests.append(kernels.digest(piece))
            yield piece.data
            meter.add(piece.nbytes)

    write_durably(path, summed())
    return sum_of_pieces(digests)


def _with_manifest(folder: Path, use: Callable[[Path, Manifest], _Answer]) -> _Answer:
    """Call `use` with the manifest; again with the new one if a save has replaced the files."""
    manifest = load_manifest(folder)
    while True:
        try:
            return use(folder, manifest)
        except FileNotFoundError as missing:
            current = load_manifest(folder)
            if current.generation == manifest.generation:
                what = "missing, though the manifest names it"
                raise GraphFormatError(f"{missing.filename}: {what}") from None
            manifest = current


def _map_array(folder: Path, manifest: Manifest, entry: ArrayEntry) -> SharedArray:
    path = _checked_file(folder, manifest, entry)
    try:
        return SharedArray.open(path, entry.dtype, entry.shape)
    except (ValueError, OverflowError) as error:  # no array can have this shape
        raise GraphFormatError(f"{path}: {key_text(entry.key)}: {error}") from None


def _checked_file(folder: Path, manifest: Manifest, entry: ArrayEntry) -> Path:
    """Return the path of an array's file, after checking that it exists and has the right size."""
    path = folder / manifest.generation / entry.file
    try:
        status = os.stat(path)
    except NotADirectoryError:
        raise GraphFormatError(f"{path.parent}: not a folder") from None
    if not stat.S_ISREG(status.st_mode):
        raise GraphFormatError(f"{path}: not a regular file")
    if status.st_size != entry.nbytes:
        state = "cut short" if status.st_size < entry.nbytes else "too long"
        raise GraphFormatError(
            f"{path}: {state}: {key_text(entry.key)}, {entry.dtype}{list(entry.shape)}, needs "
            f"{entry.nbytes} bytes, there are {status.st_size}"
        )
    return path


def _verify_array(folder: Path, manifest: Manifest, entry: ArrayEntry, meter: Meter) -> None:
    path = _checked_file(folder, manifest, entry)
    if (found := _sum_of_file(path, meter)) != entry.checksum:
        raise GraphFormatError(
            f"{path}: damaged: the sum of {key_text(entry.key)} is {found}, not {entry.checksum}"
        )


def _sum_of_file(path: Path, meter: Meter) -> str:
    # The file is read, not mapped, so that an unreadable disk is an error instead of a signal.
    buffer = np.empty(PIECE_NBYTES, np.uint8)
    digests: list[bytes] = []
    with naming(path), open(path, "rb") as file:
        while (count := file.readinto(buffer.data)) or not digests:
            digests.append(kernels.digest(buffer[:count]))
            meter.add(count)
    return sum_of_pieces(digests)
