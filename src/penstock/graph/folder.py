"""The folder of a saved graph: its contents change atomically.

    products.graph/
      manifest.json                names the current generation
      data-0f3a…/0000-….bin …      that generation: one file per array, never written to again

A save writes a new generation beside the old one, then a manifest that names it, which replaces the
old manifest in one step. Everything is on disk before that step, and the old generation is removed
after it, so a crash at any instant leaves the old graph or the new one. Other leftovers of a crash
are removed by the next save. Only files whose names Penstock has given are ever removed.

This module knows the names of files and when they are durable, and nothing about their contents.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from penstock.errors import GraphFormatError
from penstock.graph.manifest import (
    FILE_NAME,
    GENERATION_NAME,
    Manifest,
    check_format,
    decode,
    encode,
)

if sys.platform != "win32":
    import fcntl

MANIFEST: Final = "manifest.json"
NEW_MANIFEST: Final = "manifest.json.tmp"

# Of Linux: paths begin at the current folder; files change places.
_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2
_BINARY: Final = getattr(os, "O_BINARY", 0)
_OLD_PART: Final = (
    "a part of a graph in a form that is not read any more (folders graph and cut): cut the whole "
    "graph again (penstock partition)"
)


def has_manifest(folder: Path) -> bool:
    """Return whether a folder has a saved graph; it may be damaged."""
    return (folder / MANIFEST).is_file()


def is_old_part(folder: Path) -> bool:
    """Return whether a folder is a part as they were written once: as two graphs."""
    return not has_manifest(folder) and all(map(has_manifest, (folder / "graph", folder / "cut")))


def load_manifest(folder: Path) -> Manifest:
    """Return the manifest of a saved graph, or raise an error on what is wrong with the folder."""
    if folder.name in ("graph", "cut") and is_old_part(folder.parent):
        raise GraphFormatError(f"{folder.parent}: {_OLD_PART}")
    try:
        data = (folder / MANIFEST).read_bytes()
    except FileNotFoundError:
        raise _without_manifest(folder) from None
    except NotADirectoryError:
        raise GraphFormatError(f"{folder}: a file, and a saved graph is a folder") from None
    except IsADirectoryError:
        raise GraphFormatError(f"{folder / MANIFEST}: a folder, not a manifest") from None
    return decode(data, folder / MANIFEST)


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Hold the folder as its only saver; the folder is created, or checked to be a graph's."""
    made = _make(folder)
    with _locked(folder):
        try:
            if made:
                sync_folder(folder.parent)
            _check_ours(folder)
            # The last saver may have died between replacing the manifest and syncing it.
            sync_folder(folder)
            _sweep(folder)
            yield
        except BaseException:
            if made:
                with suppress(OSError):
                    os.rmdir(folder)
            raise


@contextmanager
def new_generation(folder: Path) -> Iterator[Path]:
    """Create a folder for the files of a graph; on an error it is removed unless committed."""
    generation = folder / f"data-{os.urandom(8).hex()}"
    os.mkdir(generation)
    try:
        yield generation
    except BaseException:
        if not _is_named(generation):
            _unlink(folder / NEW_MANIFEST)
            remove_folder(generation, FILE_NAME)
        raise


def commit(folder: Path, manifest: Manifest) -> None:
    """Make the generation that `manifest` names the current one, and remove all others."""
    data = encode(manifest)
    sync_folder(folder / manifest.generation)
    sync_folder(folder)
    write_durably(folder / NEW_MANIFEST, [data])
    os.replace(folder / NEW_MANIFEST, folder / MANIFEST)
    sync_folder(folder)
    _sweep(folder)


def write_durably(path: Path, contents: Iterable[bytes | memoryview]) -> None:
    """Write a file and return when it is on disk. Its name is not: sync the folder, too."""
    with naming(path):
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _BINARY, 0o666)
        try:
            for content in contents:
                _write_all(fd, memoryview(content))
            os.fsync(fd)
        finally:
            os.close(fd)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Add the path to an `OSError` that names no file, such as the one for a full disk."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def exchange(one: Path, other: Path) -> bool:
    """Let two files or folders change places in one step; return whether the system can do that."""
    rename = getattr(ctypes.CDLL(None), "renameat2", None) if sys.platform == "linux" else None
    if rename is None:
        return False
    paths = (os.fsencode(one), os.fsencode(other))
    return bool(rename(_AT_FDCWD, paths[0], _AT_FDCWD, paths[1], _RENAME_EXCHANGE) == 0)


def sync_folder(folder: Path) -> None:
    """Return when the names in the folder are on disk."""
    if sys.platform == "win32":  # Windows has no such call, and orders the writes itself
        return
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a file system that cannot sync folders
            raise
    finally:
        os.close(fd)


