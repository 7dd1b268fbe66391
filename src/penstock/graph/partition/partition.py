"""Writing the parts of a graph into a folder: all of them, or none.

    products.parts/
      part-0/          a saved graph: docs/format.md
      part-1/ …

Parts are written to a folder beside the wanted one, which is renamed when all of them are on disk.
"""

from __future__ import annotations

import os
import re
import shutil
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from penstock.errors import GraphFormatError
from penstock.graph.folder import exchange, has_manifest, is_old_part, sync_folder
from penstock.graph.format import ArraySource, Meter, write_sources
from penstock.graph.layout import array_nbytes
from penstock.graph.partition.assignment import Method, assignments
from penstock.graph.partition.cutter import PartCutter
from penstock.graph.partition.note import EDGES, LAYOUTS, Balance, Cut, Edges, Layout
from penstock.graph.progress import Report
from penstock.graph.schema import ArrayKey, EdgeType

if TYPE_CHECKING:
    from penstock.graph.graph import Graph

__all__ = [
    "EDGES",
    "LAYOUTS",
    "MOST_PARTS",
    "Balance",
    "Edges",
    "Layout",
    "Method",
    "PartCutter",
    "Parts",
    "assigned",
    "check_place",
    "write_parts",
]

StrPath: TypeAlias = str | os.PathLike[str]

MOST_PARTS: Final = 1 << 16
# Arrays that are written at a time, and parts that they are of.
WRITERS: Final = 4
PARTS_AT_ONCE: Final = 2
PART_NAME: Final = re.compile(r"part-[0-9]+")
_STRANGER: Final = "is there already, and is no folder of parts: it is left as it is"


class Parts(list[Path]):
    """The folders of the parts of a graph, in order.

    Attributes:
        num_edges: How many edges of each type the graph has.
        edges_cut: How many of them lead from one part to another.
        balance: How many nodes and edges of each type the largest part has, over the mean.
    """

    def __init__(
        self,
        paths: Iterable[Path],
        num_edges: Mapping[EdgeType, int],
        edges_cut: Mapping[EdgeType, int],
        balance: Balance,
    ) -> None:
        super().__init__(paths)
        self.num_edges = dict(num_edges)
        self.edges_cut = dict(edges_cut)
        self.balance = balance

    @classmethod
    def of(cls, paths: Iterable[Path], cut: Cut | PartCutter) -> Parts:
        """Return parts that have been cut so; none, if they are only looked at."""
        return cls(
            paths,
            {name: sum(counts) for name, counts in cut.num_edges.items()},
            {name: sum(counts) for name, counts in cut.edges_cut.items()},
            cut.balance,
        )


def assigned(
    graph: Graph,
    parts: int,
    method: Method = "range",
    edges: Edges = "destination",
    topology: Layout = "parts",
    passes: int | None = None,
    report: Report | None = None,
    path: StrPath | None = None,
) -> PartCutter:
    """Assign the nodes of a graph to parts, which are not written yet; see `Graph.partition`."""
    _check(graph, parts, edges, topology)
    beside = None if path is None else _parent_there(Path(os.path.abspath(path)))
    found = assignments(graph, parts, method, passes, report, beside)
    return PartCutter(graph, parts, found, edges, topology)


def write_parts(cutter: PartCutter, path: StrPath, report: Report | None = None) -> Parts:
    """Write the parts of a graph into the folder `path`; see `Graph.partition`."""
    parts = cutter.num_parts
    folder = Path(os.path.abspath(path))
    check_place(folder)
    beside = folder.with_name(f".{folder.name}.new-{os.getpid()}")
    shutil.rmtree(beside, ignore_errors=True)
    try:
        beside.mkdir(parents=True)
        _write(cutter, beside, parts, report)
        move_parts(beside, folder)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return Parts.of([Path(path) / f"part-{part}" for part in range(parts)], cutter)


