"""Builds the parts of a graph from tables by many tasks, one step after the other.

What is in memory here are sizes and names of files; files are in the workspace, which all hosts
share. It is removed whatever happens, or, if this process is killed, by the next build.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec

from penstock.graph.checksum import version_from_sums
from penstock.graph.layout import array_nbytes
from penstock.graph.partition.book import PartitionBook
from penstock.graph.partition.partition import Parts, move_parts
from penstock.graph.progress import Report
from penstock.graph.schema import ArrayKey, Schema
from penstock.ingest.context import BuildContext
from penstock.ingest.cutting.assign import books_of
from penstock.ingest.cutting.build import cut_of
from penstock.ingest.cutting.nodes import SharedNodes, SharedSplit
from penstock.ingest.description import Description, edges_label, nodes_label
from penstock.ingest.found import ends_of
from penstock.ingest.numbering import KeySpool
from penstock.ingest.tasks import nodes as tasks
from penstock.ingest.tasks.edge_steps import EdgeSteps
from penstock.ingest.tasks.joined import FiledNumbers, JoinedSegments, filed_book
from penstock.ingest.tasks.nodes import Columns, NumberedNodes
from penstock.ingest.tasks.plan import check_files, edge_runs, node_runs
from penstock.ingest.tasks.runner import Call, Runner
from penstock.ingest.tasks.sort import write_part
from penstock.ingest.tasks.steps import GivenOut, Say, Steps, remove
from penstock.ingest.tasks.task import Answer, Frame
from penstock.ingest.workspace import Workspace


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
        self._cutting = said.cutting
        said = msgspec.structs.replace(said, cutting=None)
        self._context = BuildContext(said, workspace, memory, report, only_look=True)
        self._found = self._context.found
        check_files(self._found)
        # Whoever is left of another build finds no folder of its own any more.
        root = workspace.folder / f"tasks-{os.urandom(8).hex()}"
        root.mkdir()
        self._steps = Steps(runner, root, self._frame(said, memory), self._context.work, say)
        self._said = said
        self._node_runs = node_runs(said, self._found, runner.cpus)
        self._edge_runs = edge_runs(said, self._found, runner.cpus)
        self._nodes: dict[str, NumberedNodes] = {}
        self._given_out = GivenOut()

    def _frame(self, said: Description, memory: int) -> Frame:
        words = self._cutting
        if not isinstance(words.method, str):  # arrays stay here: tasks are told of books
            words = msgspec.structs.replace(words, method="given")
        return Frame(said, words, self._found, memory)

    def run(self) -> Parts:
        """Read all tables, and write the parts."""
        self._number_nodes()
        books = self._books()
        self._share_nodes(books)
        for kind, runs in self._edge_runs.items():
            ends = (self._nodes[kind[0]].numbering, self._nodes[kind[2]].numbering)
            steps = EdgeSteps(self._steps, kind, runs, ends, books, self._given_out)
            self._context.edges.append(steps.run())
        for nodes in self._nodes.values():
            if isinstance(nodes.numbering, FiledNumbers):
                nodes.numbering.remove()
        schema, given_out = self._context.schema(), self._given_out
        version = version_from_sums(schema, given_out.wholes)
        cut = cut_of(self._cutting, books, version, given_out.nodes, given_out.edges)
        self._reduce([msgspec.structs.replace(schema, part=cut.note(n)) for n in range(cut.parts)])
        return Parts.of([self._path / f"part-{part}" for part in range(cut.parts)], cut)

    # --- nodes ---

    def _number_nodes(self) -> None:
        calls = []
        for name, said in self._said.nodes.items():
            size = 0 if said.id is None else self._found.nodes[name].nbytes([said.id])
            args = (name, self._node_runs[name])
            what = f"number {nodes_label(name)}"
            calls.append(self._steps.call(what, tasks.number, args, size))
        answers = self._steps.run("number nodes", calls)
        for name, answer in zip(self._said.nodes, answers, strict=True):
            self._nodes[name] = answer.value
        self._discover_nodes(self._found.nodes_without_table())
        for name, nodes in self._nodes.items():
            self._context.nodes[name] = nodes.made

    def _discover_nodes(self, names: Sequence[str]) -> None:
        """Number nodes that have no table: in the order in which edges name them first."""
        calls = []
        for kind, said in self._said.edges.items():
            columns = [column for name, column in ends_of(kind, said) if name in names]
            for run in self._edge_runs[kind] if columns else ():
                what = f"find nodes of {edges_label(kind)}"
                size = run.of(self._found.edges[kind]).nbytes(columns)
                args = (kind, run, names)
                calls.append(self._steps.call(what, tasks.discover, args, size))
        discovered = self._steps.run("find nodes that edges name", calls)
        calls = []
        for name in names:
            ids = [each.value[name] for each in discovered if name in each.value]
            what, size = f"number {nodes_label(name)}", sum(map(_nbytes_of_ids, ids))
            calls.append(self._steps.call(what, tasks.number_discovered, (name, ids), size))
        answers = self._steps.run("number nodes that edges name", calls)
        for name, answer in zip(names, answers, strict=True):
            self._nodes[name] = answer.value
        remove(discovered)

    def _books(self) -> dict[str, PartitionBook]:
        """Return which part has each node; tasks can be told of it."""
        if self._cutting.by_column:
            said = {name: each.book for name, each in self._nodes.items()}
            return {name: book for name, book in said.items() if book is not None}
        books = books_of(self._cutting, self._context)
        return {name: filed_book(book, self._workspace) for name, book in books.items()}

    def _share_nodes(self, books: Mapping[str, PartitionBook]) -> None:
        """Give out all there is of nodes."""
        calls = [
            self._steps.call(
                f"give out {nodes_label(name)}", tasks.share_nodes, (name, nodes, books[name])
            )
            for name, nodes in self._nodes.items()
        ]
        answers = self._steps.run("give out ids and splits of nodes", calls)
        for name, answer in zip(self._nodes, answers, strict=True):
            shared, wholes = answer.value
            self._given_out.nodes[name] = _kept(shared)
            self._given_out.wholes |= wholes
        columns = self._node_columns()
        calls = [
            call
            for name, own in columns.items()
            for call in self._calls_for_columns(name, own, books[name])
        ]
        answers = self._steps.run("give out attributes of nodes", calls)
        for name, own in columns.items():
            count = len(self._node_runs[name])
            self._note_columns(name, own, answers[:count])
            answers = answers[count:]

    def _node_columns(self) -> dict[str, Columns]:
        names = [
            name
            for name, said in self._said.nodes.items()
            if said.features or said.label or said.time
        ]
        calls = [
            self._steps.call(
                f"look at {nodes_label(name)}",
                tasks.look_at_columns,
                (name, self._nodes[name].mask),
            )
            for name in names
        ]
        answers = self._steps.run("look at attributes of nodes", calls)
        return {name: each.value for name, each in zip(names, answers, strict=True)}

    def _calls_for_columns(self, name: str, columns: Columns, book: PartitionBook) -> list[Call]:
        what, nodes, calls = f"give out attributes of {nodes_label(name)}", self._nodes[name], []
        first_row = first_node = 0
        for run, count in zip(self._node_runs[name], nodes.counts, strict=True):
            table = run.of(self._found.nodes[name])
            size = table.nbytes(each for _, column in columns for each in column.columns)
            args = (name, run, columns, nodes.mask, (first_row, first_node), book)
            calls.append(self._steps.call(what, tasks.share_columns, args, size))
            first_row, first_node = first_row + table.num_rows, first_node + count
        return calls

    def _note_columns(self, name: str, columns: Columns, runs: Sequence[Answer]) -> None:
        made, shared = self._context.nodes[name], self._given_out.nodes[name]
        for label, column in columns:
            key = ArrayKey("node", name, label)
            made.columns.append((key, column))
            pieces = [run.value[label] for run in runs]
            shared.columns[label] = self._given_out.column(key, made.count, pieces)

    # --- parts ---

    def _reduce(self, schemas: Sequence[Schema]) -> None:
        """Write all parts, and let them take their place."""
        given_out = self._given_out
        beside = self._workspace.path("parts")
        beside.mkdir()

        def place(part: int, answer: Answer) -> None:
            (answer.folder / "part").rename(beside / f"part-{part}")
            given_out.remove(part)

        put = [
            self._steps.put(each) for each in (given_out.nodes, given_out.edges, given_out.graph)
        ]
        total = sum(array_nbytes(each.dtype, each.shape) for each in given_out.wholes.values())
        calls = [
            self._steps.call(
                f"write part {part}",
                write_part,
                (part, schema, *put),
                total // len(schemas),
                partial(place, part),
            )
            for part, schema in enumerate(schemas)
        ]
        self._steps.run("write parts", calls)
        move_parts(beside, Path(os.path.abspath(self._path)))


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


def _nbytes_of_ids(ids: KeySpool) -> int:
    return sum(spool.num_rows * spool.dtype.itemsize for spool in ids.spools().values())
