"""Does the steps of a model for all nodes of a graph, a shard of nodes at a time.

A shard is a range of consecutive nodes of a type, cut into batches that are the same whoever does
them. So results depend neither on the number of ranks nor on kills.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from penstock.graph.schema import NODE
from penstock.loader.embedding.norms import Degrees
from penstock.loader.embedding.states import States
from penstock.loader.embedding.steps import DEGREES, Neighborhood, Rows, Step, X, first_rows
from penstock.loader.embedding.workspace import Workspace
from penstock.loader.pyg.base import Loader
from penstock.loader.pyg.options import options_of
from penstock.loader.source.inputs import node_inputs
from penstock.loader.source.sources import DataSource
from penstock.sampling.spec import NeighborSpec

# A type of nodes is cut into as many shards, if each has a batch or more, and not too many.
_SHARDS: Final = 64
_MOST_BATCHES: Final = 128


@dataclass(frozen=True)
class Shard:
    """The nodes of a type from `first` to `last`, for one step."""

    step: int
    node_type: str
    first: int
    last: int


@dataclass(frozen=True, eq=False)
class Wanted:
    """What the user asked for.

    Attributes:
        node_type: The type whose nodes are embedded; the empty name if there are no types.
        batch_size: How many nodes a batch has.
        attributes: Attributes of edges that layers are given: by their word for it, the name.
        num_workers: How many workers make batches; None as for loaders.
        device: Where the model computes.
    """

    node_type: str
    batch_size: int
    attributes: Mapping[str, str]
    num_workers: Any
    device: torch.device


class NodesLoader(Loader):
    """Reads batches of nodes with all their neighbours, and with few attributes."""


def shards_of(source: DataSource, steps: list[Step], wanted: Wanted) -> list[Shard]:
    """Return all shards, step by step; a step has those of the types that later ones need."""
    graph, size = source.graph, wanted.batch_size
    found: list[Shard] = []
    for number, types in enumerate(_types(source, steps, wanted.node_type)):
        for node_type in types:
            nodes = graph.num_nodes(node_type or None)
            batches = -(-nodes // size)
            rows = size * min(max(1, batches // _SHARDS), _MOST_BATCHES)
            found += [
                Shard(number, node_type, first, min(first + rows, nodes))
                for first in range(0, nodes, rows)
            ]
    return found


def _types(source: DataSource, steps: list[Step], node_type: str) -> list[list[str]]:
    """Return the node types that each step makes states of, in the graph's order."""
    graph = source.graph
    needed, found = {node_type}, []
    for step in reversed(steps):
        found.append([name for name in graph.node_types or (NODE,) if name in needed])
        if step.reads is not None and graph.is_hetero:
            needed = needed | {name[0] for name in graph.edge_types if name[2] in needed}
    return found[::-1]


