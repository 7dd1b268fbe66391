"""Any cut of any small graph, opened again as one: its parts in this process, or as if far away."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from hypothesis import strategies as st

from penstock.graph import Graph
from penstock.sampling.spec import BuiltInSpec
from penstock.store.answers import PartAnswers
from penstock.store.calls import STORE_VERBS
from penstock.store.graph import StoreGraph
from penstock.store.handles import open_parts, outline_of
from penstock.store.outline import outline_of_parts
from penstock.store.rows_target import RowsTarget
from penstock.wire import payload
from penstock.wire.frames import read
from penstock.wire.values import pack, unpack
from tests.sampling.worlds import World

MOST_PARTS = 5
# Parts are written with care for power cuts, which takes long on a disk. Nothing is cut here.
MEMORY = Path("/dev/shm")


@dataclass(frozen=True)
class Cut:
    """How a graph is cut, as `Graph.partition` takes it."""

    parts: int
    method: Any
    edges: str
    topology: str

    def write(self, graph: Graph, folder: Path | str) -> list[str]:
        options: dict[str, Any] = {"edges": self.edges, "topology": self.topology}
        found = graph.partition(self.parts, folder, self.method, **options)
        return [str(path) for path in found]


@st.composite
def assignments(draw: st.DrawFn, world: World, parts: int) -> Any:
    """A part for each node: by a rule, or any; parts may be left with nothing at all."""
    rule = draw(st.sampled_from(["range", "hash", "given", "given"]))
    if rule != "given":
        return rule
    numbers = st.integers(0, parts - 1)
    found = {
        name: np.array(
            draw(st.lists(numbers, min_size=size, max_size=size)),
            draw(st.sampled_from(["int64", "uint8", "int32"])),
        )
        for name, size in world.sizes.items()
    }
    return found if world.is_hetero else found[""]


@st.composite
def cuts(draw: st.DrawFn, world: World, *edges: str) -> Cut:
    """Any number of parts, any assignment, both layouts."""
    parts = draw(st.integers(1, MOST_PARTS))
    return Cut(
        parts=parts,
        method=draw(assignments(world, parts)),
        edges=draw(st.sampled_from(edges or ("destination", "source", "both"))),
        topology=draw(st.sampled_from(["parts", "parts", "whole"])),
    )


def sides_for(spec: BuiltInSpec) -> tuple[str, str]:
    """The values of `edges` by which parts have all rows that a spec reads."""
    direction = getattr(getattr(spec, "neighbors", spec), "direction", "in")
    return ("destination" if direction == "in" else "source"), "both"


@contextmanager
def in_parts(
    graph: Graph, cut: Cut, opener: Callable[[Sequence[str]], StoreGraph] = open_parts
) -> Iterator[StoreGraph]:
    """The whole again, of its parts alone: the graph itself is not looked at any more."""
    place = str(MEMORY) if MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="cut-", dir=place) as folder:
        paths = cut.write(graph, Path(folder) / "parts")
        with opener(paths) as parts:
            yield parts


@contextmanager
def world_in_parts(
    world: World, cut: Cut, opener: Callable[[Sequence[str]], StoreGraph] = open_parts
) -> Iterator[World]:
    """The same world, whose graph is in parts."""
    with in_parts(world.graph, cut, opener) as parts:
        yield dataclasses.replace(world, graph=parts)


class FarParts:
    """Parts that answer in bytes, as over a network, and in pieces of so many bytes."""

    def __init__(self, graphs: Sequence[Graph], most_bytes: int) -> None:
        self._graphs = graphs
        self._answers = [PartAnswers(graph, most_bytes) for graph in graphs]

    @property
    def num_parts(self) -> int:
        return len(self._answers)

    def begin(
        self, part: int, verb: str, into: RowsTarget | None = None, **arguments: Any
    ) -> _Said:
        known = STORE_VERBS[verb]
        taken = unpack(*_moved(*pack(arguments)), known.takes)
        given = {name: getattr(taken, name) for name in taken.__struct_fields__}
        answer = getattr(self._answers[part], verb)(**given)
        return _Said(known.form.together(unpack(*_moved(*pack(answer)), known.gives)))

    def close(self) -> None:
        for graph in self._graphs:
            graph.close()


@dataclass(frozen=True)
class _Said:
    answer: Any

    def result(self) -> Any:
        return self.answer

    def abandon(self) -> None:
        """Nothing is under way."""


def _moved(plain: Any, arrays: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """What arrives of this at the other end: copies, aligned as they are there, read-only."""
    packed = payload.pack(arrays)
    memory = payload.reserved(packed.arrays, packed.nbytes)
    memory[:] = np.frombuffer(b"".join(packed.views), np.uint8)
    memory.flags.writeable = False
    return msgspec.msgpack.decode(msgspec.msgpack.encode(plain)), read(memory, packed.arrays)


def far_parts(most_bytes: int) -> Callable[[Sequence[str]], StoreGraph]:
    """What opens parts of which no answer has more bytes, but for the least that one can have."""

    def opened(paths: Sequence[str]) -> StoreGraph:
        graphs = sorted(
            (Graph.open(path) for path in paths),
            key=lambda graph: 0 if graph.part is None else graph.part.number,
        )
        outline = outline_of_parts([outline_of(graph) for graph in graphs])
        here = {
            key: array
            for key, array in graphs[0].arrays.items()
            if key.group == "graph" or (key.group == "part" and key.name == "book")
        }
        return StoreGraph(outline, lambda: FarParts(graphs, most_bytes), here)

    return opened
