"""PyG's loaders over our kernels, in a process of their own: python -m tests.compat.pyg_side FILE

Writes the batches of all cases, named as ours are, as plain arrays.
"""

from __future__ import annotations

import pickle
import sys
import warnings
from typing import Any

import numpy as np

from penstock.compat import pyg_lib
from penstock.sampling.names import qualified
from tests.compat.cases import BATCH, CASES, LONE, PLANS, Case, Plan

pyg_lib.install(induced=True)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it warns of itself while being imported
    import torch
    from torch_geometric.data import Data, HeteroData
    from torch_geometric.loader import LinkNeighborLoader, NeighborLoader
    from torch_geometric.sampler import NegativeSampling


def data_of(plan: Plan) -> Any:
    if "" in plan.sizes:
        (nodes,), (edges,) = plan.node_attrs.values(), plan.edge_attrs.values()
        (ends,) = plan.edges.values()
        return Data(
            num_nodes=plan.sizes[""], edge_index=tensor(ends), **tensors(nodes), **tensors(edges)
        )
    data = HeteroData()
    for name, size in plan.sizes.items():
        data[name].num_nodes = size
        data[name].update(tensors(plan.node_attrs[name]))
    for kind, ends in plan.edges.items():
        data[kind].edge_index = tensor(ends)
        data[kind].update(tensors(plan.edge_attrs[kind]))
    return data


def tensor(values: Any) -> Any:
    return torch.from_numpy(np.array(values))


def tensors(arrays: dict[str, Any]) -> dict[str, Any]:
    return {name: tensor(array) for name, array in arrays.items()}


def loader_of(data: Any, case: Case) -> Any:
    inputs = None if case.inputs is None else tensor(case.inputs)
    times = None if case.times is None else tensor(case.times)
    options = {"batch_size": BATCH, **case.options}
    if case.is_hetero:
        inputs = (case.of, inputs)
    if not case.of_links:
        return NeighborLoader(
            data, list(case.num_neighbors), input_nodes=inputs, input_time=times, **options
        )
    return LinkNeighborLoader(
        data,
        list(case.num_neighbors),
        edge_label_index=inputs,
        edge_label=None if case.labels is None else tensor(case.labels),
        edge_label_time=times,
        neg_sampling=against(data, case),
        **options,
    )


def against(data: Any, case: Case) -> Any:
    if case.against is None:
        return None
    mode, amount, source, destination = case.against
    ends = (case.of[0], case.of[2]) if case.is_hetero else (None, None)
    sizes = [data.num_nodes if end is None else data[end].num_nodes for end in ends]
    weights = {
        name: torch.nn.functional.one_hot(torch.tensor(only), size).float()
        for name, only, size in zip(
            ("src_weight", "dst_weight"), (source, destination), sizes, strict=True
        )
        if only is not None
    }
    return NegativeSampling(mode, int(amount) if mode == "triplet" else amount, **weights)


def plain(batch: Any) -> dict[str, Any]:
    """By the names of ours; what is None is not there."""
    stores = (
        {"": batch.stores[0]}
        if isinstance(batch, Data)
        else {store._key: store for store in batch.stores if store._key is not None}
    )
    found = {}
    for owner, store in stores.items():
        for name, value in store.items():
            if value is not None:
                found[qualified(owner, name)] = (
                    value.numpy() if isinstance(value, torch.Tensor) else value
                )
    return found


def main(path: str) -> None:
    data = {name: data_of(plan()) for name, plan in PLANS.items()}
    torch.manual_seed(12)
    batches = {}
    for name, case in CASES.items():
        try:
            batches[name] = [plain(batch) for batch in loader_of(data[case.graph], case)]
        except Exception as error:
            raise RuntimeError(f"PyG cannot sample {name!r}") from error
    with open(path, "wb") as file:
        pickle.dump(batches, file)


if __name__ == "__main__":
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", LONE)
    main(sys.argv[1])
