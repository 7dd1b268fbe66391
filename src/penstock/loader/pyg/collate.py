"""Convert a batch as a rank gets it to PyG's: tensors over the same memory, each on its store.

Only what has to be is copied: edges that were given as int32, attributes that a graph cannot hold,
attributes on another device. Tensors keep the memory of the batch, as its arrays do: a slot goes
back when the last of them is gone, and until then the user may keep and change it.

Names are those of PyG's loaders. Where they would set None, the attribute is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any, Final, Protocol, TypeAlias

import torch
from torch import Tensor
from torch_geometric.sampler import HeteroSamplerOutput, SamplerOutput

from penstock.client.channel.batch import Batch
from penstock.graph import EdgeType
from penstock.graph.codec import Codec
from penstock.graph.features import FeatureSource
from penstock.graph.schema import EDGE, NODE
from penstock.loader.device.decoding import decoded, is_coded
from penstock.loader.pyg.template import Row, Stores, is_of_nodes
from penstock.loader.pyg.tensors import tensor_over
from penstock.loader.source.inputs import Inputs, LinkInputs, NodeInputs
from penstock.loader.source.sources import DataSource
from penstock.sampling.kinds import direction_of, kind_of
from penstock.sampling.names import Owner, parsed, parsed_type
from penstock.sampling.spec import LinkSpec, Spec

# The owner of an attribute and its name; in a homogeneous batch the owner is empty.
Place: TypeAlias = tuple[Owner, str]
Hops: TypeAlias = Mapping[Any, list[int]]


class Deferral(Protocol):
    """Has rows put into a batch, or decoded, when it is moved to a device."""

    def later(self, column: tuple[str, str], ids: Tensor) -> Tensor | None:
        """Return what stands for an attribute of some nodes until then; None if that is not put in.

        Args:
            column: The node type, and the attribute's name.
            ids: The nodes.
        """

    def decoded(self, stored: Tensor, codec: Codec) -> Tensor:
        """Return rows as they are read, or what stands for them until then."""


class InputWords(Enum):
    """Which kind of inputs a batch describes, with PyG's names for their attributes."""

    NODES = "nodes"
    LINKS = "links"
    TRIPLETS = "triplets"


@dataclass(slots=True, eq=False)
class CollatedParts:
    """A batch by type: node ids, edge ends, edge ids (None: unknown), trees, numbers per hop.

    `said` has everything else, by its place; a value of None does not belong in a batch.
    `deferral` says which rows are put in, or decoded, when the batch is moved.
    """

    nodes: dict[str, Tensor] = field(default_factory=dict)
    ends: dict[EdgeType, Tensor] = field(default_factory=dict)
    edges: dict[EdgeType, Tensor | None] = field(default_factory=dict)
    trees: dict[str, Tensor] | None = None
    node_hops: Hops | None = None
    edge_hops: Hops | None = None
    said: dict[Place, Any] = field(default_factory=dict)
    deferral: Deferral | None = None


@dataclass(frozen=True)
class Wording:
    """Where a kind of batch has the attributes of its inputs, which have type `of`."""

    kind: InputWords
    of: Owner

    # Asked for with every batch, and always the same.
    @cached_property
    def places(self) -> dict[Place, None]:
        """All places of `metadata`."""
        return dict.fromkeys(place for places in self.metadata for place in places)

    @cached_property
    def metadata(self) -> list[tuple[Place, ...]]:
        """The places of what PyG's samplers pass on as `metadata`, in that order."""
        of = self.of
        source, destination = (of[0], of[-1]) if any(of) else (NODE, NODE)
        match self.kind:
            case InputWords.NODES:
                return [((of, "input_id"),), ((of, "seed_time"),)]
            case InputWords.LINKS:
                names = ("input_id", "edge_label_index", "edge_label", "edge_label_time")
                return [((of, name),) for name in names]
            case InputWords.TRIPLETS:
                return [
                    ((of, "input_id"),),
                    ((source, "src_index"),),
                    ((destination, "dst_pos_index"),),
                    ((destination, "dst_neg_index"),),
                    ((source, "seed_time"), (destination, "seed_time")),
                ]

    def complete(self, said: dict[Place, Any]) -> dict[Place, Any]:
        """Add None for every missing place, so that no other attribute is taken for it."""
        said = self.places | said
        if self.kind is InputWords.NODES and said[self.of, "input_id"] is not None:
            said[self.of, "batch_size"] = len(said[self.of, "input_id"])
        if self.kind is InputWords.TRIPLETS:
            said |= {(self.of, "edge_label_index"): None, (self.of, "edge_label_time"): None}
        return said


