"""What a server holds, as torch sees it: the methods of `RemoteDistDataset`, and its life."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import penstock as ps
from penstock.client.channel.channel import Channel
from penstock.client.remote.remote_graph import RemoteGraph
from penstock.errors import ChannelClosed, PenstockError
from penstock.graph import Graph
from penstock.loader.epoch.iteration import Iteration
from penstock.rpc.connection import RemoteConnection
from penstock.rpc.deadline import Deadline
from penstock.server.serving import Server, serve
from penstock.testing.digests import digest_of
from penstock.wire.messages import BatchReady
from tests.loader.epochs import torch
from tests.loader.server_process import server_of
from tests.loader.servers import BUYS, EDGES, ITEMS, LABELS, NODES, USERS, plain_graph, typed_graph


@pytest.fixture(scope="module")
def graphs() -> Iterator[dict[str, Graph]]:
    with plain_graph() as plain, typed_graph() as typed:
        yield {"plain": plain, "typed": typed}


@pytest.fixture(scope="module")
def servers(graphs: dict[str, Graph]) -> Iterator[dict[str, Server]]:
    with ExitStack() as stack:
        yield {
            name: stack.enter_context(serve(graph, num_workers=1)) for name, graph in graphs.items()
        }


@pytest.fixture(scope="module")
def plain(servers: dict[str, Server]) -> Iterator[Any]:
    with ps.connect(servers["plain"].address, same_host=False) as data:
        yield data


@pytest.fixture(scope="module")
def typed(servers: dict[str, Server]) -> Iterator[Any]:
    with ps.connect(servers["typed"].address, same_host=False) as data:
        yield data


def of(graph: Graph, name: str, node_type: str | None = None) -> Any:
    return torch.from_numpy(graph.node_attribute(name, node_type).copy())


# --- questions -----------------------------------------------------------------------------------


def test_ids_of_splits_and_slices_are_tensors(plain: Any, graphs: dict[str, Graph]) -> None:
    """CONTRACT 35, 36: halves are the whole again."""
    train = torch.from_numpy(graphs["plain"].split("train").copy())
    assert torch.equal(plain.get_node_ids("train"), train)
    assert torch.equal(plain.get_node_ids(), torch.arange(NODES))
    halves = [
        plain.get_node_ids("train", None, ps.ServerSlice(0, at, 2, at + 1, 2)) for at in (0, 1)
    ]
    assert torch.equal(torch.cat(halves), train)


def test_rows_are_tensors_of_their_own_dtype(plain: Any, graphs: dict[str, Graph]) -> None:
    """CONTRACT 38"""
    graph, index = graphs["plain"], torch.tensor([5, 0, 5])
    assert torch.equal(plain.get_node_feature(index=index), of(graph, "x")[index])
    assert torch.equal(plain.get_node_label(index=[3]), of(graph, "y")[[3]])
    half = plain.get_node_attribute("half", index=index)
    assert (half.dtype, half.shape) == (torch.bfloat16, (3, 3))
    attributes = torch.from_numpy(graph.edge_attribute("edge_attr").copy())
    assert torch.equal(plain.get_edge_attribute("edge_attr"), attributes)


def test_what_is_told_in_short(plain: Any, typed: Any) -> None:
    """CONTRACT 38"""
    assert (plain.get_node_types(), plain.get_edge_types()) == (None, None)
    assert typed.get_node_types() == ["user", "item"]
    assert BUYS in typed.get_edge_types()
    assert plain.get_tensor_size() == torch.Size([NODES, 6])
    assert plain.get_edge_size() == (NODES, NODES)
    assert plain.get_edge_index().shape == (2, EDGES)
    assert plain.get_edge_dir() == "in"
    assert plain.get_node_feature_info().dim == 6
    assert set(typed.get_node_feature_info()) == {"user", "item"}
    assert plain.get_dataset_meta().num_partitions == 1
    assert plain.get_node_partition_book().num_partitions == 1
    assert plain.get_node_partition_id(index=[1, 2]).tolist() == [0, 0]
    assert typed.get_edge_partition_book(BUYS).size == 300
    assert plain.partition.of == 1


def test_anchors_come_with_their_labels(typed: Any, graphs: dict[str, Graph]) -> None:
    """CONTRACT 37"""
    anchors, positive, negative = typed.get_ablp_input("train", "user", BUYS)
    ends = torch.from_numpy(graphs["typed"].edge_index(LABELS))
    for anchor, labels in zip(anchors, positive, strict=True):
        assert set(labels[labels >= 0].tolist()) == set(ends[1, ends[0] == anchor].tolist())
    assert negative is None
    loader = ps.ABLPLoader(
        typed, [2], ("user", anchors), supervision=BUYS, positive=positive, batch_size=8
    )
    with loader:
        assert sum(1 for _ in loader) == len(loader)


@pytest.mark.parametrize(
    ("ask", "error", "words"),
    [
        (lambda data: data.get_node_ids("exam"), ValueError, "exam"),
        (lambda data: data.get_node_feature(index=[NODES]), ValueError, str(NODES)),
        (lambda data: data.get_node_feature("paper"), ValueError, "node_type"),
        (lambda data: data.get_edge_index(layout="csc"), ValueError, "layout"),
    ],
    ids=["split", "id", "type", "layout"],
)
def test_errors_are_those_of_the_server(plain: Any, ask: Any, error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        ask(plain)


def test_threads_ask_in_turn(plain: Any, graphs: dict[str, Graph]) -> None:
    wrong = []

    def ask(first: int) -> None:
        for node in range(first, first + 20):
            if not torch.equal(
                plain.get_node_feature(index=[node]), of(graphs["plain"], "x")[[node]]
            ):
                wrong.append(node)

    threads = [threading.Thread(target=ask, args=(first,)) for first in range(0, 80, 20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# --- a graph that is elsewhere -------------------------------------------------------------------


def test_a_graph_elsewhere_is_known_but_for_its_numbers(
    plain: Any, graphs: dict[str, Graph]
) -> None:
    here, far = graphs["plain"], plain.graph
    assert isinstance(far, RemoteGraph)
    assert (far.num_nodes(), far.num_edges()) == (here.num_nodes(), here.num_edges())
    assert list(far.node_attributes()) == list(here.node_attributes())
    assert far.split("train").tolist() == here.split("train").tolist()
    assert digest_of(far.graph_attributes()) == digest_of(here.graph_attributes())
    with pytest.raises(PenstockError, match="get_node_feature"):
        far.node_attribute("x")
    with pytest.raises(PenstockError, match="lies at the server"):
        far.csc()
    with pytest.raises(TypeError, match=r"penstock\.connect"):
        pickle.dumps(far)


# --- the end -------------------------------------------------------------------------------------


def test_a_process_begins_and_leaves(servers: dict[str, Server]) -> None:
    """CONTRACT 39: the server stays, also when somebody leaves twice."""
    address = servers["plain"].address
    first, second = (ps.init_compute_process(address, same_host=False) for _ in range(2))
    ps.shutdown_compute_process(first)
    assert second.get_node_types() is None
    ps.shutdown_compute_process()
    ps.shutdown_compute_process()
    with pytest.raises(ChannelClosed, match="was closed"):
        second.get_node_types()


@pytest.fixture(scope="module")
def elsewhere(graphs: dict[str, Graph], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server whose own threads are not ours."""
    folder = tmp_path_factory.mktemp("graphs") / "plain"
    graphs["plain"].save(folder)
    with server_of(folder) as server:
        with ps.connect(server.address, same_host=False) as data:
            next(iter(ps.NeighborLoader(data, [1], batch_size=1)))  # its workers have come
        yield server.address