def _write_all(fd: int, content: memoryview) -> None:
    while content.nbytes:
        content = content[os.write(fd, content) :]


def _make(folder: Path) -> bool:
    """Create the folder if it does not exist; return whether it was created."""
    try:
        os.mkdir(folder)
    except FileExistsError:
        if not stat.S_ISDIR(os.stat(folder).st_mode):
            raise FileExistsError(
                errno.EEXIST, "a graph is saved as a folder, and here is a file", str(folder)
            ) from None
        return False
    return True


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep other savers out. The system releases the lock when the process ends, in any way."""
    if sys.platform == "win32":
        yield
        return
    fd = os.open(folder, os.O_RDONLY)
    try:
        _lock(fd, folder)
        yield
    finally:
        os.close(fd)


def _lock(fd: int, folder: Path) -> None:
    assert sys.platform != "win32"
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise BlockingIOError(
            errno.EWOULDBLOCK, "another process is saving a graph here", str(folder)
        ) from None
    except OSError:
        # Some network file systems cannot lock folders. Then the user must ensure that there is one
        # saver at a time.
        pass


def check_place(folder: Path) -> None:
    """Raise an error if a graph cannot be saved in a folder: before there is anything to save."""
    if folder.is_dir():
        _check_ours(folder)
    elif folder.exists():
        what = "a graph is saved as a folder, and here is a file"
        raise FileExistsError(errno.EEXIST, what, str(folder))
    elif not folder.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "there is no such folder", str(folder.parent))


def _check_ours(folder: Path) -> None:
    """Refuse to save into a folder that holds files of anything but a graph."""
    try:
        data = (folder / MANIFEST).read_bytes()
    except FileNotFoundError:
        if strangers := [name for name in sorted(os.listdir(folder)) if not _is_ours(name)]:
            what = f"the folder holds {_some(strangers)}, and no graph"
            raise FileExistsError(errno.EEXIST, what, str(folder)) from None
        return
    try:
        check_format(data, MANIFEST)
    except GraphFormatError as error:
        what = f"the folder is not a graph of this Penstock's ({error}); remove it first"
        raise FileExistsError(errno.EEXIST, what, str(folder)) from None


def _is_ours(name: str) -> bool:
    return name in (MANIFEST, NEW_MANIFEST) or GENERATION_NAME.fullmatch(name) is not None


def _is_named(generation: Path) -> bool:
    """Return whether the current manifest may be the one that names this generation.

    Called after a failure, and looks only for the name in the bytes: an interrupt may have come
    just after the manifest was replaced, and the files it names must not be removed because
    something else fails now.
    """
    try:
        return generation.name.encode() in (generation.parent / MANIFEST).read_bytes()
    except FileNotFoundError:
        return False
    except OSError:
        return True


def _sweep(folder: Path) -> None:
    """Remove what earlier savers left. What cannot be removed is left to the next save."""
    try:
        counts = load_manifest(folder).generation if (folder / MANIFEST).exists() else None
    except GraphFormatError:
        return  # damaged: until it is replaced, the user may want to rescue the files it named
    _unlink(folder / NEW_MANIFEST)
    for name in os.listdir(folder):
        if name != counts and GENERATION_NAME.fullmatch(name):
            remove_folder(folder / name, FILE_NAME)


def _unlink(path: Path) -> None:
    with suppress(OSError):
        os.unlink(path)


def remove_folder(folder: Path, names: re.Pattern[str]) -> None:
    """Remove the files of such names, and the folder if it is empty then; or as much as can be."""
    with suppress(OSError):
        for name in os.listdir(folder):
            if names.fullmatch(name):
                os.unlink(folder / name)
        os.rmdir(folder)


def _without_manifest(folder: Path) -> Exception:
    if not folder.exists():
        return FileNotFoundError(errno.ENOENT, "there is no graph here", str(folder))
    names = sorted(os.listdir(folder))
    if not names:
        return GraphFormatError(f"{folder}: an empty folder, not a saved graph")
    if is_old_part(folder):
        return GraphFormatError(f"{folder}: {_OLD_PART}")
    if all(name.startswith("part-") for name in names):
        return GraphFormatError(
            f"{folder}: a folder of {len(names)} parts of a graph, not a graph: open one of them, "
            f"such as {folder / names[0]}"
        )
    if all(map(_is_ours, names)):
        return GraphFormatError(
            f"{folder}: no {MANIFEST}: its first save has not ended, or was interrupted; save again"
        )
    return GraphFormatError(f"{folder}: not a saved graph: no {MANIFEST}, but {_some(names)}")


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (" …" if len(names) > 3 else "")
