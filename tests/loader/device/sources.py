"""A graph for batches on a GPU, and the ways in which loaders come by it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import penstock as ps
from penstock.graph import Graph
from penstock.server.serving import serve
from tests.loader.epochs import torch

NODES, EDGES, TRAIN, BATCH = 400, 3200, 240, 16
STEPS = TRAIN // BATCH
SOURCES = (
    "this process",
    "an embedded hub",
    "a hub by address",
    "a server over TCP",
    "a server of this host",
    "a store of two parts",
)


def wide_graph(width: int = 300) -> Graph:
    """Its batches are so large that their slots are used again and again."""
    random = np.random.default_rng(5)
    half = torch.from_numpy(random.normal(size=(NODES, 3))).to(torch.bfloat16)
    return Graph.from_coo(
        random.integers(0, NODES, (2, EDGES)),
        NODES,
        x=random.normal(size=(NODES, width)).astype("float32"),
        y=random.integers(0, 4, NODES),
        edge_attr=random.normal(size=(EDGES, 2)).astype("float32"),
        node_attrs={"half": half},
        train=random.permutation(NODES)[:TRAIN],
    )


def near(data: Any, **options: Any) -> Any:
    """The loader of all these tests, with few slots."""
    wanted = {"batch_size": BATCH, "shuffle": True, "seed": 7, "prefetch": 4}
    return ps.NeighborLoader(data, [4, 3], **({"input_nodes": "train"} | wanted | options))


@contextmanager
def source_named(name: str, graph: Graph, folder: Path) -> Iterator[Callable[..., Any]]:
    """What makes loaders of the graph, by one of the ways."""
    with ExitStack() as stack:
        workers: dict[str, int] = {}
        data: Any = graph
        match name:
            case "this process":
                workers = {"num_workers": 0}
            case "an embedded hub":
                workers = {"num_workers": 2}
            case "a hub by address":
                hub = stack.enter_context(ps.HubProcess(graph, 2))
                data = hub.address
            case "a server over TCP" | "a server of this host":
                server = stack.enter_context(serve(graph, num_workers=2))
                near_by = name == "a server of this host"
                data = stack.enter_context(ps.connect(server.address, same_host=near_by))
            case "a store of two parts":
                parts = graph.partition(2, folder / "parts", "hash")
                servers = [stack.enter_context(serve(part, num_workers=1)) for part in parts]
                addresses = [server.address for server in servers]
                data = stack.enter_context(ps.connect(addresses, num_workers=2))
            case _:
                raise AssertionError(name)
        yield lambda **options: near(data, **(workers | options))
