"""Control groups (cgroups): finds those of this process, and reads a few of their numbers.

Supports both versions, and machines that have both at once. It only reads, and never fails: what a
machine does not show is None. Every function takes the folder that stands for /proc, and mount
points are read from there, so that tests can imitate any machine with a folder of files.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

PROC: Final = Path("/proc")
# Version 1 writes "no limit" as the largest number of whole pages; nobody has an exabyte.
_NO_LIMIT: Final = 1 << 60


@dataclass(frozen=True, slots=True)
class Group:
    """One group and its ancestors, innermost first. The limits of all of them hold at once."""

    version: int
    folders: tuple[Path, ...]

    @property
    def folder(self) -> Path:
        return self.folders[0]


def find(controller: str, proc: Path = PROC) -> Group | None:
    """Return the group in which `controller` ("memory", "cpu", "pids") counts this process."""
    old, new = _memberships(controller, _text(proc / "self/cgroup"))
    mounts = _mounts(_text(proc / "self/mountinfo"))
    for mount in mounts:
        if old is not None and mount.kind == "cgroup" and controller in mount.options:
            return Group(1, _chain(mount, old))
    for mount in mounts:
        if old is None and new is not None and mount.kind == "cgroup2":
            return Group(2, _chain(mount, new))
    return None


def cpu_quota(group: Group) -> float | None:
    """Return the tightest limit on processor time, in processors; None if there is none."""
    read = _cpu_quota_v2 if group.version == 2 else _cpu_quota_v1
    return min((quota for folder in group.folders if (quota := read(folder))), default=None)


def memory_room(group: Group) -> int | None:
    """Return the bytes left before the tightest limit; None if there is no limit."""
    rooms = (_room(group.version, folder) for folder in group.folders)
    return min((room for room in rooms if room is not None), default=None)


def memory_limit(group: Group) -> int | None:
    """Return the tightest limit of memory, in bytes; None if there is none."""
    limits = (_limit(group.version, folder) for folder in group.folders)
    return min((limit for limit in limits if limit is not None), default=None)


def processes_left(group: Group) -> int | None:
    """Return how many more processes and threads may be started; None if there is no limit."""
    left = (_processes_left(folder) for folder in group.folders)
    return min((count for count in left if count is not None), default=None)


def oom_kills(folder: Path) -> int | None:
    """Return how many processes of this group the kernel has ever killed for lack of memory.

    The kernel counts a kill for the victim's group, whichever limit was met, the machine's
    included.
    """
    for name in ("memory.events", "memory.oom_control"):
        if (count := _entry(folder / name, "oom_kill")) is not None:
            return count
    return None


def machine_oom_kills(proc: Path = PROC) -> int | None:
    """Return the same for all processes of the machine."""
    return _entry(proc / "vmstat", "oom_kill")


# --- finding the groups ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Mount:
    kind: str
    root: PurePosixPath  # the part of the hierarchy that is mounted here
    point: Path
    options: frozenset[str]


def _memberships(controller: str, text: str) -> tuple[PurePosixPath | None, PurePosixPath | None]:
    """Return the path in the controller's own hierarchy (version 1), and the one in version 2."""
    old = new = None
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if controller in names.split(","):
            old = PurePosixPath(path)
        elif number == "0" and not names:
            new = PurePosixPath(path)
    return old, new


def _mounts(text: str) -> list[_Mount]:
    mounts = []
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        left, right = before.split(), after.split()
        if len(left) >= 5 and len(right) >= 3 and right[0] in ("cgroup", "cgroup2"):
            options = frozenset(right[2].split(","))
            root, point = _unescaped(left[3]), _unescaped(left[4])
            mounts.append(_Mount(right[0], PurePosixPath(root), Path(point), options))
    return mounts


def _unescaped(path: str) -> str:
    # The kernel writes blanks and similar characters as \040 there.
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), path)


def _chain(mount: _Mount, path: PurePosixPath) -> tuple[Path, ...]:
    """Return the folders from the group up to the mount; only the mount if others are hidden."""
    inner = path.relative_to(mount.root) if path.is_relative_to(mount.root) else PurePosixPath()
    if ".." in inner.parts or not (mount.point / inner).is_dir():
        inner = PurePosixPath()
    return tuple(mount.point / part for part in (inner, *inner.parents))


# --- reading their files ---------------------------------------------------------------------


def _cpu_quota_v2(folder: Path) -> float | None:
    words = _text(folder / "cpu.max").split()
    return _ratio(*words) if len(words) == 2 else None


def _cpu_quota_v1(folder: Path) -> float | None:
    return _ratio(_text(folder / "cpu.cfs_quota_us"), _text(folder / "cpu.cfs_period_us"))


def _ratio(quota: str, period: str) -> float | None:
    share, whole = _whole(quota), _whole(period)
    return share / whole if share and whole and share > 0 else None


def _limit(version: int, folder: Path) -> int | None:
    names = ("memory.max", "memory.high") if version == 2 else ("memory.limit_in_bytes",)
    limits = (_whole(_text(folder / name)) for name in names)
    return min((n for n in limits if n is not None and n < _NO_LIMIT), default=None)


def _room(version: int, folder: Path) -> int | None:
    limit = _limit(version, folder)
    used = _whole(_text(folder / ("memory.current" if version == 2 else "memory.usage_in_bytes")))
    if limit is None or used is None:
        return limit
    # Inactive file pages count as used, but the kernel drops them before a limit is met.
    idle = _entry(
        folder / "memory.stat", "inactive_file" if version == 2 else "total_inactive_file"
    )
    return max(0, limit - max(0, used - (idle or 0)))


def _processes_left(folder: Path) -> int | None:
    # The files of both versions have the same names.
    most, there = _whole(_text(folder / "pids.max")), _whole(_text(folder / "pids.current"))
    return None if most is None else max(0, most - (there or 0))


def _entry(path: Path, key: str) -> int | None:
    """Return the number that follows `key` in a file of lines "key number"."""
    for line in _text(path).splitlines():
        name, _, value = line.partition(" ")
        if name == key:
            return _whole(value)
    return None


def _whole(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None  # "max", or nothing at all


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""
