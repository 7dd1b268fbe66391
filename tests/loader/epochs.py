"""Data to load, and batches in a few characters: what the tests of loaders share."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Iterable
from typing import Any

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # they warn of themselves while being imported
    torch = pytest.importorskip("torch")
    pyg = pytest.importorskip("torch_geometric")
    import torch_geometric.loader  # noqa: F401 - which the loaders are made after

torch.set_num_threads(1)  # more of them would be taken for leaks
Data, HeteroData = pyg.data.Data, pyg.data.HeteroData

NODES = 400
BATCH = 16


def small_data() -> Any:
    """A few hundred nodes with features, labels and a mask of 230 nodes to train on."""
    make = torch.Generator().manual_seed(5)
    order = torch.randperm(NODES, generator=make)
    mask = torch.zeros(NODES, dtype=torch.bool)
    mask[order[:230]] = True
    return Data(
        x=torch.randn(NODES, 6, generator=make),
        y=torch.randint(0, 4, (NODES,), generator=make),
        edge_index=torch.randint(0, NODES, (2, 8 * NODES), generator=make),
        edge_attr=torch.randn(8 * NODES, 2, generator=make),
        train_mask=mask,
        name="small",
    )


def typed_data() -> Any:
    """Papers and authors, and topics that nobody ever reaches."""
    make = torch.Generator().manual_seed(6)
    papers, authors = 120, 40
    data = HeteroData()
    data["paper"].x = torch.randn(papers, 4, generator=make)
    data["paper"].train_mask = torch.arange(papers) % 2 == 0
    data["author"].x = torch.randn(authors, 3, generator=make)
    data["topic"].x = torch.randn(5, 2, generator=make)
    data["paper", "cites", "paper"].edge_index = torch.randint(0, papers, (2, 600), generator=make)
    data["author", "writes", "paper"].edge_index = torch.stack(
        [
            torch.randint(0, authors, (300,), generator=make),
            torch.randint(0, papers, (300,), generator=make),
        ]
    )
    data["paper", "about", "topic"].edge_index = torch.stack(
        [torch.randint(0, papers, (90,), generator=make), torch.arange(90) % 5]
    )
    return data


def everyday(data: Any, **options: Any) -> Any:
    """The loader of the README."""
    import penstock as ps

    wanted = {
        "num_neighbors": [4, 3],
        "input_nodes": data.train_mask if isinstance(data, Data) else None,
        "batch_size": BATCH,
        "shuffle": True,
        "seed": 7,
    }
    return ps.NeighborLoader(data, **(wanted | options))


def digest(batch: Any) -> str:
    """A batch in a few characters: every attribute, by store and name, to the last byte."""
    words = hashlib.blake2b(digest_size=8)
    for store in batch.stores:
        for name in sorted(store.keys()):
            words.update(f"{store._key}|{name}|".encode())
            words.update(_bytes_of(store[name]))
    return words.hexdigest()


def _bytes_of(value: Any) -> bytes:
    if not isinstance(value, torch.Tensor):
        return repr(value).encode()
    return f"{value.dtype}{list(value.shape)}".encode() + value.contiguous().numpy().tobytes()


def digests(batches: Iterable[Any]) -> list[str]:
    """Each batch of an epoch in a few characters. None of them is held."""
    return [digest(batch) for batch in batches]


def epochs(loader: Any, count: int = 2) -> list[list[str]]:
    """Some epochs, one after the other."""
    return [digests(loader) for _ in range(count)]


def through_json(state: Any) -> Any:
    """A state as it comes out of a file."""
    return json.loads(json.dumps(state))


def hub_of(loader: Any) -> Any:
    """The hub that a loader reads from."""
    return loader._batches_from.hub()


def pids_of(loader: Any) -> list[int]:
    """The hub's process and its workers'."""
    numbers = hub_of(loader).statistics()
    return [hub_of(loader).pid, *(worker["pid"] for worker in numbers["pool"]["workers"])]
