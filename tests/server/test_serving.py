"""A server's own life: where it listens, what it leaves, what it serves."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from penstock.errors import HubGone
from penstock.graph import Graph
from penstock.sampling.spec import Feed, NeighborSpec
from penstock.server.serving import Server, serve
from penstock.wire.framing import CHUNK
from penstock.wire.messages import Leaving, Registered
from tests.client.graphs import SPEC, expected, small_graph
from tests.processes import PATIENCE_S, until, wait_until_gone
from tests.server.links import Link
from tests.server.ranks import BareRank, Parcel
from tests.wishes import register

ROOT = Path(__file__).parents[2]


@pytest.mark.usefixtures("no_leaks")
def test_a_server_leaves_nothing_behind_whatever_ranks_were_doing() -> None:
    """CONTRACT 29, CONTRACT 39"""
    with small_graph() as graph:
        with serve(graph, num_workers=1) as server:
            pids = [server.hub.pid]
            reader, asker = (BareRank(server.address) for _ in range(2))
            reader.greet()
            reader.register(arrays={"ids": np.arange(100)}, slots=2)
            reader.start()
            reader.take()
            asker.greet()
            asker.call("get_node_types")
            asker.ask_to_register(split="train")
        assert isinstance(reader.waits_for_end()[-1], Leaving)
        assert server.trouble() == "the server was closed"
        server.close()
        wait_until_gone(pid for pid in pids if pid is not None)
        reader.close()
        asker.close()


@pytest.mark.usefixtures("no_leaks")
def test_a_server_that_cannot_listen_leaves_nothing_behind(graph: Graph) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"cannot listen at tcp://127.0.0.1:{port}"):
            serve(graph, f"tcp://127.0.0.1:{port}", num_workers=1)


@pytest.mark.parametrize(
    "address", ["tcp://0.0.0.0:0", "tcp://*:7070", "tcp://192.0.2.1:7070", "tcp://[::]:7070"]
)
def test_beyond_loopback_a_server_wants_a_certificate(graph: Graph, address: str) -> None:
    with pytest.raises(ValueError, match="which other hosts can reach"):
        serve(graph, address)


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1:7070", "tcp://127.0.0.1", "unix://x", "tcp://:70", "tcp://127.0.0.1:70000"],
)
def test_an_address_that_is_none_is_refused(graph: Graph, address: str) -> None:
    with pytest.raises(ValueError, match="expected 'tcp://host:port'"):
        serve(graph, address)


def test_the_statistics_count_what_was_moved(server: Server) -> None:
    before = server.statistics()
    with BareRank(server.address) as reader:
        reader.greet(name="counted")
        reader.register(split="train", slots=3)
        reader.start()
        steps = len(reader.read())
        reader.call("get_node_types")
        until(lambda: server.statistics().sessions[-1].credits == 3, "all slots are back")
        now = server.statistics()
        (session,) = [one for one in now.sessions if one.name == "counted"]
    assert (session.batches, session.calls, session.slots) == (steps, 1, 3)
    assert session.channel == reader.channel
    assert now.batches - before.batches == steps
    assert now.bytes_out - before.bytes_out == session.bytes_out
    assert now.process is not None
    assert now.process.threads > 1


@pytest.fixture(scope="module")
def wide() -> Iterator[Graph]:
    """Batches of it have tens of megabytes."""
    random = np.random.default_rng(0)
    rows = random.normal(size=(4000, 800)).astype("float32")
    with Graph.from_coo(random.integers(0, 4000, (2, 40000)), 4000, x=rows) as made:
        yield made


@pytest.fixture(scope="module")
def wide_server(wide: Graph) -> Iterator[Server]:
    """With long leases, since one of its ranks does not read for a while."""
    with serve(wide, num_workers=1, lease=PATIENCE_S) as served:
        yield served


WIDE = NeighborSpec(num_neighbors=(10, 10))


def test_batches_that_outgrow_their_slot_and_a_chunk_come_in_chunks(
    wide: Graph, wide_server: Server
) -> None:
    """CONTRACT 21"""
    with BareRank(wide_server.address) as reader:
        reader.greet()
        feed = Feed(num_inputs=0, batch_size=1000, shuffle=True, seed=7)
        reader.say(register(request=1, spec=WIDE, feed=feed, slots=2, buffer_size=8192))
        reader.channel = reader.hear(Registered).channel
        reader.start()
        first = reader.take()
        assert isinstance(first, Parcel)
        assert first.ready.nbytes > 2 * CHUNK
        reader.give_back(first)
        got = sorted([first.digest, *reader.read()])
        assert got == expected(wide, spec=WIDE, inputs=None, batch_size=1000)


def test_a_rank_that_falls_behind_gets_every_byte_when_it_reads_again(
    wide: Graph, wide_server: Server
) -> None:
    """CONTRACT 9"""
    with Link(wide_server.address) as link, BareRank(link.address) as slow:
        slow.greet()
        slow.register(spec=WIDE, batch_size=40, slots=100)
        link.shut()
        slow.start()
        until(lambda: wide_server.statistics().sessions[0].unsent > 0, "some of it must wait")
        link.open()
        got = slow.read()
    assert got == expected(wide, spec=WIDE, inputs=None, batch_size=40)


def test_a_part_of_a_graph_is_served_under_the_ids_of_the_whole(
    graph: Graph, tmp_path: Path
) -> None:
    graph.partition(2, tmp_path / "parts", method="hash")
    folder = next(path for path in sorted((tmp_path / "parts").iterdir()) if path.is_dir())
    with Graph.open(folder) as part:
        assert part.part is not None
        number, held = part.part.number, part.node_ids().copy()
        edges = graph.edge_index()
    with serve(folder, num_workers=1, part_only=True) as server, BareRank(server.address) as reader:
        welcome = reader.greet()
        assert (welcome.partition.number, welcome.partition.of) == (number, 2)
        assert welcome.unix is None
        seeds = held[::3]
        reader.register(spec=SPEC, arrays={"ids": seeds}, shuffle=False)
        reader.start()
        parcels = []
        while isinstance(parcel := reader.take(), Parcel):
            parcels.append(parcel)
            reader.give_back(parcel)
        taken = [parcel.arrays["n_id"][:16] for parcel in parcels]
        assert np.array_equal(np.concatenate(taken)[: len(seeds)][:16], seeds[:16])
        for parcel in parcels:
            arrays = parcel.arrays
            assert np.isin(arrays["n_id"], held).all()
            assert np.array_equal(arrays["n_id"][arrays["edge_index"]], edges[:, arrays["e_id"]])
            assert np.array_equal(arrays["x"], graph.node_attribute("x")[arrays["n_id"]])
        foreign = np.setdiff1d(np.arange(graph.num_nodes()), held)[:1]
        with BareRank(server.address) as other:
            other.greet()
            other.ask_to_register(arrays={"ids": foreign})
            with pytest.raises(ValueError, match=f"is {foreign[0]}, which is in part"):
                raise other.refusal()


def test_a_server_whose_hub_cannot_be_started_again_says_so(graph: Graph) -> None:
    with serve(graph, num_workers=1) as server, BareRank(server.address) as reader:
        reader.greet()
        server.hub.close()
        until(lambda: server.trouble() is not None, "the hub is known to be gone")
        assert "hub" in str(server.check_ready())
        reader.ask_to_register(split="train")
        with pytest.raises(HubGone):
            raise reader.refusal()


def test_the_server_loads_neither_torch_nor_pyarrow() -> None:
    program = (
        "import sys, penstock.server.serving\n"
        "heavy = ('torch', 'pyarrow', 'duckdb', 'torch_geometric')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
