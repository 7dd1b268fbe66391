"""`CustomLoader`: batches of a sampler that the user wrote."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, Unpack

import msgspec
from torch import Tensor

from penstock.client.hub.hub import Hub
from penstock.client.naming import Where, spec_of
from penstock.errors import SamplingError
from penstock.loader.pyg.base import Loader
from penstock.loader.pyg.collate import Collate, CollatedParts, Place
from penstock.loader.pyg.help import shows_options
from penstock.loader.pyg.options import options_of
from penstock.loader.pyg.template import Row, store_of
from penstock.loader.pyg.typed import (
    Batches,
    Column,
    DataT,
    InputEdges,
    InputNodes,
    MadeT,
    Transform,
)
from penstock.loader.source.inputs import Inputs, link_inputs, node_inputs, with_columns
from penstock.loader.source.sources import DataSource, source_of
from penstock.option_types import LoaderKeywords
from penstock.sampling.columns import check_names
from penstock.sampling.custom import DECLARATIONS, Sampler, called, declared, find
from penstock.sampling.kinds import check
from penstock.sampling.spec import BuiltInSpec, CustomSpec

_ATTRIBUTES: Final = DECLARATIONS[2:]


@shows_options
class CustomLoader(Batches[DataT, MadeT], Loader):  # type: ignore[misc]
    """Read the batches of a sampler of your own, as those of any other loader.

    Batches are `Data` or `HeteroData`, as `data` is: `n_id`, `edge_index` and `e_id` that the
    sampler returns have their usual meaning, the features of these nodes and edges are joined, and
    its other arrays become attributes. What a sampler must and must not do:
    docs/guides/custom-samplers.md.

    Beside these arguments it takes the options of every loader, such as `batch_size`, `num_workers`
    and `seed` (`penstock.option_types.LoaderKeywords`, docs/options.md).

    Args:
        data: What to sample: `Data`, `HeteroData`, `(FeatureStore, GraphStore)`, a `Graph`, a hub
            or a server (what `penstock.connect` returns), its address, or a saved graph's path. A
            server runs samplers that it was started with, by their names.
        custom_sampler: The sampler: its class, also one of a notebook; its name, "module:Class" or
            "/path/to/file.py:Class"; or an instance whose attributes are numbers, text, lists,
            mappings and arrays: it is made again in each worker, with these attributes and the
            graph as `graph`.
        input_nodes: The nodes to start from, as for `NeighborLoader`, if its `input_kind` is not
            "link".
        edge_label_index: The edges to start from, as for `LinkNeighborLoader`, if it is.
        options: The arguments of the sampler's constructor, beside the graph. Arrays and tensors
            are put into shared memory, and come to it as read-only NumPy arrays.
        columns: A row for each input, by name: those that the sampler declares.
        transform: Called with each batch in this process; what it returns is given instead.
        custom_cls: Called without arguments to make a batch, where `data` is no `Data` and no
            `HeteroData`.
        input_id: A number for each input, which comes with its batch; by default its position.

    Raises:
        ValueError: An argument is not valid; the error names it, the position and the value.
        TypeError: There is no such option.
        SamplingError: The sampler cannot be imported by its name.

    Examples:
        >>> import numpy as np
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> import penstock as ps
        >>> class Star:
        ...     def __init__(self, graph, scores):
        ...         self.rows, self.scores = graph.csc(), scores
        ...     def sample(self, seeds, *, seed, epoch, index):
        ...         return {"n_id": seeds, "score": self.scores[seeds]}
        >>> data = Data(x=torch.arange(4.0), edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]))
        >>> scores = torch.tensor([0.5, 0.1, 0.4, 0.2])
        >>> with ps.CustomLoader(data, Star, options={"scores": scores}, batch_size=3) as loader:
        ...     batch = next(iter(loader))
        >>> batch.x, batch.score, batch.batch_size
        (tensor([0., 1., 2.]), tensor([0.5000, 0.1000, 0.4000]), 3)
    """

    def __init__(
        self,
        data: DataT,
        custom_sampler: str | type[Any] | Sampler | CustomSpec,
        input_nodes: InputNodes = None,
        edge_label_index: InputEdges = None,
        options: Mapping[str, Any] | None = None,
        columns: Mapping[str, Any] | None = None,
        transform: Transform[MadeT] | None = None,
        custom_cls: Callable[[], Any] | None = None,
        input_id: Column = None,
        **loading: Unpack[LoaderKeywords],
    ) -> None:
        self.data, self.custom_sampler, self.input_nodes = data, custom_sampler, input_nodes
        self.edge_label_index, self.options, self.columns = edge_label_index, options, columns
        self.transform, self.custom_cls, self.input_id = transform, custom_cls, input_id
        source = source_of(data, custom_cls, part_only=loading.get("part_only", False))
        wanted = options_of({**loading}, type(self).__name__, source.hub)
        where = Where.HERE if wanted.is_inline else _where(source)
        kind = "node" if edge_label_index is None else "link"
        spec = _spec(custom_sampler, options, where, kind, tuple(columns or ()))
        check(spec, source.graph)
        inputs = self._inputs_for(source, spec)
        collate = CustomCollate(source, spec, inputs)
        Loader.__init__(self, source, spec, inputs, wanted, collate)

    def _inputs_for(self, source: DataSource, spec: CustomSpec) -> Inputs:
        are_links = spec.input_kind == "link"
        wrong = "input_nodes" if are_links else "edge_label_index"
        if getattr(self, wrong) is not None:
            right = "edge_label_index" if are_links else "input_nodes"
            raise ValueError(
                f"{wrong} is given, but the input_kind of {spec.sampler} is {spec.input_kind!r}: "
                f"give {right}"
            )
        columns = self.columns or {}
        check_names("columns", columns, spec.columns)
        for name in spec.columns:
            if name not in columns:
                raise ValueError(f"columns has no {name!r}, which {spec.sampler} reads")
        inputs: Inputs
        if are_links:
            inputs = link_inputs(source, self.edge_label_index, input_id=self.input_id)
        else:
            inputs = node_inputs(source, self.input_nodes, input_id=self.input_id)
        return with_columns(inputs, columns)


class CustomCollate(Collate):
    """Makes batches of what a user's sampler returns, which may lack nodes, edges or types.

    If the sampler says which attributes it wants, batches have no others.
    """

    def __init__(self, source: DataSource, spec: CustomSpec, inputs: Inputs) -> None:
        wanted = {True: spec.edge_attributes, False: spec.node_attributes}
        taken: dict[bool, list[Row]] = {True: [], False: []}
        for row in source.template.rows:
            names = wanted[row.of_edges]
            taken[names is None or row.name in names].append(row)
        template = replace(source.template, rows=tuple(taken[True]))
        super().__init__(replace(source, template=template), spec, inputs)
        self._unwanted = [(row.owner, row.name) for row in taken[False]]

    def _filled(self, parts: CollatedParts, others: dict[Place, Tensor]) -> Any:
        if any(name in parts.nodes for name in self._graph.node_types):
            self._reach_all(parts)
        data = super()._filled(parts, others)
        for owner, name in self._unwanted:
            store_of(data, owner)[name] = None
        for name in self._graph.node_types:
            if name not in parts.nodes:  # how many there are is not known
                store_of(data, name)["num_nodes"] = None
        return data


def _where(source: DataSource) -> Where:
    return Where.WORKERS if source.hub is None or isinstance(source.hub, Hub) else Where.SERVER


def _spec(
    sampler: Any,
    options: Mapping[str, Any] | None,
    where: Where,
    input_kind: str,
    columns: tuple[str, ...],
) -> CustomSpec:
    """Return the spec of a sampler with its options; all attributes come, unless it says which."""
    if isinstance(sampler, CustomSpec):
        if options is not None:
            sampler = msgspec.structs.replace(sampler, options={**sampler.options, **options})
        return _checked(spec_of(sampler, where))
    if isinstance(sampler, str):
        says = _declared_by(sampler, where)
        if says is None:  # only the server has it, which checks this
            says = {"input_kind": input_kind, "columns": columns}
        sampler = CustomSpec(sampler=sampler, options={**(options or {})}, **says)
        options = None
    elif isinstance(sampler, type):
        says = declared(sampler)
    elif not isinstance(sampler, BuiltInSpec) and not hasattr(sampler, "sample"):
        raise ValueError(
            f"custom_sampler is {sampler!r}; expected the class of a sampler, its name "
            "('module:Class'), or an instance"
        )
    else:
        says = declared(type(sampler))
    spec = _checked(spec_of(sampler, where, options))
    every = {name: None for name in _ATTRIBUTES if name not in says}
    return msgspec.structs.replace(spec, **every)


def _checked(spec: Any) -> CustomSpec:
    if not isinstance(spec, CustomSpec):
        raise ValueError(
            f"custom_sampler is a {type(spec).__name__}, which is built in; expected the class of "
            "a sampler, its name, or an instance"
        )
    return spec


def _declared_by(name: str, where: Where) -> dict[str, Any] | None:
    """Return what the class of this name declares; None if only a server has it."""
    try:
        return declared(called(f"importing {name}", lambda: find(name)))
    except SamplingError:
        if where is Where.SERVER:
            return None
        raise
