"""Link batches beside those of PyG's own code: the same names on the same stores, shapes, types,
and the same numbers where nothing is random.

PyG's loaders need a sampler library; here they have one that samples nobody's neighbours.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from penstock.graph import EdgeType, Graph
from penstock.sampling.links import label_shift
from penstock.sampling.names import parsed
from tests.sampling.linking import EDGE, batch_of_links, request_of, spec_of

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # they warn of themselves while being imported
    torch = pytest.importorskip("torch")
    pyg = pytest.importorskip("torch_geometric")
    from torch_geometric.loader import LinkLoader
    from torch_geometric.sampler import BaseSampler, HeteroSamplerOutput, SamplerOutput
    from torch_geometric.sampler.neighbor_sampler import edge_sample

Data, HeteroData = pyg.data.Data, pyg.data.HeteroData
KIND: EdgeType = ("user", "likes", "item")
LOOPS: EdgeType = ("user", "knows", "user")
SIZES = {"user": 30, "item": 40}
NAMES = {"n_id", "e_id", "edge_index", "x", "num_nodes", "num_sampled_nodes", "num_sampled_edges"}


class SeedsOnly(BaseSampler):
    """The seeds are all that is sampled; links are PyG's."""

    def __init__(self, num_nodes: Any, disjoint: bool, node_time: Any) -> None:
        self.options = num_nodes, disjoint, node_time
        self.seeds: Any = None
        self.times: Any = None

    def sample_from_nodes(self, inputs: Any) -> Any:
        raise NotImplementedError

    def sample_from_edges(self, inputs: Any, neg_sampling: Any = None) -> Any:
        return edge_sample(inputs, self._sample, *self.options, neg_sampling)

    def _sample(self, seed: Any, time: Any = None) -> Any:
        self.seeds, self.times = seed, time
        nothing = torch.empty(0, dtype=torch.long)
        if isinstance(seed, dict):
            return self._typed(seed, nothing)
        batch = torch.arange(len(seed)) if self.options[1] else None
        return SamplerOutput(seed, nothing, nothing, nothing, batch, [len(seed)], [])

    def _typed(self, seed: dict[str, Any], nothing: Any) -> HeteroSamplerOutput:
        batch, begin = {}, 0
        for name, ids in seed.items():
            batch[name] = begin + torch.arange(len(ids))
            begin += len(ids)
        none = {KIND: nothing, LOOPS: nothing}
        return HeteroSamplerOutput(
            seed, none, dict(none), dict(none), batch if self.options[1] else None
        )


def data_of(kind: EdgeType) -> Any:
    if kind == EDGE:
        return Data(edge_index=edges_of(kind), num_nodes=30)
    data = HeteroData()
    for name, size in SIZES.items():
        data[name].num_nodes = size
    for other in (KIND, LOOPS):
        data[other].edge_index = edges_of(other)
    return data


def edges_of(kind: EdgeType) -> Any:
    rng = np.random.default_rng(1)
    high = [SIZES.get(kind[end], 30) for end in (0, 2)]
    return torch.from_numpy(rng.integers(0, high, (50, 2)).T.copy())


def graph_of(kind: EdgeType, *, timed: bool) -> Graph:
    edges: Any = {other: edges_of(other).numpy() for other in (KIND, LOOPS)}
    sizes: Any = SIZES
    times: Any = {name: np.zeros(size, int) for name, size in SIZES.items()}
    if kind == EDGE:
        edges, sizes, times = edges_of(kind).numpy(), 30, np.zeros(30, int)
    return Graph.from_coo(edges, sizes, node_time=times if timed else None)


def pygs(kind: EdgeType, options: dict[str, Any]) -> tuple[Any, SeedsOnly]:
    """The batch of the first edges, as PyG makes it, and the sampler that it came from."""
    num_nodes: Any = 30 if kind == EDGE else SIZES
    timed, disjoint = "time" in options, options["disjoint"] or "time" in options
    zeros: Any = None
    if timed:
        zeros = {name: torch.zeros(size, dtype=torch.long) for name, size in SIZES.items()}
        zeros = zeros["user"] if kind == EDGE else zeros
    sampler = SeedsOnly(num_nodes, disjoint, zeros)
    mode = options["negatives"]
    loader = LinkLoader(
        data_of(kind),
        sampler,
        edge_label_index=edges_of(kind) if kind == EDGE else (kind, edges_of(kind)),
        edge_label=options.get("label"),
        edge_label_time=options.get("time"),
        neg_sampling=None if mode == "none" else {"mode": mode, "amount": options["amount"]},
        batch_size=8,
    )
    return next(iter(loader)), sampler


def ours(kind: EdgeType, options: dict[str, Any]) -> dict[str, Any]:
    columns, tables = {}, {}
    if "time" in options:
        columns["time"] = options["time"].numpy()[:8]
    if "label" in options:
        columns["label"] = options["label"].numpy()[:8]
        tables["label_shift"] = np.array([label_shift(options["label"].numpy())])
    spec = spec_of(
        negatives=options["negatives"],
        amount=1 if options["negatives"] == "none" else options["amount"],
        disjoint=options["disjoint"],
        time_attr="time" if "time" in options else None,
    )
    edges = edges_of(kind).numpy()[:, :8]
    request = request_of(edges, kind, columns=columns, tables=tables)
    return batch_of_links(graph_of(kind, timed="time" in options), spec, request)[1]


