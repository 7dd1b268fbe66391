"""One task: what all tasks of a build know, and the folder for its files."""

from __future__ import annotations

import errno
import os
import shutil
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from penstock.ingest.cutting.words import Cutting
from penstock.ingest.description import Description
from penstock.ingest.found import Tables
from penstock.ingest.tables import Table
from penstock.ingest.workspace import Workspace

# Runs of files, and ranges of nodes, for each task that is performed at a time: the last ones to
# end keep fewer others waiting.
_TASKS_PER_CPU: Final = 2
# Less than that is not worth a task of its own.
LEAST_NBYTES: Final = 4 << 20
# In memory, while the edges of a range are sorted.
NBYTES_OF_EDGE: Final = 24


@dataclass(frozen=True)
class Frame:
    """What all tasks of a build know.

    Attributes:
        said: The description, without how the graph is cut.
        cutting: How the graph is cut; an array is not in it.
        found: All tables.
        memory: How many bytes a task may use, about.
    """

    said: Description
    cutting: Cutting
    found: Tables
    memory: int

    @property
    def room(self) -> int:
        """What is held of rows that are given out."""
        return self.memory // 16


@dataclass(frozen=True)
class Run:
    """Consecutive files of a table.

    Attributes:
        first: The first of them.
        end: The one after the last.
        nbytes: How much there is to read, about.
    """

    first: int
    end: int
    nbytes: int

    def of(self, table: Table) -> Table:
        """Return these files as a table, whose rows count from 0."""
        return table.run(self.first, self.end)


@dataclass(frozen=True)
class Answer:
    """What a task has made.

    Attributes:
        folder: Its files.
        value: What it says.
    """

    folder: Path
    value: Any


def perform(root: Path, name: str, function: Callable[..., Any], args: Sequence[Any]) -> Answer:
    """Call a function with a workspace of its own, and the arguments.

    Each attempt has a folder that no other one has. It counts when the answer names it: what else
    is in `root` belongs to attempts that ended before they answered, or to nobody any more.
    """
    if not root.is_dir():
        what = (
            f"host {socket.gethostname()} has no such folder: all hosts must share it by one path"
        )
        raise FileNotFoundError(errno.ENOENT, what, str(root))
    folder = root / f"{name}-{os.urandom(8).hex()}"
    folder.mkdir()
    workspace = Workspace(folder)
    try:
        return Answer(folder, function(workspace, *args))
    except BaseException:
        workspace.close()
        shutil.rmtree(folder, ignore_errors=True)
        raise
    finally:
        workspace.close()


def runs_of(table: Table, columns: Sequence[str], cpus: int) -> list[Run]:
    """Share the files of a table out to tasks, about as much to read for each."""
    sizes = table.sizes(columns)
    least = max(sum(sizes) / (_TASKS_PER_CPU * cpus), LEAST_NBYTES)
    found: list[Run] = []
    first = nbytes = 0
    for end, size in enumerate(sizes, 1):
        nbytes += size
        if nbytes >= least or end == len(sizes):
            found.append(Run(first, end, nbytes))
            first, nbytes = end, 0
    return found


def num_ranges(size: int, nbytes: int, memory: int, cpus: int) -> int:
    """Return in how many ranges so many nodes are sorted, whose edges take so many bytes."""
    for_cpus = min(_TASKS_PER_CPU * cpus, nbytes // LEAST_NBYTES)
    for_memory = -(-nbytes // (memory // 4))
    return max(1, min(max(for_cpus, for_memory), size))
