"""What all steps of a build by tasks have: tasks are called, and what they answer is noted."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from penstock.graph.schema import ArrayKey, EdgeType
from penstock.ingest.cutting.edges import SharedEdges
from penstock.ingest.cutting.nodes import SharedNodes, Wholes
from penstock.ingest.cutting.segments import Segment
from penstock.ingest.cutting.sums import Summed
from penstock.ingest.tasks.joined import JoinedSegments
from penstock.ingest.tasks.nodes import SharedColumn
from penstock.ingest.tasks.runner import Call, Runner
from penstock.ingest.tasks.sums import RangeSummed, checksum_of
from penstock.ingest.tasks.task import Answer, Frame, perform
from penstock.ingest.work import Work

# Told of a step that begins, and with what it took when it has ended.
Say = Callable[[str, str | None], object]

_MEGABYTE: Final = 1e6


class Steps:
    """Has tasks performed, and tells how far they are.

    Attributes:
        frame: What all tasks know.
        cpus: How many tasks are performed at a time.
    """

    def __init__(
        self, runner: Runner, root: Path, frame: Frame, work: Work, say: Say | None
    ) -> None:
        self.frame = frame
        self.cpus = runner.cpus
        self._runner = runner
        self._root = root
        self._work = work
        self._say = say
        self._told = self.put(frame)

    def put(self, value: Any) -> Any:
        """Return something that stands for a value that many tasks are called with."""
        return self._runner.put(value)

    def call(
        self,
        name: str,
        function: Callable[..., Any],
        args: Sequence[Any],
        nbytes: int = 0,
        then: Callable[[Answer], object] | None = None,
    ) -> Call:
        """Return a task: a function of its workspace, the frame, and the arguments.

        Args:
            name: What it does.
            function: A function of a module.
            args: Its other arguments.
            nbytes: How much it reads, about.
            then: Called here with its answer.
        """
        slug = "".join(each if each.isalnum() else "-" for each in name)
        whole = (self._root, slug, function, self._told, *args)
        return Call(f"penstock build: {name}", _perform, whole, nbytes, then)

    def run(self, what: str, calls: Sequence[Call]) -> list[Answer]:
        """Perform the tasks of a step; return their answers."""
        if not calls:
            return []
        began, nbytes = time.monotonic(), sum(call.nbytes for call in calls)
        self._work.expect(nbytes)
        if self._say is not None:
            self._say(what, None)
        found = self._runner.run(calls, self._work.add)
        if self._say is not None:
            self._say(what, _told(len(calls), nbytes, time.monotonic() - began))
        return found


def _told(tasks: int, nbytes: int, seconds: float) -> str:
    """Return what a step took, in words."""
    size = nbytes / _MEGABYTE
    read = f"{size:,.1f} MB in " if nbytes else ""
    rate = f", {size / seconds:,.0f} MB/s" if nbytes and seconds >= 1 else ""
    return f"{tasks:,} task{'s' if tasks > 1 else ''}, {read}{seconds:.1f} s{rate}"


def _perform(
    root: Path, name: str, function: Callable[..., Any], frame: Frame, *args: Any
) -> Answer:
    return perform(root, name, function, (frame, *args))


def remove(answers: Sequence[Answer]) -> None:
    """Remove the files of tasks."""
    for answer in answers:
        shutil.rmtree(answer.folder, ignore_errors=True)


@dataclass
class GivenOut:
    """What has been given out so far.

    Attributes:
        wholes: The sums of the arrays of the whole graph.
        nodes: The nodes of each type.
        edges: The edges of each type.
        graph: Arrays that every part has.
    """

    wholes: Wholes = field(default_factory=dict)
    nodes: dict[str, SharedNodes] = field(default_factory=dict)
    edges: dict[EdgeType, SharedEdges] = field(default_factory=dict)
    graph: dict[ArrayKey, Segment] = field(default_factory=dict)

    def column(self, key: ArrayKey, count: int, pieces: Sequence[SharedColumn]) -> JoinedSegments:
        """Return an attribute that was given out in pieces; note its sum."""
        segments = JoinedSegments([each.segments for each in pieces])
        self.sum(key, segments.dtype, (count, *segments.shape), [each.summed for each in pieces])
        return segments

    def sum(
        self, key: ArrayKey, dtype: str, shape: tuple[int, ...], ranges: Sequence[RangeSummed]
    ) -> None:
        """Note the sum of an array of the whole graph."""
        self.wholes[key] = Summed(dtype, shape, checksum_of(ranges))
        for each in ranges:
            each.path.unlink(missing_ok=True)

    def remove(self, part: int) -> None:
        """Remove what a part was given, which has been written."""
        for segments in self._all():
            segments.of(part).path.unlink(missing_ok=True)

    def _all(self) -> list[Any]:
        found: list[Any] = []
        for nodes in self.nodes.values():
            found += [*nodes.columns.values(), nodes.keys, nodes.lengths, nodes.text]
            for split in nodes.splits.values():
                found += [split.nodes, split.positions]
        for edges in self.edges.values():
            found += edges.columns.values()
            for rows in edges.sides.values():
                found += [rows.entries, rows.degrees, rows.first_ids]
        return [
            each for joined in found if isinstance(joined, JoinedSegments) for each in joined.each
        ]
