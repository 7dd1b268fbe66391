"""Servers of parts, in processes of their own, and questions to them."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock import Graph
from penstock.store.part_call import PartCall
from penstock.store.servers import StoreServers
from penstock.wire.values import pack, unpack
from tests.cli.servers import Running, serving

NODES, WIDTH = 400, 4


def whole_graph(seed: int = 0) -> Graph:
    """A graph whose rows say which node they are of."""
    rng = np.random.default_rng(seed)
    x = np.arange(NODES * WIDTH, dtype=np.float32).reshape(NODES, WIDTH) + seed
    return Graph.from_coo(rng.integers(0, NODES, (2, 4000)), NODES, x=x, train=np.arange(0, 400, 2))


def cut(folder: Path, parts: int = 2, method: Any = "range", seed: int = 0) -> list[Path]:
    """The parts of the graph."""
    with whole_graph(seed) as graph:
        return list(graph.partition(parts, folder, method=method))


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens at."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def address_of(port: int) -> str:
    return f"tcp://127.0.0.1:{port}"


@contextmanager
def part_server(
    part: Path, port: int = 0, store: Sequence[int | str] = (), *options: object
) -> Iterator[Running]:
    """A server of a part, at a port, which was told of those in its list."""
    addresses = [address_of(each) if isinstance(each, int) else each for each in store]
    listed = ("--store", ",".join(addresses)) if addresses else ()
    with serving(part, "--workers", 1, *listed, *options, port=port) as running:
        yield running


# --- questions -----------------------------------------------------------------------------------


def ask(store: StoreServers, part: int, ids: Sequence[int] | npt.NDArray[Any]) -> PartCall:
    """Ask for the rows of nodes, which are all in that part."""
    plain, arrays = pack({"name": "x", "index": np.asarray(ids)})
    return store.begin(part, "get_node_attribute", plain, arrays)


def rows_of(call: PartCall, timeout: float | None = None) -> list[int]:
    """The nodes that the answer has rows of."""
    value, arrays = call.result(timeout)
    rows = unpack(value, arrays, np.ndarray)
    assert (rows == rows[:, :1] + np.arange(WIDTH)).all()
    return [int(first) // WIDTH for first in rows[:, 0]]