class _SharedMeter(Meter):
    """A meter of several threads; all of them end when one has failed."""

    def __init__(self, total: int, report: Report | None) -> None:
        super().__init__(total, report)
        self._lock = threading.Lock()
        self.failed = False

    def add(self, nbytes: int) -> None:
        with self._lock:
            if self.failed:
                raise InterruptedError("another part could not be written")
            super().add(nbytes)


def _write(cutter: PartCutter, folder: Path, parts: int, report: Report | None) -> None:
    """Write all parts, some at a time: arrays are made while others wait for the disk."""
    schemas = [cutter.schema(part) for part in range(parts)]
    meter = _SharedMeter(sum(_nbytes(cutter.arrays(part)) for part in range(parts)), report)

    def write_part(part: int) -> None:
        try:
            arrays = cutter.arrays(part)
            write_sources(folder / f"part-{part}", schemas[part], arrays, meter, writers)
        except BaseException:
            meter.failed = True
            raise

    from concurrent.futures import ThreadPoolExecutor  # only whoever cuts a graph needs it

    with (
        ThreadPoolExecutor(WRITERS, "penstock-write") as writers,
        ThreadPoolExecutor(min(parts, PARTS_AT_ONCE), "penstock-cut") as cutters,
    ):
        cutting = [cutters.submit(write_part, part) for part in range(parts)]
        try:
            for each in cutting:
                each.result()
        except BaseException:
            meter.failed = True
            cutters.shutdown(wait=True, cancel_futures=True)
            raise


def _nbytes(arrays: Mapping[ArrayKey, ArraySource]) -> int:
    return sum(array_nbytes(array.dtype, array.shape) for array in arrays.values())


def _check(graph: Graph, parts: Any, edges: str, topology: str) -> None:
    if graph.part is not None:
        raise ValueError(f"this is {graph.part}: cut the whole graph, not a part of it")
    check_words(parts, edges, topology)


def check_words(parts: Any, edges: Any, topology: Any) -> None:
    """Raise an error for a number of parts, an end of edges or a layout that there is not."""
    if isinstance(parts, bool) or not isinstance(parts, int) or not 1 <= parts <= MOST_PARTS:
        raise ValueError(f"n is {parts!r}; expected 1 to {MOST_PARTS} parts")
    if edges not in EDGES:
        raise ValueError(f"edges is {edges!r}; expected one of {', '.join(EDGES)}")
    if topology not in LAYOUTS:
        raise ValueError(f"topology is {topology!r}; expected one of {', '.join(LAYOUTS)}")


def parts_in(folder: Path) -> list[Path]:
    """Return the folders of parts in a folder, by their numbers; none if it has something else."""
    try:
        found = [each for each in folder.iterdir() if PART_NAME.fullmatch(each.name)]
    except OSError:
        return []
    there = [each for each in found if has_manifest(each) or is_old_part(each)]
    return sorted(there, key=lambda each: int(each.name.removeprefix("part-")))


def check_place(path: StrPath) -> None:
    """Raise unless the folder is missing or empty, or has only parts, which are replaced."""
    folder = Path(path)
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    if not folder.is_dir() or len(parts_in(folder)) != len(list(folder.iterdir())):
        raise GraphFormatError(f"{folder} {_STRANGER}")


def _parent_there(path: Path) -> Path:
    """Return the nearest folder above a path that is there."""
    return next(each for each in path.parents if each.is_dir())


def move_parts(beside: Path, folder: Path) -> None:
    """Let the folder of new parts take the place of another, in one step where the system can.

    The parts that were there are removed. Elsewhere a crash between two steps leaves them under
    another name.
    """
    sync_folder(beside)
    if not folder.exists():
        beside.rename(folder)
    elif exchange(beside, folder):
        shutil.rmtree(beside)
    else:
        before = folder.with_name(f".{folder.name}.old-{os.getpid()}")
        folder.rename(before)
        beside.rename(folder)
        shutil.rmtree(before)
    sync_folder(folder.parent)