def output_of(parts: CollatedParts, wording: Wording, *, is_hetero: bool) -> Any:
    """Return the batch as the output of one of PyG's samplers."""
    said = wording.complete(parts.said)
    metadata = tuple(said[places[0]] for places in wording.metadata)
    if is_hetero:
        return HeteroSamplerOutput(
            node=dict(parts.nodes),
            row={kind: ends[0] for kind, ends in parts.ends.items()},
            col={kind: ends[1] for kind, ends in parts.ends.items()},
            edge=dict(parts.edges),
            batch=parts.trees,
            num_sampled_nodes=parts.node_hops,
            num_sampled_edges=parts.edge_hops,
            metadata=metadata,
        )
    return SamplerOutput(
        node=parts.nodes[NODE],
        row=parts.ends[EDGE][0],
        col=parts.ends[EDGE][1],
        edge=parts.edges.get(EDGE),
        batch=None if parts.trees is None else parts.trees[NODE],
        num_sampled_nodes=None if parts.node_hops is None else parts.node_hops[NODE],
        num_sampled_edges=None if parts.edge_hops is None else parts.edge_hops[EDGE],
        metadata=metadata,
    )


def parts_of(out: Any, wording: Wording) -> CollatedParts:
    """Return the parts of a sampler's output, which a user may have changed."""
    if isinstance(out, HeteroSamplerOutput):
        parts = CollatedParts(
            dict(out.node),
            {kind: torch.stack([out.row[kind], out.col[kind]]) for kind in out.row},
            dict(out.edge or {}),
            out.batch,
            out.num_sampled_nodes,
            out.num_sampled_edges,
        )
    elif isinstance(out, SamplerOutput):
        parts = CollatedParts(
            {NODE: out.node},
            {EDGE: torch.stack([out.row, out.col])},
            {EDGE: out.edge},
            None if out.batch is None else {NODE: out.batch},
            None if out.num_sampled_nodes is None else {NODE: out.num_sampled_nodes},
            None if out.num_sampled_edges is None else {EDGE: out.num_sampled_edges},
        )
    else:
        raise TypeError(f"found invalid type: '{type(out)}'; expected what a sampler puts out")
    for places, value in zip(wording.metadata, out.metadata, strict=True):
        parts.said |= dict.fromkeys(places, value)
    return parts


@dataclass(frozen=True, slots=True, eq=False)
class _Roles:
    """What the arrays of a batch are: each with its type, or place, and its name in the batch.

    The edge ids of an edge type may be unknown: then their name is None.
    """

    nodes: list[tuple[str, str]] = field(default_factory=list)
    ends: list[tuple[EdgeType, str]] = field(default_factory=list)
    edges: list[tuple[EdgeType, str | None]] = field(default_factory=list)
    trees: list[tuple[str, str]] = field(default_factory=list)
    said: list[tuple[Place, str]] = field(default_factory=list)
    others: list[tuple[Place, str]] = field(default_factory=list)


# The edges of an edge type that was not sampled.
_NOWHERE: Final = torch.empty((2, 0), dtype=torch.int64)


