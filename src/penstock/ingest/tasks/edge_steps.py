"""The steps by which the edges of one table are given out by many tasks.

Runs of files look up ends; then it is known which edges each run has, so that it can give them out
by ranges of nodes, with their ids. Ranges are sorted, and given out by parts; attributes are given
out run by run.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from penstock.graph.layout import array_nbytes
from penstock.graph.partition.book import PartitionBook, RangeBook
from penstock.graph.schema import ArrayKey, EdgeType, Side, found_by, owner_of
from penstock.graph.topology import specs
from penstock.ingest.cutting.edges import SharedEdges, SharedRows
from penstock.ingest.cutting.rows import StoredRows
from penstock.ingest.cutting.segments import Segment, Segments
from penstock.ingest.description import edges_label
from penstock.ingest.edges import MadeEdges
from penstock.ingest.numbering import Numbering
from penstock.ingest.tasks import edges as tasks
from penstock.ingest.tasks import spread as spreading
from penstock.ingest.tasks.edges import LookedUp, Pass, passes_of
from penstock.ingest.tasks.joined import JoinedOwners, JoinedSegment, JoinedSegments
from penstock.ingest.tasks.nodes import Columns
from penstock.ingest.tasks.sort import NodeRange, SortedRange, sort
from penstock.ingest.tasks.spread import Place, Spread, SpreadPass, sides_of
from penstock.ingest.tasks.steps import GivenOut, Steps
from penstock.ingest.tasks.sums import RangeSummed
from penstock.ingest.tasks.task import NBYTES_OF_EDGE, Run, num_ranges

Ranges: TypeAlias = Mapping[EdgeType, dict[Side, RangeBook]]


class EdgeSteps:
    """The steps for one table.

    Args:
        steps: Has tasks performed.
        kind: The type of edges.
        runs: The files of the table, as tasks read them.
        ends: The numberings of sources and of targets.
        books: The part of each node.
        given_out: Takes note of what has been given out.
    """

    def __init__(
        self,
        steps: Steps,
        kind: EdgeType,
        runs: Sequence[Run],
        ends: tuple[Numbering, Numbering],
        books: Mapping[str, PartitionBook],
        given_out: GivenOut,
    ) -> None:
        self._steps = steps
        self._kind = kind
        self._runs = runs
        self._ends = ends
        self._books = {name: books[name] for name in (kind[0], kind[2])}
        self._given_out = given_out
        self._said = steps.frame.said.edges[kind]
        self._table = steps.frame.found.edges[kind]
        self._label = edges_label(kind)
        self._passes = passes_of(kind, self._said)
        self._sides = sides_of(steps.frame.cutting)
        self._left_out: dict[str, int] = {}

    def run(self) -> MadeEdges:
        """Read the table, and give out what parts get of it."""
        looked_up = self._looked_up()
        columns = self._columns(looked_up)
        sizes = self._sizes(looked_up)
        firsts = self._firsts(looked_up)
        ranges = {
            each.kind: {side: self._ranges(each, side, sizes) for side in self._sides}
            for each in self._passes
        }
        spread = self._spread(looked_up, firsts, sizes, ranges)
        for run in looked_up:
            run.ends.remove()
        self._sort(spread, sizes, ranges)
        made = MadeEdges(sizes, {}, left_out=self._left_out)
        if columns:
            self._share_columns(columns, looked_up, firsts, spread, made)
        self._note_links(looked_up, spread)
        for run in looked_up:
            if run.states is not None:
                run.states.remove()
        return made

    # --- which rows are edges ---

    def _looked_up(self) -> list[LookedUp]:
        what, columns = f"look up {self._label}", (self._said.source, self._said.target)
        calls = [
            self._steps.call(
                what,
                tasks.look_up,
                (self._kind, run, *self._ends),
                run.of(self._table).nbytes(columns),
            )
            for run in self._runs
        ]
        found: list[LookedUp] = [each.value for each in self._steps.run(what, calls)]
        for each in found:
            self._leave_out(each.left_out)
        return self._decided(found) if tasks.depends_on_all(self._said) else found

    def _decided(self, looked_up: Sequence[LookedUp]) -> list[LookedUp]:
        what, size = f"decide {self._label}", sum(map(_nbytes_of_ends, looked_up))
        call = self._steps.call(what, tasks.decide, (self._kind, looked_up, *self._ends), size)
        (answer,) = self._steps.run(what, [call])
        found: list[LookedUp]
        found, left_out = answer.value
        self._leave_out(left_out)
        return found

    def _leave_out(self, counts: Mapping[str, int]) -> None:
        for why, count in counts.items():
            self._left_out[why] = self._left_out.get(why, 0) + count

    def _sizes(self, looked_up: Sequence[LookedUp]) -> dict[EdgeType, int]:
        """Return how many edges each type has."""
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

    # --- by ranges of nodes ---

    def _ranges(self, each: Pass, side: Side, sizes: Mapping[EdgeType, int]) -> RangeBook:
        size = self._num_nodes(owner_of(each.kind, side))
        memory = self._steps.frame.memory
        count = num_ranges(size, NBYTES_OF_EDGE * sizes[each.kind], memory, self._steps.cpus)
        return RangeBook.even(size, count)

    def _num_nodes(self, name: str) -> int:
        return self._books[name].size

    def _spread(
        self,
        looked_up: Sequence[LookedUp],
        firsts: Sequence[Sequence[int]],
        sizes: Mapping[EdgeType, int],
        ranges: Ranges,
    ) -> list[Spread]:
        what = f"give out {self._label}"
        links = spreading.link_places(self._said, self._kind, looked_up)
        calls = []
        for at, (run, looked) in enumerate(zip(self._runs, looked_up, strict=True)):
            places = [
                Place(own[at], sizes[each.kind], ranges[each.kind])
                for each, own in zip(self._passes, firsts, strict=True)
            ]
            args = (self._kind, run, looked, self._ends, places, links[at], self._books)
            calls.append(self._steps.call(what, spreading.spread, args, _nbytes_of_ends(looked)))
        return [answer.value for answer in self._steps.run(what, calls)]

    def _sort(
        self, spread: Sequence[Spread], sizes: Mapping[EdgeType, int], ranges: Ranges
    ) -> None:
        what, calls, sorted_ranges = f"sort {self._label}", [], []
        for kind in sizes:
            own = [run.passes[at] for at in self._passes_of(kind) for run in spread]
            for side in self._sides:
                entries = [each.entries[side] for each in own]
                is_paired = side == "out" or not _came_sorted(own)
                book = ranges[kind][side]
                found = self._ranges_to_sort(kind, side, book, is_paired, sizes[kind], entries)
                for number, range_ in enumerate(found):
                    some = [segments.of(number) for segments in entries]
                    size = sum(array_nbytes(each.dtype, each.shape) for each in some)
                    args = (range_, some, self._books)
                    calls.append(self._steps.call(f"sort {edges_label(kind)}", sort, args, size))
                sorted_ranges += found
        answers = self._steps.run(what, calls)
        for run in spread:
            for each in run.passes:
                for segments in each.entries.values():
                    shutil.rmtree(segments.path(0).parent, ignore_errors=True)
        pairs = list(zip(sorted_ranges, (answer.value for answer in answers), strict=True))
        for kind in sizes:
            self._note_sorted(kind, [pair for pair in pairs if pair[0].kind == kind])

    def _ranges_to_sort(
        self,
        kind: EdgeType,
        side: Side,
        book: RangeBook,
        is_paired: bool,
        num_edges: int,
        entries: Sequence[Segments],
    ) -> list[NodeRange]:
        counts = np.sum([each.num_rows for each in entries], axis=0).tolist()
        num_others, found, first = self._num_nodes(found_by(kind, side)), [], 0
        for (begin, end), count in zip(pairwise(book.bounds), counts, strict=True):
            found.append(
                NodeRange(
                    kind,
                    side,
                    begin,
                    end - begin,
                    first,
                    num_edges,
                    book.size,
                    num_others,
                    is_paired,
                )
            )
            first += count
        return found

    def _note_sorted(self, kind: EdgeType, pairs: Sequence[tuple[NodeRange, SortedRange]]) -> None:
        shared = self._given_out.edges[kind] = SharedEdges(kind)
        first = pairs[0][0]
        own = [found for range_, found in pairs if range_.side == "in"]
        indptr, adjacency = specs(
            first.num_rows_in_all, first.num_others, first.num_edges, paired=first.is_paired
        )
        for name, spec, at in (("adjacency", adjacency, 0), ("indptr", indptr, 1)):
            sums = [found.summed[at] for found in own if found.summed is not None]
            self._given_out.sum(ArrayKey("csc", kind, name), *spec, sums)
        shared.num_edges = np.sum([found.num_edges for found in own], axis=0).tolist()
        shared.edges_cut = np.sum([found.edges_cut for found in own], axis=0).tolist()
        for side in self._sides:
            each = [found.rows for range_, found in pairs if range_.side == side]
            if rows := [found for found in each if found is not None]:
                shared.sides[side] = _joined_rows(rows)
        if whole := [found.whole for found in own if found.whole is not None]:
            shared.whole = StoredRows(
                first.num_edges,
                JoinedSegment(*adjacency, [edges for edges, _ in whole]),
                JoinedSegment(*indptr, [ends for _, ends in whole]),
                self._steps.frame.memory,
            )

    def _passes_of(self, kind: EdgeType) -> list[int]:
        """Return the numbers of the passes that edges of a type come from, in order of ids."""
        return [at for at, each in enumerate(self._passes) if each.kind == kind]

    # --- attributes and links ---

    def _columns(self, looked_up: Sequence[LookedUp]) -> Columns:
        if not tasks.has_columns(self._said):
            return []
        what = f"look at {self._label}"
        call = self._steps.call(
            what, spreading.look_at_columns, (self._kind, looked_up, self._ends)
        )
        (answer,) = self._steps.run(what, [call])
        found: Columns = answer.value
        return found

    def _share_columns(
        self,
        columns: Columns,
        looked_up: Sequence[LookedUp],
        firsts: Sequence[Sequence[int]],
        spread: Sequence[Spread],
        made: MadeEdges,
    ) -> None:
        what, given_out = f"give out attributes of {self._label}", self._given_out
        calls = []
        for at, (run, looked) in enumerate(zip(self._runs, looked_up, strict=True)):
            owners = [each.owners for each in spread[at].passes]
            own = [first[at] for first in firsts]
            size = run.of(self._table).nbytes(name for _, each in columns for name in each.columns)
            args = (self._kind, run, columns, looked, own, owners)
            calls.append(self._steps.call(what, spreading.share_columns, args, size * len(own)))
        answers = self._steps.run(what, calls)
        for kind in made.sizes:
            spools = [run.passes[at].owners for at in self._passes_of(kind) for run in spread]
            own_spools = [spool for spool in spools if spool is not None]
            given_out.edges[kind].owners = JoinedOwners(own_spools)
        for name, column in columns:
            for kind, count in made.sizes.items():
                key = ArrayKey("edge", kind, name)
                made.columns.append((key, column))
                pieces = [each.value[at][name] for at in self._passes_of(kind) for each in answers]
                given_out.edges[kind].columns[name] = given_out.column(key, count, pieces)

    def _note_links(self, looked_up: Sequence[LookedUp], spread: Sequence[Spread]) -> None:
        """Take note of the links of each split, which every part has."""
        for name, place in spreading.link_places(self._said, self._kind, looked_up)[0].items():
            owner, ends, times = spreading.link_names(self._kind, name)
            runs = [each.links[name] for each in spread]
            both = [run.ends[end] for end in (0, 1) for run in runs]
            self._note_link_array(ArrayKey("graph", owner, ends), (2, place.count), both)
            if own := [run.times for run in runs if run.times is not None]:
                self._note_link_array(ArrayKey("graph", owner, times), (place.count,), own)

    def _note_link_array(
        self, key: ArrayKey, shape: tuple[int, ...], runs: Sequence[tuple[Segment, RangeSummed]]
    ) -> None:
        dtype = runs[0][0].dtype
        self._given_out.graph[key] = JoinedSegment(dtype, shape, [each for each, _ in runs])
        self._given_out.sum(key, dtype, shape, [summed for _, summed in runs])


def _nbytes_of_ends(looked_up: LookedUp) -> int:
    return 2 * looked_up.num_rows * looked_up.ends.dtype.itemsize


def _came_sorted(passes: Sequence[SpreadPass]) -> bool:
    """Return whether the edges of a type came sorted by destination, one run after the other."""
    own = [each for each in passes if each.first >= 0]
    return all(each.is_sorted for each in own) and all(
        one.last <= other.first for one, other in pairwise(own)
    )


def _joined_rows(rows: Sequence[SharedRows]) -> SharedRows:
    first_ids = [each.first_ids for each in rows if each.first_ids is not None]
    return SharedRows(
        JoinedSegments([each.entries for each in rows]),
        JoinedSegments([each.degrees for each in rows]),
        JoinedSegments(first_ids) if first_ids else None,
    )