@pytest.mark.parametrize("same_host", [True, False], ids=["by shared memory", "by TCP"])
def test_nothing_is_left_of_a_dataset_and_its_loader(
    elsewhere: str, same_host: bool, no_leaks: None
) -> None:
    with (
        ps.connect(elsewhere, same_host=same_host) as data,
        ps.NeighborLoader(data, [4, 3], "train", batch_size=16) as loader,
    ):
        next(iter(loader))


@pytest.mark.parametrize("same_host", [True, False], ids=["by shared memory", "by TCP"])
def test_nothing_is_left_of_what_is_dropped(
    elsewhere: str, same_host: bool, no_leaks: None
) -> None:
    data = ps.connect(elsewhere, same_host=same_host)
    next(iter(ps.NeighborLoader(data, [4, 3], "train", batch_size=16)))


def test_batches_outlive_their_loader(servers: dict[str, Server]) -> None:
    data = ps.connect(servers["plain"].address, same_host=False)
    with data, ps.NeighborLoader(data, [4, 3], "train", batch_size=16) as loader:
        batch = next(iter(loader))
        before = digest_of(batch)
    del loader, data
    assert digest_of(batch) == before


def test_pickling_is_refused_with_advice(plain: Any) -> None:
    with pytest.raises(TypeError, match=r"penstock\.connect\(address\)"):
        pickle.dumps(plain)