class Collate:
    """Makes `Data` or `HeteroData` of one loader's batches. Stateless; any thread may use it."""

    def __init__(self, source: DataSource, spec: Spec, inputs: Inputs) -> None:
        self._graph = source.graph
        self._template = source.template
        self._inputs = inputs
        self._wording = _wording_of(spec, inputs)
        self._is_disjoint = kind_of(spec).is_disjoint(spec)
        # Along out-edges a sampler puts the node it found above the node it came from.
        self._is_reversed = direction_of(spec) == "out"
        # As in PyG, nodes of 32-bit edges have 32-bit ids.
        self._is_narrow = {ends.dtype for ends in source.template.ends.values()} == {torch.int32}
        self._roles: dict[tuple[str, ...], _Roles] = {}
        self._sources: dict[Place, FeatureSource] = {}
        self._codecs: dict[Place, Codec] = {
            (each.key.type if any(each.key.type) else NODE, each.key.name): each.codec
            for each in source.graph.schema.codecs
        }

    def data(
        self, batch: Batch, inputs: Inputs | None = None, deferral: Deferral | None = None
    ) -> Any:
        """Return the batch as PyG's loaders give it.

        Args:
            batch: the batch.
            inputs: the inputs it was sampled from, if not all of the loader's (`inputs.at`).
            deferral: says which rows are put in, or decoded, when the batch is moved.
        """
        taken, rows = self._apart(batch, inputs or self._inputs)
        taken.deferral = deferral
        return self._filled(taken, rows)

    def sampler_output(self, batch: Batch, inputs: Inputs | None = None) -> Any:
        """Return the batch as the output of one of PyG's samplers, without features."""
        parts, _ = self._apart(batch, inputs or self._inputs)
        return output_of(parts, self._wording, is_hetero=self._graph.is_hetero)

    def join(self, out: Any) -> Any:
        """Join the features to a sampler's output: PyG's `filter_fn`, before any transform."""
        parts = parts_of(out, self._wording)
        self._reach_all(parts)
        return self._filled(parts, {})

    # --- taking a batch apart ------------------------------------------------------------------

    def _apart(self, batch: Batch, inputs: Inputs) -> tuple[CollatedParts, dict[Place, Tensor]]:
        """Split a batch into what was sampled, and all other arrays, such as rows of attributes."""
        names, dtypes = tuple(batch.arrays), batch.dtypes
        roles = self._roles.get(names)
        if roles is None:
            roles = self._roles[names] = self._roles_of(names)
        tensors = {
            name: tensor_over(array, dtypes.get(name)) for name, array in batch.arrays.items()
        }
        parts = CollatedParts(
            {kind: tensors[name] for kind, name in roles.nodes},
            {kind: tensors[name] for kind, name in roles.ends},
            {kind: None if name is None else tensors[name] for kind, name in roles.edges},
            {kind: tensors[name] for kind, name in roles.trees} or None,
            self._hops(batch, "nodes"),
            self._hops(batch, "edges"),
            {place: tensors[name] for place, name in roles.said},
        )
        if self._is_reversed:
            self._turn(parts.ends)
        if self._is_narrow:
            _narrow(parts)
        self._translate(parts.said, inputs)
        return parts, {place: tensors[name] for place, name in roles.others}

    def _roles_of(self, names: Iterable[str]) -> _Roles:
        """Return which array is what; all batches of a loader have the same arrays, or nearly."""
        roles, ids = _Roles(), dict[EdgeType, str]()
        for name in names:
            owner, attribute = place = parsed(name)
            match attribute:
                case "n_id":
                    roles.nodes.append((_node_type(owner), name))
                case "edge_index":
                    roles.ends.append((_edge_type(owner), name))
                case "e_id":
                    ids[_edge_type(owner)] = name
                case "batch" if self._is_disjoint:
                    roles.trees.append((_node_type(owner), name))
                case _ if place in self._wording.places:
                    roles.said.append((place, name))
                case _:
                    roles.others.append((place, name))
        ids_or_none = ids | {kind: ids.get(kind) for kind, _ in roles.ends}
        roles.edges.extend(ids_or_none.items())
        return roles

    def _hops(self, batch: Batch, of: str) -> dict[Any, list[int]] | None:
        counts = batch.facts.get(f"num_sampled_{of}")
        if counts is None:
            return None
        if not self._graph.is_hetero:
            return {NODE if of == "nodes" else EDGE: list(counts)}
        return {parsed_type(name): list(hops) for name, hops in counts.items()}

    def _turn(self, ends: dict[EdgeType, Tensor]) -> None:
        """Put sources above destinations again, as in the graph; edges of other types stay."""
        for kind in self._graph.edge_types:
            if kind in ends:
                ends[kind] = ends[kind].flip(0)

    def _translate(self, said: dict[Place, Any], inputs: Inputs) -> None:
        """Convert what a worker reports to the user's terms: positions to ids, and dtypes."""
        for place, value in said.items():
            match place[1]:
                case "input_id" if inputs.input_id is not None:
                    said[place] = inputs.input_id[value]
                case "seed_time" | "edge_label_time":
                    said[place] = value.to(inputs.time_dtype)
                case "edge_label" if isinstance(inputs, LinkInputs):
                    said[place] = value.to(_label_dtype(inputs, value))

    def _reach_all(self, parts: CollatedParts) -> None:
        """Add empty entries for types that the sampler does not mention: they were not reached."""
        if self._graph.is_hetero:
            nowhere = _NOWHERE.int() if self._is_narrow else _NOWHERE
            for name in self._graph.node_types:
                parts.nodes.setdefault(name, nowhere[0])
            for kind in self._graph.edge_types:
                if kind not in parts.ends:
                    parts.ends[kind], parts.edges[kind] = nowhere, _NOWHERE[0]

    # --- putting it together -------------------------------------------------------------------

    def _filled(self, parts: CollatedParts, others: dict[Place, Tensor]) -> Any:
        template = self._template
        data = template.blank()
        stores = Stores(data)
        for kind, given in template.ends.items():
            nodes = len(parts.nodes.get(kind[0], ())), len(parts.nodes.get(kind[2], ()))
            given.put(stores[kind], parts.ends.get(kind), parts.edges.get(kind), nodes)
        for name in template.counted:
            stores[name]["num_nodes"] = len(parts.nodes.get(name, ()))
        for row in template.rows:
            stores[row.owner][row.name] = self._row(row, parts, others)
        for (owner, name), tensor in others.items():
            stores[owner][name] = tensor
        self._say(stores, parts)
        template.complete(data, parts.nodes)
        return data

    def _say(self, stores: Stores, parts: CollatedParts) -> None:
        """Set what was sampled and the facts about it. A user's own `n_id` and `e_id` are kept."""
        for name, nodes in parts.nodes.items():
            if "n_id" not in (store := stores[name]):
                store["n_id"] = nodes
        for kind, edges in parts.edges.items():
            if edges is not None and "e_id" not in (store := stores[kind]):
                store["e_id"] = edges if edges.dtype == torch.int64 else edges.to(torch.int64)
        self._set_all(stores, "batch", parts.trees, NODE)
        self._set_all(stores, "num_sampled_nodes", parts.node_hops, NODE)
        self._set_all(stores, "num_sampled_edges", parts.edge_hops, EDGE)
        for (owner, name), value in self._wording.complete(parts.said).items():
            stores[owner][name] = value

    def _set_all(self, stores: Stores, name: str, values: Any, only: Owner) -> None:
        """Set an attribute for every type that has it; in a homogeneous batch at least to None."""
        if values is None:
            values = {} if self._graph.is_hetero else {only: None}
        for owner, value in values.items():
            stores[owner][name] = value

    def _row(self, row: Row, parts: CollatedParts, others: dict[Place, Tensor]) -> Any:
        """Return the rows of an attribute: as workers gathered them, or later, or gathered here."""
        place = (row.owner if any(row.owner) else NODE, row.name)
        value = others.pop(place, None)
        if value is not None:
            value = self._read(place, value, parts.deferral)
        elif parts.deferral is not None and is_of_nodes(row):
            owner = _node_type(row.owner)
            ids = parts.nodes.get(owner)
            value = None if ids is None else parts.deferral.later((owner, row.name), ids)
        if value is None:
            value = self._cut(row, parts)
        if row.device is not None and value is not None:
            value = value.to(row.device)
        return value

    def _read(self, place: Place, rows: Tensor, deferral: Deferral | None) -> Tensor:
        """Return rows as they are read: workers leave them as they are stored."""
        codec = self._codecs.get(place)
        if codec is None or not is_coded(rows, codec):
            return rows
        return decoded(rows, codec) if deferral is None else deferral.decoded(rows, codec)

    def _cut(self, row: Row, parts: CollatedParts) -> Any:
        owner = row.owner
        ids = parts.edges.get(owner) if isinstance(owner, tuple) else parts.nodes.get(owner)
        if ids is None:
            return None
        if row.value is not None:
            return row.cut(ids)
        source = self._source(row)
        return tensor_over(source.gather(ids.to(torch.int64).numpy()), source.dtype)

    def _source(self, row: Row) -> FeatureSource:
        owner, name = place = row.owner, row.name
        if place not in self._sources:
            self._sources[place] = (
                self._graph.edge_features(name, owner)
                if isinstance(owner, tuple)
                else self._graph.node_features(name, owner)
            )
        return self._sources[place]


def _narrow(parts: CollatedParts) -> None:
    """Make ids and positions of nodes 32-bit; edge ids stay as they are."""
    tables: list[dict[Any, Tensor]] = [parts.nodes, parts.ends, parts.trees or {}]
    for tensors in tables:
        tensors.update({kind: tensor.to(torch.int32) for kind, tensor in tensors.items()})


def _wording_of(spec: Spec, inputs: Inputs) -> Wording:
    if isinstance(inputs, NodeInputs):
        return Wording(InputWords.NODES, inputs.node_type or NODE)
    triplets = isinstance(spec, LinkSpec) and spec.negatives == "triplet"
    return Wording(InputWords.TRIPLETS if triplets else InputWords.LINKS, inputs.edge_type or NODE)


def _label_dtype(inputs: LinkInputs, value: Tensor) -> torch.dtype:
    return torch.bfloat16 if inputs.label_dtype == torch.bfloat16 else value.dtype


def _node_type(owner: Owner) -> str:
    return owner if isinstance(owner, str) else owner[0]


def _edge_type(owner: Owner) -> Any:
    return EDGE if owner == NODE else owner
