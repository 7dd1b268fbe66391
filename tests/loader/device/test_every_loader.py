"""Every kind of loader brings its batches to a device, and takes rows that the device keeps."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import penstock as ps
from tests.loader.device.standin import StandIn, stand_in_for_cuda
from tests.loader.epochs import digests, small_data, typed_data

pytestmark = pytest.mark.usefixtures("no_leaks")

PAPERS, WRITES = ("paper", None), ("author", "writes", "paper")
SIZES = {name: [8, 8] for name in ("paper", "author", "topic")}


class Alone:
    """A user's sampler: each input by itself."""

    input_kind = "node"

    def __init__(self, graph: ps.Graph) -> None:
        pass

    def sample(self, seeds: Any, **_: Any) -> dict[str, Any]:
        none = np.empty((2, 0), np.int64)
        return {"n_id": seeds, "edge_index": none, "e_id": none[0]}


def _labelled(**options: Any) -> Any:
    labels = np.array([[1, 2], [3, -1]] * 20)
    return ps.ABLPLoader(small_data(), [4, 3], np.arange(40), positive=labels, **options)


def _custom(**options: Any) -> Any:
    graph = ps.Graph.from_pyg(small_data())
    return ps.CustomLoader(graph, Alone, input_nodes=np.arange(40), **options)


def _of_a_module(**options: Any) -> Any:
    return ps.LightningNodeData(small_data(), num_neighbors=[4, 3], **options).train_dataloader()


def _of_a_link_module(**options: Any) -> Any:
    data = small_data()
    return ps.LightningLinkData(
        data, data.edge_index[:, :40], num_neighbors=[4, 3], **options
    ).train_dataloader()


def _pickled(**options: Any) -> Any:
    loader = ps.NeighborLoader(small_data(), [4, 3], **options)
    return pickle.loads(pickle.dumps(loader))


LOADERS: dict[str, Callable[..., Any]] = {
    "neighbours": lambda **own: ps.NeighborLoader(typed_data(), [4, 3], PAPERS, **own),
    "induced": lambda **own: ps.NeighborLoader(
        small_data(), [4, 3], subgraph_type="induced", **own
    ),
    "links": lambda **own: ps.LinkNeighborLoader(
        typed_data(), [4, 3], (WRITES, None), neg_sampling="triplet", **own
    ),
    "layers": lambda **own: ps.HGTLoader(typed_data(), SIZES, PAPERS, **own),
    "ranked": lambda **own: ps.PPRLoader(small_data(), input_nodes=None, **own),
    "labelled": _labelled,
    "custom": _custom,
    "of Lightning": _of_a_module,
    "links of Lightning": _of_a_link_module,
    "pickled": _pickled,
}
WAYS: dict[str, dict[str, Any]] = {
    "copied": {"device": "cuda"},
    "all rows there": {"features": "cuda"},
    "some rows there": {"device": "cuda", "feature_cache": 1000},
    "page-locked": {"pin_memory": True},
}


@pytest.mark.parametrize("kind", LOADERS)
def test_batches_of_every_loader_are_the_same(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """CONTRACT 75"""
    options = {"batch_size": 16, "seed": 7, "num_workers": 0}
    with LOADERS[kind](**options) as plain:
        expected = digests(plain)
    gpu = StandIn()
    stand_in_for_cuda(monkeypatch, gpu)
    monkeypatch.setattr("torch.Tensor.pin_memory", lambda tensor: tensor)
    for way, given in WAYS.items():
        with LOADERS[kind](**options, **given) as loader:
            assert digests(loader) == expected, way
    assert gpu.copied > 0