def test_a_fork_is_refused_with_advice(plain: Any) -> None:
    with ps.NeighborLoader(plain, [4, 3], "train", batch_size=16) as loader:
        reading = iter(loader)
        next(reading)
        assert in_a_fork(plain.get_node_types) == "fork"
        assert in_a_fork(lambda: next(reading)) == "fork"
        assert sum(1 for _ in reading) == len(loader) - 1
        assert plain.get_node_types() is None


def in_a_fork(do: Any) -> str:
    """What a fork is told: one word of it, by a pipe."""
    out, into = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            do()
            os.write(into, b"nothing")
        except RuntimeError as error:
            os.write(into, b"fork" if "fork" in str(error) else b"another error")
        finally:
            os._exit(0)
    os.close(into)
    os.waitpid(pid, 0)
    with os.fdopen(out) as said:
        return said.read()


@pytest.mark.filterwarnings(
    # Sockets that an interrupt parts from whoever connects them are left to the collector.
    "ignore::pytest.PytestUnraisableExceptionWarning",
    "ignore::ResourceWarning",
)
def test_an_interrupt_loses_nothing(plain: Any, graphs: dict[str, Graph]) -> None:
    """CONTRACT 41: wherever Ctrl-C strikes, the next call goes on with the step that was due."""
    options: dict[str, Any] = {"batch_size": 4, "shuffle": True, "seed": 3}
    with ps.NeighborLoader(graphs["plain"], [4, 3], "train", **options) as loader:
        expected = [digest_of(batch) for batch in loader]
    seen: list[str] = []
    struck: list[int] = []

    def strike(_: int, frame: FrameType | None) -> None:
        """Within what is tested, and not on the way back to us, where nobody can help."""
        while frame is not None:
            if frame.f_code is Iteration.__next__.__code__:
                struck.append(len(seen))
                raise KeyboardInterrupt
            frame = frame.f_back

    before = signal.signal(signal.SIGALRM, strike)
    try:
        with ps.NeighborLoader(plain, [4, 3], "train", **options) as loader:
            reading = iter(loader)
            while len(seen) < len(expected):
                # Longer each time, so that sooner or later there is enough for a new session.
                signal.setitimer(signal.ITIMER_REAL, 0.0005 * 1.3 ** struck.count(len(seen)))
                with suppress(KeyboardInterrupt):
                    seen.append(digest_of(next(reading)))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    gc.collect()
    assert seen == expected
    assert struck


