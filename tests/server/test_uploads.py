"""Arrays on their way to a server that is slow to hear: who waits, and who is hung up on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import zmq

from penstock import connect
from penstock.graph import Graph
from penstock.sampling.spec import NeighborSpec
from penstock.server.reception import Reception
from penstock.server.router import Frames
from penstock.server.serving import Server, serve
from penstock.wire.bulk import pack
from penstock.wire.remote import UNTAKEN, Call, Part
from tests.processes import PATIENCE_S, until
from tests.server.ranks import BareRank, channel_at

# More than a server keeps of what it has not heard.
LARGE = 4 * UNTAKEN


@pytest.fixture
def slow_server(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """One that takes its time with every large message."""
    hear = Reception.hear

    def hear_slowly(reception: Reception, identity: bytes, frames: Frames) -> Any:
        time.sleep(0.05 if len(frames) > 1 else 0.0)
        return hear(reception, identity, frames)

    monkeypatch.setattr(Reception, "hear", hear_slowly)
    with serve(graph, num_workers=1, lease=PATIENCE_S) as served:
        yield served


def test_a_rank_waits_until_its_arrays_are_taken(slow_server: Server, graph: Graph) -> None:
    """CONTRACT 53: or it would be hung up on for what the server keeps of it."""
    ids = np.resize(np.arange(graph.num_nodes()), LARGE // 8)
    with channel_at(
        slow_server.address, ids, NeighborSpec(num_neighbors=(1,)), batch_size=4, shuffle=False
    ) as channel:
        channel.start(0)
        batch = channel.next(PATIENCE_S)
        assert batch is not None
        assert np.array_equal(batch.arrays["n_id"][:4], ids[:4])
        assert channel.statistics().recoveries == 0
        assert slow_server.statistics().leases_lost == 0


def test_threads_that_ask_with_large_arrays_wait_for_one_another(
    slow_server: Server, graph: Graph
) -> None:
    """Each gets its own answer, over one connection."""
    index = np.zeros(LARGE // 3 // 8, np.int64)
    with connect(slow_server.address) as remote, ThreadPoolExecutor(3) as threads:
        asked = [
            threads.submit(remote.server.get_node_label, None, index + row) for row in range(3)
        ]
        for row, answer in enumerate(asked):
            labels = answer.result(PATIENCE_S)
            assert len(labels) == len(index)
            assert int(labels[0]) == int(graph.node_attribute("y")[row])
        assert slow_server.statistics().leases_lost == 0


def test_one_that_does_not_wait_is_hung_up_on(
    slow_server: Server, context: zmq.Context[Any]
) -> None:
    """CONTRACT 53: what it has sent is in the server's memory."""
    packed = pack({"index": np.zeros(3 * LARGE // 8, np.int64)})
    with BareRank(slow_server.address, context) as rank:
        rank.socket.setsockopt(zmq.RECONNECT_IVL, -1)
        rank.greet(name="pushy")
        rank.say(Call(request=1, verb="get_node_label", bulk=packed.bulk))
        for offset, data in packed.parts():
            rank.say(Part(request=1, offset=offset), bytes(data))
        until(lambda: slow_server.statistics().leases_lost == 1, "it is hung up on")
    assert slow_server.statistics().bytes_in < 2 * LARGE
