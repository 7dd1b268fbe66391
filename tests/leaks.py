"""What a process holds that outlives a test if forgotten, and what has been added since.

Linux shows all of it under /proc and /dev/shm; elsewhere only processes and threads are seen.
"""

from __future__ import annotations

import gc
import os
import re
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

# Descendants are known by this environment variable, which they inherit: one whose parent was
# killed has become a child of init, and is found all the same.
MARK = "PENSTOCK_TEST_MARK"
SHARED_MEMORY = Path("/dev/shm")
# What named segments are called (penstock.graph.named). Other programs keep files there too.
OURS = "penstock-*"
# A joined thread and a killed process take a moment to leave the kernel's tables. This bounds the
# wait for that; a clean test does not wait at all.
PATIENCE_S = 30.0
_LOOK_EVERY_S = 0.01


@dataclass(frozen=True)
class Holdings:
    """Everything of interest this process holds, each with the words to name it in a failure."""

    processes: dict[object, str]
    threads: dict[object, str]
    descriptors: dict[object, str]
    shared_memory: dict[object, str]

    @classmethod
    def now(cls, mark: str) -> Holdings:
        return cls(
            processes=_processes(mark),
            threads=_threads(),
            descriptors=_descriptors(),
            shared_memory=_shared_memory(mark),
        )

    def beyond(self, earlier: Holdings) -> list[str]:
        """In words, what is held now and was not then."""
        return [
            *_added(earlier.processes, self.processes),
            *_added(earlier.threads, self.threads),
            *_added(earlier.descriptors, self.descriptors),
            *_added(earlier.shared_memory, self.shared_memory),
        ]


def leaks_since(earlier: Holdings, mark: str) -> list[str]:
    """What has been left behind since; waits a little for what is just going.

    What only a cycle keeps alive is not a leak. But once torch is loaded, collecting garbage takes
    longer than most tests, so it is done only when something seems to be left.
    """
    leaks = Holdings.now(mark).beyond(earlier)
    if leaks:
        gc.collect()
    deadline = time.monotonic() + PATIENCE_S
    moment = threading.Event()
    while leaks and time.monotonic() < deadline:
        moment.wait(_LOOK_EVERY_S)
        leaks = Holdings.now(mark).beyond(earlier)
    return leaks


def own_threads() -> set[threading.Thread]:
    """Threads that Penstock has started in this process: they bear its name."""
    return {thread for thread in threading.enumerate() if thread.name.startswith("penstock-")}


def threads_since(earlier: set[threading.Thread]) -> list[str]:
    """Threads of ours that were not there then; waits a little for those that are just ending."""
    if own_threads() - earlier:
        gc.collect()
    deadline, moment = time.monotonic() + PATIENCE_S, threading.Event()
    while (left := own_threads() - earlier) and time.monotonic() < deadline:
        moment.wait(_LOOK_EVERY_S)
    return sorted(f"thread {thread.name}" for thread in left)


def marked_processes(mark: str) -> list[psutil.Process]:
    """Every process but this one whose environment carries the mark."""
    found = []
    for pid in psutil.pids():
        try:
            if pid != os.getpid() and _carries(pid, mark):
                found.append(psutil.Process(pid))
        except (psutil.Error, OSError):
            continue  # gone meanwhile, or somebody else's
    return found


def _carries(pid: int, mark: str) -> bool:
    # Every process of the machine is looked at, twice in a test: no time to take them apart.
    if sys.platform == "linux":
        with open(f"/proc/{pid}/environ", "rb", buffering=0) as file:
            return f"{MARK}={mark}".encode() in file.readall()
    return psutil.Process(pid).environ().get(MARK) == mark


def _added(earlier: dict[object, str], later: dict[object, str]) -> list[str]:
    return [words for key, words in later.items() if key not in earlier]


def _family(mark: str) -> set[psutil.Process]:
    # Also by descent: a zombie has no environment left, and a child may be given another one.
    own = set() if _is_childless() else {*psutil.Process().children(recursive=True)}
    return own | {*marked_processes(mark)}


def _is_childless() -> bool:
    # What the kernel knows at once, and psutil from a look at every process. False if it is silent.
    try:
        told = [path.read_text() for path in Path("/proc/self/task").glob("*/children")]
    except OSError:
        return False  # a thread has gone meanwhile
    return bool(told) and not any(told)


def _processes(mark: str) -> dict[object, str]:
    return {process: f"process {_describe(process)}" for process in _family(mark)}


def _describe(process: psutil.Process) -> str:
    try:
        zombie = process.status() == psutil.STATUS_ZOMBIE
        return f"{process.pid}: {'(not reaped)' if zombie else ' '.join(process.cmdline())}"
    except psutil.Error:
        return str(process.pid)


def _threads() -> dict[object, str]:
    # The kernel lists native threads as well; those Python knows have a name.
    names = {thread.native_id: thread.name for thread in threading.enumerate()}
    return {
        thread.id: f"thread {thread.id}: {names.get(thread.id, '(native)')}"
        for thread in psutil.Process().threads()
    }


def _descriptors() -> dict[object, str]:
    found: dict[object, str] = {}
    for entry in _entries(Path("/proc/self/fd")):
        try:
            target, inode = os.readlink(entry), entry.stat().st_ino
        except OSError:
            continue  # the descriptor of the listing itself
        # Numbers are used again, and anonymous memory often has the same name: the inode differs.
        found[entry.name, target, inode] = f"descriptor {entry.name}: {target}"
    return found


def _shared_memory(mark: str) -> dict[object, str]:
    files = {str(file) for file in SHARED_MEMORY.glob(OURS) if _is_of_this_user(file)}
    if files:
        strangers = _strangers(mark)
        # A name tells its maker before anybody has mapped the file.
        files = {file for file in files if _maker(file) not in strangers}
        files -= _mapped_by(strangers) if files else set()
    # Looking at everybody takes a while: a stranger may have removed its file, and gone, meanwhile.
    return {file: f"shared memory {file}" for file in sorted(files) if os.path.exists(file)}


def _is_of_this_user(file: Path) -> bool:
    try:
        return file.stat().st_uid == os.geteuid()
    except FileNotFoundError:
        return False  # gone meanwhile


def _strangers(mark: str) -> set[int]:
    """Processes outside our family: what they hold is none of our business."""
    return set(psutil.pids()) - {os.getpid(), *(process.pid for process in _family(mark))}


def _maker(file: str) -> int | None:
    found = re.match(r"penstock-(\d+)-", Path(file).name)
    return int(found[1]) if found else None


def _mapped_by(pids: set[int]) -> set[str]:
    mapped: set[str] = set()
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
        except OSError:
            continue  # gone meanwhile, or somebody else's
        mapped.update(line.split(maxsplit=5)[5] for line in lines if str(SHARED_MEMORY) in line)
    return mapped


def _entries(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() else []
