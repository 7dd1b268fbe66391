"""Batches as a loader makes them, without one: sources, inputs, specs and assembly together."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from penstock.client.backend import SharedDistSamplingBackend

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # they warn of themselves while being imported
    torch = pytest.importorskip("torch")
    pyg = pytest.importorskip("torch_geometric")
    from torch_geometric.testing import MyFeatureStore, MyGraphStore  # noqa: F401 - for tests

    from penstock.loader.pyg.collate import Collate
    from penstock.loader.pyg.specs import link_spec, neighbor_spec
    from penstock.loader.source.inputs import Inputs, link_inputs, node_inputs
    from penstock.loader.source.sources import DataSource, source_of

# Threads that torch has started stay, and would pass for leaks.
torch.set_num_threads(1)

Data, HeteroData = pyg.data.Data, pyg.data.HeteroData

_OF_NODES = ("input_nodes", "input_time", "input_id")
_OF_LINKS = ("edge_label_index", "edge_label", "edge_label_time", "input_id")
_OF_NEGATIVES = ("neg_sampling", "neg_sampling_ratio")
_TERMS = ("batch_size", "shuffle", "seed", "drop_last")


def node_batches(data: Any, num_neighbors: Any, **options: Any) -> Iterator[Any]:
    """As `NeighborLoader` of these arguments would give them; workers: those of a hub."""
    workers, channel_options = options.pop("workers", 0), _taken(options, _TERMS)
    options.pop("is_sorted", None)  # which only tells what need not be sorted again
    given = _taken(options, _OF_NODES)
    source = source_of(data, time_attr=options.get("time_attr"))
    spec = neighbor_spec(source, num_neighbors, **options)
    inputs = node_inputs(source, **given, time_attr=options.get("time_attr"))
    return batches(source, spec, inputs, workers, **channel_options)


def link_batches(data: Any, num_neighbors: Any, **options: Any) -> Iterator[Any]:
    """As `LinkNeighborLoader` of these arguments would give them."""
    workers, channel_options = options.pop("workers", 0), _taken(options, _TERMS)
    options.pop("is_sorted", None)  # which only tells what need not be sorted again
    given, negatives = _taken(options, _OF_LINKS), _taken(options, _OF_NEGATIVES)
    source = source_of(data, time_attr=options.get("time_attr"))
    spec = link_spec(source, neighbor_spec(source, num_neighbors, **options), **negatives)
    inputs = link_inputs(source, **given, **negatives, time_attr=options.get("time_attr"))
    return batches(source, spec, inputs, workers, **channel_options)


def batches(
    source: DataSource, spec: Any, inputs: Inputs, workers: int = 0, **channel_options: Any
) -> Iterator[Any]:
    """The batches of an epoch."""
    collate = Collate(source, spec, inputs)
    with reading(source, spec, inputs, workers, **channel_options) as backend:
        for batch in backend.batches("all"):
            yield collate.data(batch)


@contextmanager
def reading(
    source: DataSource, spec: Any, inputs: Inputs, workers: int = 0, **channel_options: Any
) -> Iterator[SharedDistSamplingBackend]:
    """A backend with these inputs as channel "all", whose epoch 0 is started."""
    with SharedDistSamplingBackend(source.graph, spec, num_workers=workers) as backend:
        backend.register_input(
            "all",
            inputs.sampler_input,
            columns=inputs.columns,
            tables=inputs.tables,
            **channel_options,
        )
        backend.start_new_epoch_sampling("all", 0)
        yield backend


def differences(theirs: Any, ours: Any) -> Iterator[str]:
    """Where one batch of PyG's differs from another: class, stores, names, dtypes, values."""
    if type(theirs) is not type(ours):
        yield f"{type(theirs)} there, {type(ours)} here"
    there, here = (_stores(data) for data in (theirs, ours))
    if set(there) != set(here):
        yield f"stores {sorted(map(str, there))} there, {sorted(map(str, here))} here"
    for key in set(there) & set(here):
        yield from (f"{key}: {found}" for found in _differing(there[key], here[key]))


def _stores(data: Any) -> dict[Any, Any]:
    if isinstance(data, Data):
        return {"": data.stores[0]}
    return {"": data.stores[0], **dict(data.node_items()), **dict(data.edge_items())}


def _differing(theirs: Any, ours: Any) -> Iterator[str]:
    names = set(theirs.keys())
    if names != set(ours.keys()):
        yield f"{sorted(names)} there, {sorted(ours.keys())} here"
    for name in names & set(ours.keys()):
        there, here = theirs[name], ours[name]
        if isinstance(there, torch.Tensor) and there.is_sparse:
            there, here = there.to_dense(), here.to_dense()
        if type(there) is not type(here):
            yield f"{name} is {type(there)} there, {type(here)} here"
        elif not isinstance(there, torch.Tensor):
            if there != here:
                yield f"{name} is {there} there, {here} here"
        elif (there.dtype, there.shape) != (here.dtype, here.shape):
            yield f"{name} is {there.dtype}{list(there.shape)}, {here.dtype}{list(here.shape)} here"
        elif not torch.equal(there, here):
            yield f"{name} is {there.tolist()} there, {here.tolist()} here"


def _taken(options: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: options.pop(name) for name in names if name in options}