def test_batches_that_an_interrupt_leaves_unheard_are_not_taken_for_descriptors(
    plain: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CONTRACT 41: bytes of a batch were closed as if they were the numbers of open files."""
    receive, hear = RemoteConnection.receive, Channel._hear
    struck: list[int] = []

    def receive_several(self: RemoteConnection) -> list[Any]:
        received = receive(self)
        is_batch = any(isinstance(message, BatchReady) for message, _ in received)
        while is_batch and not struck and len(received) < 2:
            self.wait(Deadline(60.0))
            received += receive(self)
        return received

    def strike_once(self: Channel, *heard: Any) -> None:
        if not struck:
            struck.append(1)
            raise KeyboardInterrupt
        hear(self, *heard)

    monkeypatch.setattr(RemoteConnection, "receive", receive_several)
    monkeypatch.setattr(Channel, "_hear", strike_once)
    # Every byte of a batch is then the number of an open file.
    with ExitStack() as stack, ps.NeighborLoader(plain, [4, 3], "train", batch_size=4) as loader:
        files = [stack.enter_context(open(os.devnull)) for _ in range(256)]
        reading = iter(loader)
        with pytest.raises(KeyboardInterrupt):
            next(reading)
        assert all(os.fstat(file.fileno()) for file in files)
        assert next(reading).batch_size == 4


# --- parts, and a server that leaves -------------------------------------------------------------


def test_a_part_of_a_graph_is_spoken_of_by_ids_of_the_whole(
    graphs: dict[str, Graph], tmp_path: Path
) -> None:
    graph = graphs["plain"]
    part = graph.partition(2, tmp_path / "parts")[1]
    x = of(graph, "x")
    with (
        serve(part, num_workers=1, part_only=True) as server,
        ps.connect(server.address, part_only=True) as data,
    ):
        assert not data.is_on_this_host
        ids = data.get_node_ids()
        for nodes in (None, ids[7:30], "train"):
            with ps.NeighborLoader(data, [3], nodes, batch_size=16, part_only=True) as loader:
                for batch in loader:
                    assert torch.equal(batch.x, x[batch.n_id])
                assert set(loader([0, 1]).n_id.tolist()) <= set(ids.tolist())
        with ps.NeighborLoader(server.address, [3], batch_size=16, part_only=True) as loader:
            assert set(next(iter(loader)).n_id.tolist()) <= set(ids.tolist())
        foreign = ps.NeighborLoader(data, [3], [0], part_only=True)
        with foreign, pytest.raises(ValueError, match="part 0"):
            next(iter(foreign))


def test_a_part_at_a_server_does_not_pass_for_the_whole(
    graphs: dict[str, Graph], tmp_path: Path
) -> None:
    """CONTRACT 69."""
    part = graphs["plain"].partition(2, tmp_path / "parts")[1]
    with (
        serve(part, num_workers=1, part_only=True) as server,
        ps.connect(server.address, part_only=True) as data,
        pytest.raises(ValueError, match="data is part 1 of 2 of a graph at tcp"),
    ):
        ps.NeighborLoader(data, [3])
    with (
        serve(part, num_workers=1) as server,
        ps.connect(server.address, part_only=True) as data,
        pytest.raises(ValueError, match="start the server with part_only=True"),
    ):
        ps.NeighborLoader(data, [3], part_only=True)


def test_all_edges_of_a_part_are_those_with_both_ends_in_it(
    graphs: dict[str, Graph], tmp_path: Path
) -> None:
    part = graphs["plain"].partition(2, tmp_path / "parts", "hash")[1]
    with (
        serve(part, num_workers=1, part_only=True) as server,
        ps.connect(server.address, part_only=True) as data,
        Graph.open(part) as near,
    ):
        own: dict[str, Any] = {"batch_size": 50, "neg_sampling_ratio": 1.0, "part_only": True}
        with ps.LinkNeighborLoader(data, [2], **own, seed=0) as far_loader:
            with ps.LinkNeighborLoader(near, [2], **own, seed=0) as near_loader:
                for far, here in zip(far_loader, near_loader, strict=True):
                    assert torch.equal(far.n_id, here.n_id)
                    assert torch.equal(far.edge_label_index, here.edge_label_index)
                one = far_loader(torch.tensor([3, 5])).n_id
                assert torch.equal(one, near_loader(torch.tensor([3, 5])).n_id)


def test_a_server_that_leaves_says_so_to_those_who_come() -> None:
    with plain_graph() as graph, serve(graph, num_workers=1) as server:
        with ps.connect(server.address, same_host=False):
            server.drain(0.0)
            assert server.statistics().draining  # it has heard of it: nobody is waited for
            with pytest.raises(ps.ServerGone, match="the server is leaving"):
                ps.connect(server.address, timeout=1.5)


def test_users_and_items_are_as_many_as_there_are(typed: Any) -> None:
    sizes = {size.name: size.num for size in typed.get_dataset_meta().num_nodes}
    assert sizes == {"user": USERS, "item": ITEMS}
