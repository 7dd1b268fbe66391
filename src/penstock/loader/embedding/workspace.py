"""The folder beside an output in which processes work on it together, and go on after a kill.

The work is a list of units, the same for all. A process claims a unit by a lock, which the system
takes back when the process ends, and marks it as done when its result is on disk. So processes need
no messages: whoever is free takes the next unit, and what a killed one had claimed is done by
another. This module does not know what the units are.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

log = logging.getLogger(__name__)

_PLAN: Final = "plan.json"
_LOCK: Final = "lock"
_USERS: Final = "users"
_DONE: Final = "done"
_CLAIMS: Final = "claims"


class Workspace:
    """The folder, joined by this process. Made by `Workspace.join`.

    Attributes:
        folder: Where it is.
        units: How many units there are.
    """

    def __init__(self, folder: Path, units: int, users: int) -> None:
        self.folder = folder
        self.units = units
        self._users = users  # a lock that shows others that this process is at work
        self._done = os.open(folder / _DONE, os.O_RDWR | os.O_CREAT, 0o666)
        self._claims = os.open(folder / _CLAIMS, os.O_RDWR | os.O_CREAT, 0o666)

    @classmethod
    def join(
        cls, folder: Path, plan: dict[str, Any], units: int, out: Path, rank: int, world_size: int
    ) -> Self | None:
        """Join the work, or begin it; None if the others have done all of it already.

        What another plan has left behind is removed, unless somebody works on it.

        Args:
            folder: The folder.
            plan: What is to be done, as JSON.
            units: How many units that are.
            out: The file that is there when all is done.
            rank: The number of this process among those that work together.
            world_size: How many these are.

        Raises:
            ValueError: Another process works in the folder by another plan.
        """
        with _locked(folder):
            users = os.open(folder / _USERS, os.O_RDWR | os.O_CREAT, 0o666)
            try:
                is_alone = _try_lock(users)
                here = _plan_in(folder)
                if here is not None and here != plan and not is_alone:
                    raise ValueError(_other_work(folder, here, plan))
                is_over = here == plan and _is_complete(folder, units)
                if is_over and out.exists() and not _mark(folder, rank).exists():
                    os.close(users)
                    _tell_finished(folder, rank, world_size)
                    return None
                if here != plan or (is_over and is_alone):
                    _begin(folder, plan)
                fcntl.flock(users, fcntl.LOCK_SH)
                return cls(folder, units, users)
            except BaseException:
                with suppress(OSError):
                    os.close(users)
                raise

    def claimed(self, units: range, start: int = 0) -> Iterator[int]:
        """Yield units that are to be done, each claimed by this process, until all are done.

        A unit that was yielded and not marked as done is given back. Units that others have claimed
        are waited for.

        Args:
            units: The units, all of which are done when this ends.
            start: The position among them at which to begin.
        """
        order = [*units[start:], *units[:start]]
        while order:
            order = [unit for unit in order if not self.is_done(unit)]
            taken = next((unit for unit in order if self._claim(unit, wait=False)), None)
            if taken is None and order:
                taken = order[0]
                self._claim(taken, wait=True)  # until whoever has it is done, or has ended
            if taken is None:
                return
            try:
                if not self.is_done(taken):
                    yield taken
            finally:
                fcntl.lockf(self._claims, fcntl.LOCK_UN, 1, taken)

    def is_done(self, unit: int) -> bool:
        """Return whether a unit is done."""
        return os.pread(self._done, 1, unit) == b"\1"

    def done(self) -> npt.NDArray[np.bool_]:
        """Return which units are done."""
        found = np.zeros(self.units, np.bool_)
        there = np.frombuffer(os.pread(self._done, self.units, 0), np.bool_)
        found[: len(there)] = there
        return found

    def mark_done(self, unit: int) -> None:
        """Note that a unit's result is on disk."""
        os.pwrite(self._done, b"\1", unit)
        os.fsync(self._done)

    def finish(self, rank: int, world_size: int) -> None:
        """Note that this rank knows that all is done; the last of all removes the folder."""
        with _locked(self.folder):
            self.close()
            _tell_finished(self.folder, rank, world_size)

    def close(self) -> None:
        """Leave the work as it is. Idempotent."""
        for name in ("_done", "_claims", "_users"):
            descriptor = getattr(self, name)
            setattr(self, name, -1)
            if descriptor >= 0:
                os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _claim(self, unit: int, *, wait: bool) -> bool:
        how = fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB
        try:
            fcntl.lockf(self._claims, how, 1, unit)
        except BlockingIOError:
            return False
        return True


def _tell_finished(folder: Path, rank: int, world_size: int) -> None:
    """Note that a rank has finished; remove the folder if all have. The folder is locked."""
    _mark(folder, rank).touch()
    if all(_mark(folder, each).exists() for each in range(world_size)):
        shutil.rmtree(folder)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, and make the folder if it is not there."""
    while True:
        folder.mkdir(exist_ok=True)
        try:
            descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o666)
        except FileNotFoundError:  # somebody has just removed the folder
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if _is_at(descriptor, folder / _LOCK):
                yield
                return
        finally:
            os.close(descriptor)


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _plan_in(folder: Path) -> Any:
    try:
        return json.loads((folder / _PLAN).read_text())
    except (FileNotFoundError, ValueError):
        return None


def _begin(folder: Path, plan: dict[str, Any]) -> None:
    left = [each for each in folder.iterdir() if each.name not in (_LOCK, _USERS)]
    if left:
        log.info("%s: what another run has left is removed", folder)
    for each in left:
        each.unlink()
    draft = folder / f"{_PLAN}.new"
    draft.write_text(json.dumps(plan))
    os.replace(draft, folder / _PLAN)


def _is_complete(folder: Path, units: int) -> bool:
    try:
        return (folder / _DONE).read_bytes() == b"\1" * units
    except FileNotFoundError:
        return False


def _mark(folder: Path, rank: int) -> Path:
    return folder / f"finished-{rank}"


def _other_work(folder: Path, here: dict[str, Any], plan: dict[str, Any]) -> str:
    names = sorted(name for name in {*here, *plan} if here.get(name) != plan.get(name))
    return (
        f"another process works in {folder} by other arguments ({', '.join(names)} differ): let it "
        "end, or give another out"
    )
