"""Servers that have no thread, no room and no patience left: readers wait, and all get on."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from penstock.client.backend import SharedDistSamplingBackend
from penstock.graph import Graph
from penstock.store.remote import graph_at
from penstock.store.servers import StoreServers
from tests.client.test_every_kind import TYPED, Case, run, typed_graph
from tests.processes import PATIENCE_S
from tests.store.servers import StoreProcesses

pytestmark = [
    pytest.mark.usefixtures("no_leaks_in_all"),
    pytest.mark.filterwarnings("ignore:Cannot convert to bidirectional:UserWarning"),
]

READERS = 6
CASES = ("uniform", "weighted", "links", "ablp, ppr", "walks", "hgt")


@pytest.fixture(scope="module")
def whole() -> Iterator[Graph]:
    with typed_graph() as graph:
        yield graph


@pytest.fixture(scope="module")
def store(whole: Graph, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreProcesses]:
    """Two servers that answer one question at a time."""
    folder = tmp_path_factory.mktemp("full") / "parts"
    with StoreProcesses(whole.partition(2, folder, "hash", edges="both"), threads=1) as servers:
        yield servers


def read(graph: Graph, case: Case) -> list[tuple[int, int, str]]:
    with SharedDistSamplingBackend(graph, case.spec, num_workers=0) as backend:
        backend.init_backend()
        return run(backend, case)


def read_at(addresses: list[str], names: list[str]) -> dict[str, Any]:
    """What a reader gets that has connections of its own."""
    with graph_at(StoreServers.find(addresses, patience=PATIENCE_S)) as graph:
        return {name: read(graph, TYPED[name]) for name in names}


def test_two_full_servers_never_deadlock(store: StoreProcesses, whole: Graph) -> None:
    """CONTRACT 67: each has one thread, which is busy with readers of both all the time."""
    expected = {name: read(whole, TYPED[name]) for name in CASES}
    with ThreadPoolExecutor(READERS) as readers:
        begun = [
            readers.submit(
                read_at,
                store.addresses[:: 1 if number % 2 else -1],
                [*CASES[number:], *CASES[:number]],
            )
            for number in range(READERS)
        ]
        for each in begun:
            assert each.result(PATIENCE_S) == expected


def test_a_server_that_stops_among_full_ones_holds_up_nobody_for_ever(
    store: StoreProcesses, whole: Graph
) -> None:
    """CONTRACT 67: everybody waits for it, and goes on when it does."""
    expected = {name: read(whole, TYPED[name]) for name in CASES[:2]}
    with ThreadPoolExecutor(READERS) as readers:
        begun = [readers.submit(read_at, store.addresses, list(CASES[:2])) for _ in range(READERS)]
        for server in store.servers * 3:
            server.stop()
            server.go_on()
        for each in begun:
            assert each.result(PATIENCE_S) == expected
