"""Measures what this machine makes of a generated graph, within a given time.

Parts share the time that is left when they begin. A part that fails is one of the figures'
`troubles`, and the others go on. `moving` is the only part that needs torch, and is imported only
where there is a GPU.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np

from penstock.client.backend import SharedDistSamplingBackend
from penstock.client.channel.batch import Batch
from penstock.client.hub.hub_process import HubProcess
from penstock.doctor.figures import Figures, Gathering, Sampling, Subject, Trouble
from penstock.doctor.numbers import in_one_line, rounded
from penstock.doctor.rmat import rmat_graph
from penstock.errors import PenstockError
from penstock.graph import Graph
from penstock.kernels import gather_rows
from penstock.sampling.spec import NeighborSpec

Value = TypeVar("Value")
# Told what is done now.
Tell: TypeAlias = Callable[[str], object]

SEEDS: Final = 1024
FAN_OUTS: Final = (10, 5)
WIDTH: Final = 128
_ROW_BYTES: Final = 4 * WIDTH
# Edges of the graph: as many as are generated in a fifth of the time, within bounds.
_EDGES_A_SECOND: Final = 800_000
_FEWEST_EDGES: Final = 50_000
_MOST_EDGES: Final = 8_000_000
_EDGES_A_NODE: Final = 16
# Memory for each edge while the graph is made; and the share of the free memory it may take.
_BYTES_AN_EDGE: Final = 150
_MEMORY_SHARE: Final = 0.25
# The share of a part's time in which nothing counts yet: memory is touched, workers begin.
_WARMING: Final = 0.25
# Rows that are gathered at once, and how often with other ids.
_ROWS: Final = 1 << 16
_TURNS: Final = 8
_ERRORS: Final = (PenstockError, OSError, ValueError, RuntimeError, MemoryError)
_DIGITS: Final = 3


class Measurement:
    """One measurement; `run` returns its figures.

    Args:
        seconds: How long it may take, about.
        free: Bytes of memory that may be used. None: not known.
        device: The GPU to move batches to. None: there is none.
        tell: Called with what is done now.
    """

    def __init__(
        self, seconds: float, free: int | None, device: str | None, tell: Tell = lambda _: None
    ) -> None:
        self._began = time.monotonic()
        self._until = self._began + seconds
        self._parts = 3 if device is None else 4  # still to come
        self._device = device
        self._tell = tell
        edges = edges_for(seconds, free)
        subject = Subject(edges // _EDGES_A_NODE, edges, _ROW_BYTES, SEEDS, FAN_OUTS)
        self._figures = Figures(subject, seconds)

    def run(self) -> Figures:
        """Measure everything."""
        graph = self._tried("generating a graph", self._generated, stops=True)
        if graph is not None:
            with graph:
                self._measure(graph)
        return replace(self._figures, seconds=rounded(time.monotonic() - self._began, _DIGITS))

    def _generated(self) -> Graph:
        self._tell("generating a graph")
        subject = self._figures.subject
        return rmat_graph(subject.nodes, subject.edges, WIDTH)

    def _measure(self, graph: Graph) -> None:
        here, rows = "sampling in this process", "gathering rows"
        inline = self._part(here, lambda left: _inline(graph, left), stops=True)
        gathering = self._part(rows, lambda left: _gathering(graph, left), stops=True)
        self._figures = replace(self._figures, inline=inline, gathering=gathering)
        self._tell("starting workers")
        self._tried("sampling by workers", lambda: self._by_workers(graph))

    def _by_workers(self, graph: Graph) -> None:
        with HubProcess(graph) as hub:
            pool = self._part("sampling by workers", lambda left: _pool(hub, left))
            self._figures = replace(self._figures, pool=pool)
            if (device := self._device) is not None:
                from penstock.doctor.moving import moving

                what = "moving batches to the GPU"
                moved = self._part(what, lambda left: moving(hub, device, left))
                self._figures = replace(self._figures, moving=moved)

    def _part(
        self, what: str, work: Callable[[float], Value], *, stops: bool = False
    ) -> Value | None:
        """Do a part of the work in its share of the time that is left."""
        self._tell(what)
        left = max(0.0, self._until - time.monotonic()) / self._parts
        self._parts -= 1
        return self._tried(what, lambda: work(left), stops=stops)

    def _tried(self, what: str, work: Callable[[], Value], *, stops: bool = False) -> Value | None:
        try:
            return work()
        except _ERRORS as error:
            trouble = Trouble(what, in_one_line(error), stops)
            self._figures = replace(self._figures, troubles=(*self._figures.troubles, trouble))
            return None


def edges_for(seconds: float, free: int | None) -> int:
    """Return how many edges a graph may have that is made, and measured, in so many seconds."""
    edges = min(int(seconds * _EDGES_A_SECOND), _MOST_EDGES)
    if free is not None:
        edges = min(edges, int(free * _MEMORY_SHARE) // _BYTES_AN_EDGE)
    return max(edges, _FEWEST_EDGES)


# --- sampling ------------------------------------------------------------------------------------


def _inline(graph: Graph, seconds: float) -> Sampling:
    return _sampling(SharedDistSamplingBackend(graph, _spec(), num_workers=0), 0, seconds)


def _pool(hub: HubProcess, seconds: float) -> Sampling:
    return _sampling(SharedDistSamplingBackend(hub, _spec()), hub.num_workers, seconds)


def _spec() -> NeighborSpec:
    return NeighborSpec(num_neighbors=FAN_OUTS, node_attributes=())


def _sampling(source: SharedDistSamplingBackend, workers: int, seconds: float) -> Sampling:
    with source as backend:
        backend.register_input("doctor", None, batch_size=SEEDS, shuffle=True, seed=0)
        batches, edges = rates(_epochs(backend), _edges_of, seconds)
    return Sampling(workers, batches, edges)


def _epochs(backend: SharedDistSamplingBackend) -> Iterator[Batch]:
    """Yield batches without end."""
    for epoch in count():
        backend.start_new_epoch_sampling("doctor", epoch)
        yield from backend.batches("doctor")


def _edges_of(batch: Batch) -> int:
    return int(batch["edge_index"].shape[1])


def rates(
    batches: Iterator[Any], size_of: Callable[[Any], float], seconds: float
) -> tuple[float, float]:
    """Return how many batches come in a second, and the sum of their sizes.

    At least one batch counts, and at least one comes before that.
    """
    warm = time.perf_counter() + _WARMING * seconds
    for _ in batches:
        if time.perf_counter() >= warm:
            break
    began, number, total = time.perf_counter(), 0, 0.0
    for batch in batches:
        number, total = number + 1, total + size_of(batch)
        if (took := time.perf_counter() - began) >= (1 - _WARMING) * seconds:
            break
    return rounded(number / took, _DIGITS), rounded(total / took, _DIGITS)


# --- gathering -----------------------------------------------------------------------------------


def _gathering(graph: Graph, seconds: float) -> Gathering:
    """Gather rows at random, and in turn copy as many that lie side by side."""
    x: Any = graph.node_attribute("x")
    rows = min(_ROWS, len(x) // 2)
    out, draw = np.ones((rows, WIDTH), x.dtype), np.random.default_rng(0)
    ids = [draw.integers(len(x), size=rows) for _ in range(_TURNS)]
    begins = draw.integers(len(x) - rows, size=_TURNS)
    gathered = copied = 0.0
    began, turns = time.perf_counter(), 0
    while turns < 1 or time.perf_counter() - began < seconds:
        turn, turns = turns % _TURNS, turns + 1
        part = x[begins[turn] : begins[turn] + rows]
        start = time.perf_counter()
        gather_rows(x, ids[turn], out)
        between = time.perf_counter()
        np.copyto(out, part)
        gathered, copied = gathered + between - start, copied + time.perf_counter() - between
    nbytes = turns * out.nbytes
    return Gathering(rounded(nbytes / gathered, _DIGITS), rounded(nbytes / copied, _DIGITS))
