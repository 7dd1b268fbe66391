"""Builds the parts of a graph from tables by many tasks, one step after the other.

What is in memory here are sizes and names of files; files are in the workspace, which all hosts
share. It is removed whatever happens, or, if this process is killed, by the next build.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from penstock.graph.checksum import version_from_sums
from penstock.graph.layout import array_nbytes
from penstock.graph.partition.book import PartitionBook, RangeBook
from penstock.graph.partition.partition import Parts, move_parts
from penstock.graph.progress import Report
from penstock.graph.schema import ArrayKey, EdgeType, Schema, Side, found_by, owner_of
from penstock.graph.topology import specs
from penstock.ingest.cutting.assign import books_of
from penstock.ingest.cutting.build import cut_of
from penstock.ingest.cutting.edges import SharedEdges, SharedRows
from penstock.ingest.cutting.nodes import SharedNodes, SharedSplit, Wholes
from penstock.ingest.cutting.rows import StoredRows
from penstock.ingest.cutting.segments import Segment
from penstock.ingest.cutting.sums import Summed
from penstock.ingest.description import Description, edges_label, nodes_label
from penstock.ingest.edges import MadeEdges
from penstock.ingest.found import columns_of_edges, columns_of_nodes, ends_of
from penstock.ingest.making import Making
from penstock.ingest.tasks import edges as of_edges
from penstock.ingest.tasks import nodes as of_nodes
from penstock.ingest.tasks.edges import LookedUp, Pass, Place, Spread, passes_of, sides_of
from penstock.ingest.tasks.joined import JoinedOwners, JoinedSegment, JoinedSegments, filed_book
from penstock.ingest.tasks.nodes import Columns, NumberedNodes, SharedColumn
from penstock.ingest.tasks.runner import Call, Runner
from penstock.ingest.tasks.sort import NodeRange, SortedRange, sort, write_part
from penstock.ingest.tasks.sums import RangeSummed, checksum_of
from penstock.ingest.tasks.task import Answer, Frame, Run, num_ranges, perform, runs_of
from penstock.ingest.workspace import Workspace

Say = Callable[[str], object]


def check_tasks(said: Description) -> None:
    """Raise an error for what cannot be built by tasks on many hosts.

    Raises:
        ValueError: Something is asked for that one process has to do.
    """
    if said.cutting is None:
        raise ValueError("parts is None, and on Ray a graph is built in parts: say how many")
    if said.cutting.by_neighbours:
        raise ValueError(
            f"parts.method is {said.cutting.method!r}, which goes through all edges of the graph "
            "again and again, in one process: on Ray, take 'range', 'hash', or a column with the "
            "part of each node, which may come from another run; or build without Ray"
        )
    labels = {nodes_label(name): table for name, table in said.nodes.items()}
    labels |= {edges_label(kind): edges for kind, edges in said.edges.items()}  # type: ignore[misc]
    for label, table in labels.items():
        if table.data is not None:
            raise ValueError(
                f"{label}.data is a table in memory, which other hosts do not have: write it to "
                "Parquet files in a folder that all hosts share, and give 'files'"
            )


class TasksBuild:
    """One build of parts."""

    def __init__(
        self,
        said: Description,
        path: Path,
        workspace: Workspace,
        runner: Runner,
        memory: int,
        report: Report | None = None,
        say: Say | None = None,
    ) -> None:
        assert said.cutting is not None
        self._path = path
        self._workspace = workspace
        self._runner = runner
        self._say = say
        self._cutting = said.cutting
        self._making = Making(said, workspace, memory, report, only_look=True)
        self._refuse_csv()
        # Whoever is left of another build finds no folder of its own any more.
        self._root = workspace.folder / f"tasks-{os.urandom(8).hex()}"
        words = said.cutting
        if not isinstance(words.method, str):  # arrays stay here: tasks are told of books
            words = msgspec.structs.replace(words, method="given")
        plain = msgspec.structs.replace(said, cutting=None)
        self._frame = Frame(plain, words, self._making.found, memory)
        found, cpus = self._making.found, runner.cpus
        self._node_runs = {
            name: runs_of(found.nodes[name], _names(columns_of_nodes(table)), cpus)
            for name, table in said.nodes.items()
        }
        self._edge_runs = {
            kind: runs_of(found.edges[kind], _names(columns_of_edges(table)), cpus)
            for kind, table in said.edges.items()
        }
        self._told: Any = None
        self._nodes: dict[str, NumberedNodes] = {}
        self._wholes: Wholes = {}
        self._shared_nodes: dict[str, SharedNodes] = {}
        self._shared_edges: dict[EdgeType, SharedEdges] = {}
        self._graph: dict[ArrayKey, Segment] = {}

    def forecast(self) -> dict[str, int]:
        """Return how many tasks each step has, about: some are known when others have ended."""
        nodes = sum(map(len, self._node_runs.values()))
        edges = sum(map(len, self._edge_runs.values()))
        passes = [
            each for kind, said in self._frame.said.edges.items() for each in passes_of(kind, said)
        ]
        sides = len({each.kind for each in passes}) * len(sides_of(self._cutting))
        return {
            "number nodes": len(self._frame.said.nodes) + len(self._making.found.nodes_without_table()),
            "look up edges": edges,
            "give out edges": edges,
            "sort edges": sides * num_ranges(2**62, 0, 1, self._runner.cpus),
            "give out attributes": nodes + edges,
            "write parts": self._cutting.n,
        }

    def run(self) -> Parts:
        """Read all tables, and write the parts."""
        self._root.mkdir()
        self._told = self._runner.put(self._frame)
        self._number_nodes()
        books = self._books()
        self._share_nodes(books)
        for kind in self._frame.said.edges:
            _EdgesOfTable(self, kind, books).run()
        schema = self._making.schema()
        version = version_from_sums(schema, self._wholes)
        cut = cut_of(self._cutting, books, version, self._shared_nodes, self._shared_edges)
        schemas = [
            msgspec.structs.replace(schema, part=cut.note(part)) for part in range(cut.parts)
        ]
        self._reduce(schemas)
        return Parts.of([self._path / f"part-{part}" for part in range(cut.parts)], cut)

    def _refuse_csv(self) -> None:
        if unread := self._making.found.unread:
            raise ValueError(
                f"{', '.join(unread)}: the files are CSV, which is read from its beginning by one "
                "process: turn it into Parquet, in several files, or build without Ray"
            )

    # --- tasks ---

    def call(
        self, name: str, function: Callable[..., Any], args: Sequence[Any], nbytes: int = 0
    ) -> Call:
        """Return a task, which is told what all of them know."""
        slug = "".join(each if each.isalnum() else "-" for each in name)
        # Of the arguments, those at the top are replaced by what they stand for.
        whole = (self._root, slug, function, self._told, *args)
        return Call(f"penstock build: {name}", _perform, whole, nbytes)

    def step(self, what: str, calls: Sequence[Call]) -> list[Answer]:
        """Perform tasks; return their answers."""
        if not calls:
            return []
        began, nbytes = time.monotonic(), sum(call.nbytes for call in calls)
        self._making.work.expect(nbytes)
        found = self._runner.run(calls, self._making.work.add)
        if self._say is not None:
            seconds = time.monotonic() - began
            tasks = f"{len(calls)} task{'s' if len(calls) > 1 else ''}"
            self._say(
                f"{what}: {tasks}, {nbytes / 1e6:,.1f} MB in {seconds:.1f} s, "
                f"{nbytes / 1e6 / max(seconds, 1e-3):,.1f} MB/s"
            )
        return found

    def remove(self, answers: Sequence[Answer]) -> None:
        """Remove the files of tasks."""
        for answer in answers:
            shutil.rmtree(answer.folder, ignore_errors=True)

    # --- nodes ---

    def _number_nodes(self) -> None:
        said, found = self._frame.said, self._making.found
        without = found.nodes_without_table()
        calls, places = [], []
        for name, table in said.nodes.items():
            size = 0 if table.id is None else found.nodes[name].nbytes([table.id])
            args = (name, self._node_runs[name])
            calls.append(self.call(f"number {nodes_label(name)}", of_nodes.number, args, size))
        for kind, edge_table in said.edges.items():
            ends = [column for name, column in ends_of(kind, edge_table) if name in without]
            for run in self._edge_runs[kind] if ends else ():
                size = run.of(found.edges[kind]).nbytes(ends)
                task = f"find nodes of {edges_label(kind)}"
                args = (kind, run, without)  # type: ignore[assignment]
                calls.append(self.call(task, of_nodes.discover, args, size))
                places.append(kind)
        answers = self.step("number nodes", calls)
        for name, answer in zip(said.nodes, answers, strict=False):
            self._nodes[name] = answer.value
        discovered = answers[len(said.nodes) :]
        calls = []
        for name in without:
            ids = [each.value[name] for each in discovered if name in each.value]
            task, size = f"number {nodes_label(name)}", sum(map(_nbytes_of_ids, ids))
            calls.append(self.call(task, of_nodes.number_discovered, (name, ids), size))
        for name, answer in zip(without, self.step("number nodes", calls), strict=True):
            self._nodes[name] = answer.value
        self.remove(discovered)
        for name, each in self._nodes.items():
            self._making.nodes[name] = each.made

    def _books(self) -> dict[str, PartitionBook]:
        """Return which part has each node; tasks can be told of it."""
        if not self._cutting.by_column:
            books = books_of(self._cutting, self._making)
            return {name: filed_book(book, self._workspace) for name, book in books.items()}
        found = {}
        for name, each in self._nodes.items():
            assert each.book is not None
            found[name] = each.book
        return found

    def _share_nodes(self, books: Mapping[str, PartitionBook]) -> None:
        said, found = self._frame.said, self._making.found
        calls = [
            self.call(f"give out {nodes_label(name)}", of_nodes.share_nodes, (name, each, books[name]))
            for name, each in self._nodes.items()
        ]
        with_columns = [
            name for name, table in said.nodes.items() if table.features or table.label or table.time
        ]
        calls += [
            self.call(
                f"look at {nodes_label(name)}",
                of_nodes.look_at_columns,
                (name, self._nodes[name].mask),
            )
            for name in with_columns
        ]
        answers = self.step("give out ids and splits", calls)
        for name, answer in zip(self._nodes, answers, strict=False):
            shared, wholes = answer.value
            self._shared_nodes[name] = _kept(shared)
            self._wholes |= wholes
        columns = {
            name: answer.value
            for name, answer in zip(with_columns, answers[len(self._nodes) :], strict=True)
        }
        calls, runs_of_calls = [], []
        for name, own in columns.items():
            first_row = first_node = 0
            for run, count in zip(self._node_runs[name], self._nodes[name].counts, strict=True):
                table = run.of(found.nodes[name])
                size = table.nbytes(each for _, column in own for each in column.columns)
                args = (name, run, own, self._nodes[name], (first_row, first_node), books[name])
                task = f"give out attributes of {nodes_label(name)}"
                calls.append(self.call(task, of_nodes.share_columns, args, size))
                runs_of_calls.append(name)
                first_row, first_node = first_row + table.num_rows, first_node + count
        answers = self.step("give out attributes of nodes", calls)
        for name, own in columns.items():
            each = [
                answer.value
                for other, answer in zip(runs_of_calls, answers, strict=True)
                if other == name
            ]
            count = self._nodes[name].made.count
            for label, column in own:
                key = ArrayKey("node", name, label)
                self._making.nodes[name].columns.append((key, column))
                shared_runs = [shared[label] for shared in each]
                self._shared_nodes[name].columns[label] = self.shared(key, count, shared_runs)

    def shared(self, key: ArrayKey, count: int, runs: Sequence[SharedColumn]) -> JoinedSegments:
        """Return an attribute that runs have given out; note its sum."""
        segments = JoinedSegments([run.segments for run in runs])
        self.sum(key, segments.dtype, (count, *segments.shape), [run.summed for run in runs])
        return segments

    def sum(
        self, key: ArrayKey, dtype: str, shape: tuple[int, ...], ranges: Sequence[RangeSummed]
    ) -> None:
        """Note the sum of an array of the whole graph."""
        self._wholes[key] = Summed(dtype, shape, checksum_of(ranges))

    # --- parts ---

    def _reduce(self, schemas: Sequence[Schema]) -> None:
        """Write all parts, and let them take their place."""
        beside = self._workspace.path("parts")
        beside.mkdir()
        given_out = [
            self._runner.put(each)
            for each in (self._shared_nodes, self._shared_edges, self._graph)
        ]
        total = sum(
            array_nbytes(each.dtype, each.shape) for each in self._wholes.values()
        ) // len(schemas)
        calls = [
            self.call(f"write part {part}", write_part, (part, schema, *given_out), total)
            for part, schema in enumerate(schemas)
        ]
        for part, answer in enumerate(self.step("write parts", calls)):
            (answer.folder / "part").rename(beside / f"part-{part}")
        move_parts(beside, Path(os.path.abspath(self._path)))


class _EdgesOfTable:
    """The steps by which the edges of one table are given out."""

    def __init__(
        self, build: TasksBuild, kind: EdgeType, books: Mapping[str, PartitionBook]
    ) -> None:
        self._build = build
        self._kind = kind
        self._books = books
        self._said = build._frame.said.edges[kind]
        self._table = build._making.found.edges[kind]
        self._runs = build._edge_runs[kind]
        self._label = edges_label(kind)
        self._passes = passes_of(kind, self._said)
        self._left_out: dict[str, int] = {}
        self._ends = tuple(build._nodes[name].numbering for name in (kind[0], kind[2]))
        self._own_books = {name: books[name] for name in (kind[0], kind[2])}

    def run(self) -> None:
        """Read the table, and give out what parts get of it."""
        looked_up = self._looked_up()
        columns, firsts = self._columns(looked_up), self._firsts(looked_up)
        sizes = self._sizes(looked_up)
        spread, answers = self._spread(looked_up, firsts, sizes)
        made = MadeEdges(sizes, {}, left_out=self._left_out)
        self._build._making.edges.append(made)
        self._sort(spread, sizes)
        self._share_columns(columns, looked_up, firsts, spread, made)
        self._links(looked_up, spread)
        del answers

    # --- which rows are edges ---

    def _looked_up(self) -> list[LookedUp]:
        build, ends = self._build, (self._said.source, self._said.target)
        calls = [
            build.call(
                f"look up {self._label}",
                of_edges.look_up,
                (self._kind, run, *self._ends),
                run.of(self._table).nbytes(ends),
            )
            for run in self._runs
        ]
        found = [each.value for each in build.step(f"look up {self._label}", calls)]
        for each in found:
            self._leave_out(each.left_out)
        if not of_edges.depends_on_all(self._said):
            return found
        size = sum(each.num_rows * each.ends.dtype.itemsize * 2 for each in found)
        decide = build.call(
            f"decide {self._label}", of_edges.decide, (self._kind, found, *self._ends), size
        )
        (answer,) = build.step(f"decide {self._label}", [decide])
        found, left_out = answer.value
        self._leave_out(left_out)
        return found

    def _leave_out(self, counts: Mapping[str, int]) -> None:
        for why, count in counts.items():
            self._left_out[why] = self._left_out.get(why, 0) + count

    def _sizes(self, looked_up: Sequence[LookedUp]) -> dict[EdgeType, int]:
        found: dict[EdgeType, int] = {}
        for each in self._passes:
            count = sum(run.count(*each.states) for run in looked_up)
            found[each.kind] = found.get(each.kind, 0) + count
        return found

    def _firsts(self, looked_up: Sequence[LookedUp]) -> list[list[int]]:
        """Return the id of the first edge of each run, of each pass."""
        found, ends = [], dict.fromkeys((each.kind for each in self._passes), 0)
        for each in self._passes:
            own = []
            for run in looked_up:
                own.append(ends[each.kind])
                ends[each.kind] += run.count(*each.states)
            found.append(own)
        return found

    def _columns(self, looked_up: Sequence[LookedUp]) -> Columns:
        said, build = self._said, self._build
        if not (said.features or said.label or said.time or said.weight):
            return []
        call = build.call(f"look at {self._label}", of_edges.look_at_columns, (self._kind, looked_up))
        (answer,) = build.step(f"look at {self._label}", [call])
        found: Columns = answer.value
        return found

    # --- by ranges of nodes ---

    def _spread(
        self,
        looked_up: Sequence[LookedUp],
        firsts: Sequence[Sequence[int]],
        sizes: Mapping[EdgeType, int],
    ) -> tuple[list[Spread], list[Answer]]:
        build = self._build
        counts = tuple(each.count for each in self._ends)
        links = of_edges.link_places(self._said, self._kind, looked_up)
        self._ranges = {
            each.kind: {side: self._ranges_of(each, side, sizes) for side in self._sides}
            for each in self._passes
        }
        calls = []
        for at, (run, looked) in enumerate(zip(self._runs, looked_up, strict=True)):
            places = [
                Place(own[at], sizes[each.kind], self._ranges[each.kind])
                for each, own in zip(self._passes, firsts, strict=True)
            ]
            args = (self._kind, run, looked, counts, places, links[at], self._own_books)
            nbytes = looked.num_rows * looked.ends.dtype.itemsize * 2
            calls.append(build.call(f"give out {self._label}", of_edges.spread, args, nbytes))
        answers = build.step(f"give out {self._label}", calls)
        return [answer.value for answer in answers], answers

    @property
    def _sides(self) -> tuple[Side, ...]:
        return sides_of(self._build._cutting)

    def _ranges_of(self, each: Pass, side: Side, sizes: Mapping[EdgeType, int]) -> RangeBook:
        build = self._build
        size = self._num_nodes(owner_of(each.kind, side))
        nbytes = 24 * sizes[each.kind]
        count = num_ranges(size, nbytes, build._frame.memory, build._runner.cpus)
        return RangeBook.even(size, count)

    def _num_nodes(self, name: str) -> int:
        return self._build._nodes[name].numbering.count

    def _sort(self, spread: Sequence[Spread], sizes: Mapping[EdgeType, int]) -> None:
        build = self._build
        calls, ranges, used = [], [], []
        for kind in sizes:
            own = [
                run.passes[at]
                for at, each in enumerate(self._passes)
                if each.kind == kind
                for run in spread
            ]
            for side in self._sides:
                entries = [each.entries[side] for each in own]
                used += entries
                is_paired = side == "out" or not _came_sorted(own)
                for number, range_ in enumerate(
                    self._ranges_to_sort(kind, side, is_paired, sizes[kind], entries)
                ):
                    some = [segments.of(number) for segments in entries]
                    size = sum(array_nbytes(each.dtype, each.shape) for each in some)
                    task = f"sort {edges_label(kind)}"
                    args = (range_, some, self._own_books)
                    calls.append(build.call(task, sort, args, size))
                    ranges.append(range_)
        answers = build.step(f"sort {self._label}", calls)
        for segments in used:
            shutil.rmtree(segments.path(0).parent, ignore_errors=True)
        found = [answer.value for answer in answers]
        for kind in sizes:
            self._note_sorted(kind, [each for each in zip(ranges, found, strict=True) if each[0].kind == kind])

    def _ranges_to_sort(
        self, kind: EdgeType, side: Side, is_paired: bool, num_edges: int, entries: Sequence[Any]
    ) -> list[NodeRange]:
        book = self._ranges[kind][side]
        counts = np.sum([each.num_rows for each in entries], axis=0).tolist()
        found, first = [], 0
        for number, count in enumerate(counts):
            begin, end = book.bounds[number : number + 2]
            others = self._num_nodes(found_by(kind, side))
            found.append(
                NodeRange(
                    kind, side, begin, end - begin, first, num_edges, book.size, others, is_paired
                )
            )
            first += count
        return found

    def _note_sorted(
        self, kind: EdgeType, each: Sequence[tuple[NodeRange, SortedRange]]
    ) -> None:
        build = self._build
        shared = SharedEdges(kind)
        own = [(range_, found) for range_, found in each if range_.side == "in"]
        first = own[0][0]
        indptr, adjacency = specs(
            first.num_rows_in_all, first.num_others, first.num_edges, paired=first.is_paired
        )
        for name, spec, at in (("adjacency", adjacency, 0), ("indptr", indptr, 1)):
            sums = [found.summed[at] for _, found in own if found.summed is not None]
            build.sum(ArrayKey("csc", kind, name), *spec, sums)
        shared.num_edges = np.sum([found.num_edges for _, found in own], axis=0).tolist()
        shared.edges_cut = np.sum([found.edges_cut for _, found in own], axis=0).tolist()
        for side in self._sides:
            rows = [
                found.rows for range_, found in each if range_.side == side and found.rows is not None
            ]
            if rows:
                shared.sides[side] = _joined_rows(rows)
        whole = [found.whole for _, found in own if found.whole is not None]
        if whole:
            shared.whole = StoredRows(
                first.num_edges,
                JoinedSegment(*adjacency, [edges for edges, _ in whole]),
                JoinedSegment(*indptr, [ends for _, ends in whole]),
                build._frame.memory,
            )
        build._shared_edges[kind] = shared

    # --- attributes and links ---

    def _share_columns(
        self,
        columns: Columns,
        looked_up: Sequence[LookedUp],
        firsts: Sequence[Sequence[int]],
        spread: Sequence[Spread],
        made: MadeEdges,
    ) -> None:
        if not columns:
            return
        build = self._build
        calls = []
        for at, (run, looked) in enumerate(zip(self._runs, looked_up, strict=True)):
            owners = [each.owners for each in spread[at].passes]
            own = [first[at] for first in firsts]
            size = run.of(self._table).nbytes(name for _, each in columns for name in each.columns)
            args = (self._kind, run, columns, looked, own, owners)
            task = f"give out attributes of {self._label}"
            calls.append(build.call(task, of_edges.share_columns, args, size * len(own)))
        answers = build.step(f"give out attributes of {self._label}", calls)
        for kind in made.sizes:
            # Of each pass one run after the other, as ids of edges are.
            at_passes = [at for at, each in enumerate(self._passes) if each.kind == kind]
            build._shared_edges[kind].owners = JoinedOwners(
                [run.passes[at].owners for at in at_passes for run in spread]  # type: ignore[misc]
            )
        for name, column in columns:
            for kind, count in made.sizes.items():
                key = ArrayKey("edge", kind, name)
                made.columns.append((key, column))
                pieces = [
                    answer.value[at][name]
                    for at, each in enumerate(self._passes)
                    if each.kind == kind
                    for answer in answers
                ]
                build._shared_edges[kind].columns[name] = build.shared(key, count, pieces)

    def _links(self, looked_up: Sequence[LookedUp], spread: Sequence[Spread]) -> None:
        """Note the links of each split, which every part has."""
        places = of_edges.link_places(self._said, self._kind, looked_up)
        for name, place in places[0].items():
            owner, ends, times = of_edges.link_names(self._kind, name)
            runs = [each.links[name] for each in spread]
            both = [run.ends[end] for end in (0, 1) for run in runs]
            self._link_array(ArrayKey("graph", owner, ends), (2, place.count), both)
            own = [run.times for run in runs if run.times is not None]
            if own:
                self._link_array(ArrayKey("graph", owner, times), (place.count,), own)

    def _link_array(
        self, key: ArrayKey, shape: tuple[int, ...], runs: Sequence[tuple[Segment, RangeSummed]]
    ) -> None:
        dtype = runs[0][0].dtype
        self._build._graph[key] = JoinedSegment(dtype, shape, [segment for segment, _ in runs])
        self._build.sum(key, dtype, shape, [summed for _, summed in runs])


def _perform(
    root: Path, name: str, function: Callable[..., Any], frame: Frame, *args: Any
) -> Answer:
    return perform(root, name, function, (frame, *args))


def _came_sorted(passes: Sequence[Any]) -> bool:
    """Return whether the edges of a type came sorted by destination, one run after the other."""
    own = [each for each in passes if each.first >= 0]
    return all(each.is_sorted for each in own) and all(
        one.last <= other.first for one, other in zip(own, own[1:], strict=False)
    )


def _kept(shared: SharedNodes) -> SharedNodes:
    """Return what was given out by one task so that it can be read again."""
    for name in ("keys", "lengths", "text"):
        if (segments := getattr(shared, name)) is not None:
            setattr(shared, name, JoinedSegments([segments]))
    shared.splits = {
        name: SharedSplit(
            split.size, JoinedSegments([split.nodes]), JoinedSegments([split.positions])
        )
        for name, split in shared.splits.items()
    }
    return shared


def _joined_rows(rows: Sequence[SharedRows]) -> SharedRows:
    first_ids = [each.first_ids for each in rows if each.first_ids is not None]
    return SharedRows(
        JoinedSegments([each.entries for each in rows]),
        JoinedSegments([each.degrees for each in rows]),
        JoinedSegments(first_ids) if first_ids else None,
    )


def _names(columns: Sequence[tuple[str, str]]) -> list[str]:
    return [column for _, column in columns]


def _nbytes_of_ids(ids: Any) -> int:
    return sum(spool.num_rows * spool.dtype.itemsize for spool in ids.spools().values())


__all__ = ["Run", "TasksBuild", "check_tasks"]
