"""Subgraphs as PyG makes them from the same sample, and from the same edges."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from penstock.sampling.names import qualified
from penstock.sampling.spec import NeighborSpec, SubgraphSpec
from penstock.sampling.subgraph import SubgraphSampler
from tests.sampling.graphs import Array, web
from tests.sampling.subgraphs import request_of
from tests.sampling.test_induced import pairs, sampled, two_ways, whole_sampler_of

torch = pytest.importorskip("torch")
sampler = pytest.importorskip("torch_geometric.sampler")
utils = pytest.importorskip("torch_geometric.utils")
_coalesce = pytest.importorskip("torch_geometric.utils._coalesce")

BIDIRECTIONAL = NeighborSpec(num_neighbors=(4, 3), subgraph_type="bidirectional")


def tensors(arrays: dict[Any, Array]) -> dict[Any, Any]:
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


@pytest.mark.parametrize("num_hops", [0, 1, 2])
@pytest.mark.parametrize("seeds", [[7], [3, 150, 3]])
def test_a_subgraph_is_pygs_k_hop_subgraph(seeds: list[int], num_hops: int) -> None:
    graph = web(200, 400)
    cut = SubgraphSampler(graph, SubgraphSpec(num_hops=num_hops)).cut(request_of(seeds))
    subset, _, mapping, mask = utils.k_hop_subgraph(
        torch.tensor(seeds), num_hops, torch.from_numpy(graph.edge_index()), num_nodes=200
    )
    nodes = cut.arrays["n_id"]
    assert sorted(set(nodes.tolist())) == subset.tolist()  # a seed given twice stands there twice
    assert nodes[cut.arrays["mapping"]].tolist() == subset[mapping].tolist()
    assert sorted(cut.arrays["e_id"].tolist()) == mask.nonzero().flatten().tolist()


def test_a_homogeneous_batch_is_pygs() -> None:
    graph, request = web(), request_of([7, 100, 3])
    cut, sample = (
        whole_sampler_of(graph, BIDIRECTIONAL).cut(request),
        sampled(graph, BIDIRECTIONAL, request),
    )
    out = sampler.SamplerOutput(
        node=torch.from_numpy(sample.nodes[0]),
        row=torch.from_numpy(sample.rows[0]),
        col=torch.from_numpy(sample.cols[0]),
        edge=torch.from_numpy((sample.edge_ids or [])[0]),
    )
    with pytest.MonkeyPatch.context() as patch:  # as pyg-lib sorts; torch need not keep the order
        patch.setattr(_coalesce, "index_sort", lambda ids, max_value: ids.sort(stable=True))
        out = out.to_bidirectional()
    np.testing.assert_array_equal(cut.arrays["edge_index"], [out.row.numpy(), out.col.numpy()])
    np.testing.assert_array_equal(cut.arrays["e_id"], out.edge.numpy())


def test_a_heterogeneous_batch_is_pygs() -> None:
    graph, request = two_ways(), request_of([4, 5, 30], "paper")
    cut, sample = (
        whole_sampler_of(graph, BIDIRECTIONAL).cut(request),
        sampled(graph, BIDIRECTIONAL, request),
    )
    out = sampler.HeteroSamplerOutput(
        node=tensors(dict(zip(graph.node_types, sample.nodes, strict=True))),
        row=tensors(dict(zip(graph.edge_types, sample.rows, strict=True))),
        col=tensors(dict(zip(graph.edge_types, sample.cols, strict=True))),
        edge=tensors(dict(zip(graph.edge_types, sample.edge_ids or [], strict=True))),
    ).to_bidirectional()
    for kind in graph.edge_types:
        theirs = np.stack([out.row[kind].numpy(), out.col[kind].numpy()])
        assert pairs(cut.arrays[qualified(kind, "edge_index")]) == pairs(theirs)
        assert (out.edge[kind] is None) == (qualified(kind, "e_id") not in cut.arrays)