class Run:
    """The work of one process: shards that it claims, until all are done."""

    def __init__(
        self,
        source: DataSource,
        steps: list[Step],
        degrees: Degrees,
        wanted: Wanted,
        space: Workspace,
        report: Callable[[int, int], object],
    ) -> None:
        self._source = source
        self._steps = steps
        self._degrees = degrees
        self._wanted = wanted
        self._space = space
        self._report = report
        self._shards = shards_of(source, steps, wanted)
        self._states: dict[tuple[str, str], States] = {}
        self._loader: NodesLoader | None = None
        self._rows = np.array([shard.last - shard.first for shard in self._shards])

    def work(self, share: float) -> States:
        """Do what is to be done; return the states of the last step, when all have been made.

        Args:
            share: Where among the shards of a step this process begins, from 0 to 1.
        """
        try:
            for number, step in enumerate(self._steps):
                units = [at for at, shard in enumerate(self._shards) if shard.step == number]
                every = range(units[0], units[-1] + 1)
                for unit in self._space.claimed(every, int(share * len(every))):
                    self._do(step, self._shards[unit], unit)
                self._release(number)
            return self.states(self._steps[-1].name, self._wanted.node_type)
        finally:
            if self._loader is not None:
                self._loader.close()

    def states(self, name: str, node_type: str) -> States:
        """Return the states of this name of a type."""
        found = self._states.get((name, node_type))
        if found is None:
            types = self._source.graph.node_types
            number = types.index(node_type) if node_type in types else 0
            path = self._space.folder / f"{name}-{number}.npy"
            nodes = self._source.graph.num_nodes(node_type or None)
            found = self._states[name, node_type] = States(path, nodes)
        return found

    def close(self) -> None:
        """Release the files of states."""
        for each in self._states.values():
            each.close()

    def _do(self, step: Step, shard: Shard, unit: int) -> None:
        states = self.states(step.name, shard.node_type)
        done = int(self._rows[self._space.done()[: len(self._rows)]].sum())
        total = int(self._rows.sum())
        for first, made in self._made(step, shard):
            states.write(first, made.cpu().numpy())
            self._report(done + first - shard.first + len(made), total)
        states.flush()
        self._space.mark_done(unit)

    def _made(self, step: Step, shard: Shard) -> Iterator[tuple[int, Tensor]]:
        """Yield new states of a shard's nodes, a batch at a time."""
        size = self._wanted.batch_size
        if step.reads is None:
            for first in range(shard.first, shard.last, size):
                last = min(first + size, shard.last)
                here = Neighborhood(
                    None, None, last - first, {}, self._own(step, shard, first, last)
                )
                yield first, first_rows(step.run(here), None, last - first)
            return
        first = shard.first
        for batch in self._batches(step, shard):
            count = batch[shard.node_type].batch_size if shard.node_type else batch.batch_size
            here, degrees = self._neighborhood(step, shard, batch, first, count)
            with nullcontext() if degrees is None else self._degrees.given(degrees):
                made = step.run(here)
            yield first, first_rows(made, shard.node_type or None, count)
            first += count

    def _batches(self, step: Step, shard: Shard) -> Iterator[Any]:
        """Yield batches with all neighbours; the next loader takes the workers of the last one."""
        attributes = self._wanted.attributes.values()
        spec = NeighborSpec(
            num_neighbors=(-1,) * step.hops,
            node_attributes=(X,) if step.reads == X and step.name != DEGREES else (),
            edge_attributes=tuple(attributes),
        )
        ids = np.arange(shard.first, shard.last)
        inputs = node_inputs(self._source, (shard.node_type, ids) if shard.node_type else ids)
        options = {
            "batch_size": self._wanted.batch_size,
            "num_workers": self._wanted.num_workers,
            "rank": 0,
            "world_size": 1,
            "seed": 0,
        }
        settled = options_of(options, "embed", self._source.hub)
        loader = NodesLoader(self._source, spec, inputs, settled)
        with ExitStack() as stack:
            before, self._loader = self._loader, loader
            if before is not None:
                stack.callback(before.close)
            yield from loader

    def _neighborhood(
        self, step: Step, shard: Shard, batch: Any, first: int, count: int
    ) -> tuple[Neighborhood, Tensor | None]:
        device, typed = self._wanted.device, self._source.is_hetero
        own = self._own(step, shard, first, first + count)
        more: dict[str, Any] = {
            "n_id": self._by_type(batch, lambda store, _: store.n_id.to(device))
        }
        for word in ("edge_weight", "edge_attr"):
            more[word] = self._edges(batch, self._wanted.attributes.get(word))
        x = self._by_type(batch, lambda store, kind: self._x(step, store, kind))
        edges = batch.edge_index_dict if typed else batch.edge_index
        edges = _moved(edges, device)
        degrees = None
        if self._degrees.convs and step.name != DEGREES:
            rows = self.states(DEGREES, NODE).rows()[batch.n_id.numpy()]
            degrees = torch.from_numpy(rows).to(device)
        return Neighborhood(x, edges, count, more, own), degrees

    def _x(self, step: Step, store: Any, node_type: str) -> Tensor | None:
        """Return the states that a step reads, of the nodes of a type; None if there are none."""
        if step.name == DEGREES:
            return None
        device = self._wanted.device
        if step.reads == X:
            found: Tensor | None = store.get("x")
            return None if found is None else found.to(device)
        assert step.reads is not None
        states = self.states(step.reads, node_type)
        if not states.path.exists():  # no later step needs this type
            return None
        return torch.from_numpy(states.rows()[store.n_id.numpy()]).to(device)

    def _own(self, step: Step, shard: Shard, first: int, last: int) -> dict[str, Tensor]:
        found = {}
        for name in step.own:
            rows = self.states(name, shard.node_type).rows()[first:last]
            found[name] = torch.from_numpy(np.array(rows)).to(self._wanted.device)
        return found

    def _by_type(self, batch: Any, read: Callable[[Any, str], Tensor | None]) -> Rows:
        if not self._source.is_hetero:
            return read(batch, NODE)
        found = {name: read(batch[name], name) for name in batch.node_types}
        return {name: rows for name, rows in found.items() if rows is not None}

    def _edges(self, batch: Any, name: str | None) -> Any:
        """Return an attribute of a batch's edges, where layers are given it."""
        if name is None:
            return None
        if not self._source.is_hetero:
            return batch[name].to(self._wanted.device)
        there = {kind: batch[kind].get(name) for kind in batch.edge_types}
        return {
            kind: rows.to(self._wanted.device) for kind, rows in there.items() if rows is not None
        }

    def _release(self, number: int) -> None:
        """Remove states that no later step needs."""
        later = self._steps[number + 1 :]
        needed = {
            DEGREES,
            *(each.reads for each in later),
            *(name for s in later for name in s.own),
        }
        for (name, _), states in self._states.items():
            made = [at for at, step in enumerate(self._steps) if step.name == name]
            if name not in needed and made[0] < number:
                states.remove()


def _moved(edges: Any, device: torch.device) -> Any:
    if isinstance(edges, Tensor):
        return edges.to(device)
    return {kind: each.to(device) for kind, each in edges.items()}
