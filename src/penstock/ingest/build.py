"""Builds a graph from tables: `penstock.build`.

Nodes are numbered first, then the ends of edges; edges are sorted out of core, and all other arrays
are made while they are written. Whatever happens, the folder of the graph has the graph that was
there before, or the new one.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, overload

from penstock.graph import Graph
from penstock.graph.external import LEAST_MEMORY
from penstock.graph.folder import check_place
from penstock.graph.format import ArraySource, write_sources
from penstock.graph.layout import array_nbytes
from penstock.graph.partition.partition import Parts
from penstock.graph.partition.partition import check_place as check_place_of_parts
from penstock.graph.progress import Progress, shown
from penstock.graph.schema import ArrayKey
from penstock.ingest.context import BuildContext
from penstock.ingest.cutting.build import PartsBuild
from penstock.ingest.description import Description, described
from penstock.ingest.edges import EdgeMaker
from penstock.ingest.memory import memory_of
from penstock.ingest.tasks.build import TasksBuild
from penstock.ingest.tasks.plan import check_tasks
from penstock.ingest.tasks.runner import Runner, on_ray
from penstock.ingest.tasks.steps import Say
from penstock.ingest.work import WorkMeter
from penstock.ingest.workspace import workspace_of


@overload
def build(
    out: str | os.PathLike[str],
    *,
    nodes: Mapping[str, Any] | None = None,
    edges: Mapping[Any, Any],
    memory: str | int | None = None,
    progress: Progress = None,
    parts: None = None,
) -> Graph: ...


@overload
def build(
    out: str | os.PathLike[str],
    *,
    nodes: Mapping[str, Any] | None = None,
    edges: Mapping[Any, Any] | None = None,
    spec: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    memory: str | int | None = None,
    progress: Progress = None,
    parts: int | Mapping[str, Any],
    ray: bool | str = False,
) -> Parts: ...


# What a file says of parts no type checker knows: a graph, most often.
@overload
def build(
    out: str | os.PathLike[str],
    *,
    nodes: Mapping[str, Any] | None = None,
    edges: Mapping[Any, Any] | None = None,
    spec: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    memory: str | int | None = None,
    progress: Progress = None,
    parts: int | Mapping[str, Any] | None = None,
    ray: bool | str = False,
) -> Graph | Any: ...


def build(
    out: str | os.PathLike[str],
    *,
    nodes: Mapping[str, Any] | None = None,
    edges: Mapping[Any, Any] | None = None,
    spec: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    memory: str | int | None = None,
    progress: Progress = None,
    parts: int | Mapping[str, Any] | None = None,
    ray: bool | str = False,
) -> Graph | Parts:
    """Build a graph from tables, and save it in the folder `out`: whole, or in parts.

    Tables are Parquet, CSV, Arrow or NumPy files, or in memory: pandas, polars, DuckDB, pyarrow,
    anything that has `__arrow_c_stream__`, or arrays by name. They may be larger than memory.

    Rows are in the order of the sorted paths of their files. If anything goes wrong, or the process
    is killed, the folder has what it had before.

    Args:
        out: The folder of the graph. One that is there is replaced when the new one is complete.
        nodes: By node type, the words of `penstock.ingest.description.NodeTable`; of a graph with
            one type, those words themselves. Types that only edges name need no table: their nodes
            are what edges name, in the order of first appearance.
        edges: By edge type, (source, relation, target) or "source,relation,target", the words of
            `penstock.ingest.description.EdgeTable`.
        spec: Instead of both: a TOML file with the same words, or what it would say as a mapping.
            Relative paths in a file begin at its folder.
        memory: The bytes of memory to use, about, such as "4GB". None: a quarter of what the
            control group or the machine has.
        progress: Whether to show on standard error how far it is. None: in a terminal, after a
            second. Or called as `progress(done, total)` with bytes, now and then.
        parts: To build the graph in parts, which is never there as a whole: how many, or the words
            of `penstock.ingest.cutting.words.Cutting` (`n`, `method`, `edges`, `topology`,
            `passes`), which are those of `Graph.partition`. None: as `spec` says, or else whole.
        ray: Whether parts are built by tasks on a Ray cluster, all of whose hosts reach the files
            and the folder `out` by the same paths: True for this host's cluster or the one that
            RAY_ADDRESS names, or its address; a process that is connected to Ray stays so.
            `memory` is then that of each task.

    Returns:
        The graph, opened; or the folders of its parts, as `Graph.partition` returns them. Rows that
            were left out (`on_missing="skip"`, duplicates, self-loops) are counted in the graph's
            attribute `left_out`, which every part has.

    Raises:
        ValueError: The description or a table is not valid; the error names file, row and column.
        FileNotFoundError: A file is not there.
        ImportError: pyarrow, or for CSV DuckDB, is not installed: `penstock-gnn[ingest]`.
        PenstockError: On Ray, no cluster can be reached, or a task's process died again and again.

    Examples:
        >>> import penstock as ps
        >>> items = {"sku": ["a", "b", "c"], "price": [1.5, 2.0, 0.5]}
        >>> buys = {"who": ["u1", "u2", "u1"], "what": ["a", "c", "b"]}
        >>> graph = ps.build(
        ...     "shop.graph",
        ...     nodes={"item": {"data": items, "id": "sku", "features": {"x": ["price"]}}},
        ...     edges={("user", "buys", "item"): {"data": buys, "source": "who", "target": "what"}},
        ... )
        >>> graph.num_nodes("user"), graph.num_edges(("user", "buys", "item"))
        (2, 3)
    """
    said = described(nodes, edges, spec, parts)
    if ray:
        check_tasks(said)
        with on_ray(None if ray is True else ray) as runner:
            return build_by_tasks(out, said, runner, memory, progress)
    limit = memory_of(said.memory if memory is None else memory)
    folder = Path(os.path.abspath(out))
    check_destination(folder, said)
    with shown(f"building {os.fspath(out)}", progress) as report:
        with workspace_of(folder) as workspace:
            context = BuildContext(said, workspace, limit, report)
            if said.cutting is not None:
                return PartsBuild(context, said.cutting, Path(out)).run()
            _Build(context, folder).run()
    return Graph.open(out)


def build_by_tasks(
    out: str | os.PathLike[str],
    said: Description,
    runner: Runner,
    memory: str | int | None = None,
    progress: Progress = None,
    say: Say | None = None,
) -> Parts:
    """Build parts by tasks, performed by `runner`; see `build`.

    Args:
        out: The folder of the parts.
        said: The description, which `check_tasks` has looked at.
        runner: Performs the tasks.
        memory: The bytes of memory that each of them uses, about.
        progress: As for `build`.
        say: Told of each step that begins, and with what it took when it has ended.
    """
    folder = Path(os.path.abspath(out))
    check_destination(folder, said)
    limit = memory_of_task(said, memory, runner)
    with (
        shown(f"building {os.fspath(out)}", progress) as report,
        workspace_of(folder) as workspace,
    ):
        return TasksBuild(said, Path(out), workspace, runner, limit, report, say).run()


def memory_of_task(said: Description, memory: str | int | None, runner: Runner) -> int:
    """Return the bytes of memory that each task may use, which the runner takes note of."""
    wanted = said.memory if memory is None else memory
    limit = runner.memory if wanted is None else memory_of(wanted)
    runner.reserve(limit)
    return limit


def check_destination(folder: Path, said: Description) -> None:
    """Raise an error if there is something else than what is to be replaced."""
    if said.cutting is None:
        check_place(folder)
        return
    if not folder.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "there is no such folder", str(folder.parent))
    check_place_of_parts(folder)


class _Build:
    """The build of a whole graph."""

    def __init__(self, context: BuildContext, folder: Path) -> None:
        self._context = context
        self._folder = folder

    def run(self) -> None:
        """Read all tables, and write the graph."""
        self._context.number_nodes()
        with ExitStack() as stack:
            self._make_edges(stack)
            self._write()

    def _make_edges(self, stack: ExitStack) -> None:
        context = self._context
        tables = context.found.edges
        rows = {kind: tables[kind].num_rows + 1 for kind in tables}
        for kind, said in context.said.edges.items():
            # What is sorted last is in memory until it is written, so that all share it.
            memory = context.memory // 2 * rows[kind] // sum(rows.values())
            maker = EdgeMaker(
                tables[kind],
                kind,
                said,
                context.ends(kind),
                context.workspace,
                max(2 * LEAST_MEMORY, memory),
                stack,
            )
            context.edges.append(maker.made())

    def _write(self) -> None:
        context = self._context
        arrays: dict[ArrayKey, ArraySource] = {}
        for nodes in context.nodes.values():
            arrays.update(nodes.arrays)
        for edges in context.edges:
            arrays.update(edges.arrays)
        total = sum(array_nbytes(array.dtype, array.shape) for array in arrays.values())
        context.work.expect(total)
        write_sources(self._folder, context.schema(), arrays, WorkMeter(total, context.work))