def named(batch: Any, kind: EdgeType) -> dict[tuple[Any, str], Any]:
    """PyG's batch as arrays by store and name, but what is no affair of links."""
    if kind == EDGE:
        stores = [("", batch)]
    else:
        stores = [(store._key, store) for store in [*batch.node_stores, *batch.edge_stores]]
    return {
        (owner, name): value
        for owner, store in stores
        for name, value in store.to_dict().items()
        if isinstance(value, torch.Tensor) and name not in NAMES
    }


CASES: list[dict[str, Any]] = [
    {"negatives": "none", "amount": 1},
    {"negatives": "none", "amount": 1, "label": torch.arange(50)},
    {"negatives": "binary", "amount": 1},
    {"negatives": "binary", "amount": 0.3},
    {"negatives": "binary", "amount": 2.5, "label": torch.arange(50) % 4},
    {"negatives": "binary", "amount": 1, "label": torch.arange(50) + 1},
    {"negatives": "binary", "amount": 1, "label": torch.rand(50, 3)},
    {"negatives": "binary", "amount": 1, "label": torch.arange(50) % 2 == 0},
    {"negatives": "triplet", "amount": 1},
    {"negatives": "triplet", "amount": 3},
]
TIMED = [case | {"time": torch.arange(50) + 7} for case in CASES]
ALL = [
    *(case | {"disjoint": False} for case in CASES),
    *(case | {"disjoint": True} for case in CASES),
    *(case | {"disjoint": True} for case in TIMED),
]


def told(case: dict[str, Any]) -> str:
    flags = [name for name in ("disjoint", "time", "label") if case.get(name) is not None]
    return "-".join([case["negatives"], str(case["amount"]), *flags])


@pytest.mark.parametrize("kind", [EDGE, KIND, LOOPS], ids=["plain", "two-types", "one-type"])
@pytest.mark.parametrize("case", ALL, ids=told)
def test_a_batch_has_pygs_names_stores_shapes_and_types(
    kind: EdgeType, case: dict[str, Any]
) -> None:
    """CONTRACT 46."""
    batch, _ = pygs(kind, case)
    expected = named(batch, kind)
    found = {parsed(name): array for name, array in ours(kind, case).items()}
    found = {key: array for key, array in found.items() if key[1] not in NAMES | {"time"}}
    found = {key: array for key, array in found.items() if array.size or key in expected}
    assert set(found) == set(expected)
    for key, value in expected.items():
        if key[1] != "batch":  # as long as the list of nodes, which is ours to order
            assert found[key].shape == tuple(value.shape), key
        assert torch.from_numpy(np.ascontiguousarray(found[key])).dtype == value.dtype, key


@pytest.mark.parametrize("kind", [EDGE, KIND, LOOPS], ids=["plain", "two-types", "one-type"])
@pytest.mark.parametrize("case", ALL, ids=told)
def test_what_is_not_random_is_the_same_as_pygs(kind: EdgeType, case: dict[str, Any]) -> None:
    """CONTRACT 46: labels, times, and, disjoint, every place and every tree."""
    batch, _ = pygs(kind, case)
    found = {parsed(name): array for name, array in ours(kind, case).items()}
    same = {"edge_label", "edge_label_time", "seed_time"}
    if case["disjoint"]:
        same |= {"edge_label_index", "src_index", "dst_pos_index", "dst_neg_index"}
        # PyG's modulo tells trees rightly only where negatives are a multiple of the edges.
        same |= {"batch"} if case["amount"] % 1 == 0 else set()
    for key, value in named(batch, kind).items():
        if key[1] in same and value.numel():
            assert found[key].tolist() == value.tolist(), key


@pytest.mark.parametrize("kind", [EDGE, KIND, LOOPS], ids=["plain", "two-types", "one-type"])
@pytest.mark.parametrize("case", CASES, ids=told)
def test_edges_are_where_pyg_says_in_both(kind: EdgeType, case: dict[str, Any]) -> None:
    batch, sampler = pygs(kind, case | {"disjoint": False})
    theirs = {key: value.numpy() for key, value in named(batch, kind).items()}
    found = {parsed(name): array for name, array in ours(kind, case | {"disjoint": False}).items()}
    seeds = sampler.seeds if kind != EDGE else {"": sampler.seeds}
    for arrays, nodes in (
        (theirs, {name: ids.numpy() for name, ids in seeds.items()}),
        (found, {owner: array for (owner, name), array in found.items() if name == "n_id"}),
    ):
        ends = edges_of(kind).numpy()[:, :8]
        assert [row.tolist() for row in given_ends(kind, arrays, nodes)] == ends.tolist()


def given_ends(kind: EdgeType, arrays: dict[Any, Any], nodes: dict[Any, Any]) -> list[Any]:
    source, destination = nodes[kind[0]], nodes[kind[2]]
    owner = "" if kind == EDGE else kind
    if (owner, "edge_label_index") in arrays:
        index = arrays[owner, "edge_label_index"][:, :8]
        return [source[index[0]], destination[index[1]]]
    return [
        source[arrays[kind[0], "src_index"]],
        destination[arrays[kind[2], "dst_pos_index"]],
    ]
