"""A disk as a power failure may leave it: only what was synced is sure to be there.

`Recorder` notes what a saver does to a folder. `Disk` replays the notes up to any instant and then
loses power: the contents of a file are those of its last fsync, or part of what was written since;
each change of a folder since its last fsync happened or did not, whatever happened to the others.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# Says whether something that was not synced survived: the "contents" of a file, an entry of the
# graph's "folder" or one of a "generation" in it.
Survives = Callable[[str], bool]


@dataclass
class File:
    data: bytes = b""
    synced: bytes = b""


@dataclass
class Folder:
    synced: dict[str, Node] = field(default_factory=dict)
    entries: dict[str, Node] = field(default_factory=dict)
    pending: list[tuple[tuple[str, Node | None], ...]] = field(default_factory=list)

    def change(self, *changes: tuple[str, Node | None]) -> None:
        """Sets or (None) removes entries, all of them in one step."""
        apply(self.entries, changes)
        self.pending.append(changes)

    def sync(self) -> None:
        self.synced, self.pending = dict(self.entries), []


Node = File | Folder


def apply(entries: dict[str, Node], changes: tuple[tuple[str, Node | None], ...]) -> None:
    for name, node in changes:
        if node is None:
            entries.pop(name, None)
        else:
            entries[name] = node


class Disk:
    """The folder `root`, as it is now, all of it synced."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.tree = _loaded(root)

    def do(self, call: str, path: Path, detail: Any = None) -> None:
        folder, name = self._find(path.parent), path.name
        assert path == self.root or isinstance(folder, Folder)
        match call:
            case "mkdir":
                folder.change((name, Folder()))
            case "create":
                folder.change((name, File()))
            case "write":
                self._file(path).data += detail
            case "fsync":
                self._sync(path)
            case "replace":
                folder.change((name, None), (detail.name, folder.entries[name]))
            case "unlink" | "rmdir":
                folder.change((name, None))

    def lose_power(self, remains: Path, survives: Survives) -> None:
        """Writes what is left of the tree to the new folder `remains`."""
        _materialise(self.tree, remains, survives)

    def _find(self, path: Path) -> Any:
        node: Any = self.tree
        if path == self.root.parent:
            return None
        for part in path.relative_to(self.root).parts:
            node = node.entries[part]
        return node

    def _file(self, path: Path) -> File:
        node = self._find(path)
        assert isinstance(node, File)
        return node

    def _sync(self, path: Path) -> None:
        node = self._find(path)
        if isinstance(node, Folder):
            node.sync()
        else:
            node.synced = node.data


def _loaded(path: Path) -> Folder:
    folder = Folder()
    for entry in path.iterdir():
        data = None if entry.is_dir() else entry.read_bytes()
        folder.entries[entry.name] = _loaded(entry) if data is None else File(data, data)
    folder.sync()
    return folder


def _materialise(node: Node, path: Path, survives: Survives) -> None:
    if isinstance(node, File):
        whole = node.synced == node.data or survives("contents")
        path.write_bytes(node.data if whole else node.data[: len(node.data) // 2])
        return
    path.mkdir()
    entries = dict(node.synced)
    for changes in node.pending:
        if survives("generation" if path.name.startswith("data-") else "folder"):
            apply(entries, changes)
    for name, child in entries.items():
        _materialise(child, path / name, survives)


class Recorder:
    """The functions of `os`, noting every change to the disk as a call for `Disk.do`."""

    def __init__(self) -> None:
        self.notes: list[tuple[Any, ...]] = []
        self._paths: dict[int, Path] = {}
        self.real = {name: getattr(os, name) for name in ("open", "write", "fsync", *self.PLAIN)}

    PLAIN = ("mkdir", "replace", "unlink", "rmdir")

    def wrapped(self) -> dict[str, Callable[..., Any]]:
        plain = {name: self._plain(name) for name in self.PLAIN}
        return {**plain, "open": self._open, "write": self._write, "fsync": self._fsync}

    def _plain(self, name: str) -> Callable[..., None]:
        def call(path: Path, *detail: Any) -> None:
            self.real[name](path, *detail)
            self.notes.append((name, path, *detail))

        return call

    def _open(self, path: Path, flags: int, mode: int = 0o777) -> int:
        fd: int = self.real["open"](path, flags, mode)
        self._paths[fd] = path
        if flags & os.O_CREAT:
            self.notes.append(("create", path))
        return fd

    def _write(self, fd: int, data: memoryview) -> int:
        count: int = self.real["write"](fd, data)
        self.notes.append(("write", self._paths[fd], bytes(data[:count])))
        return count

    def _fsync(self, fd: int) -> None:
        self.real["fsync"](fd)
        self.notes.append(("fsync", self._paths[fd]))
