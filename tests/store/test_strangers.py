"""Who belongs to a store, and who does not: by what they have, and by their certificates."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.errors import AccessDenied, GraphFormatError
from penstock.graph import Graph
from penstock.rpc.deadline import Deadline
from penstock.rpc.endpoint import Endpoint
from penstock.rpc.server import RemoteServer
from penstock.server.transport.authority import Authority
from penstock.store.handles import open_parts
from penstock.testing.digests import digest_of
from tests.processes import PATIENCE_S, until
from tests.store.loading import everyday, joined, small_graph, torch, whole_epoch
from tests.store.servers import PartServer, StoreProcesses, free_port

pytestmark = pytest.mark.usefixtures("no_leaks_in_all")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Parts that look alike, and are of other graphs, versions and cuts."""
    path = tmp_path_factory.mktemp("strangers")
    with small_graph() as graph, small_graph(shift=1.0) as later:
        graph.partition(2, path / "parts", "hash")
        graph.partition(2, path / "same", "hash")
        later.partition(2, path / "version", "hash")
        graph.partition(2, path / "method", "range")
        graph.partition(2, path / "edges", "hash", edges="both")
        graph.partition(2, path / "topology", "hash", topology="whole")
        graph.partition(3, path / "number", "hash")
    with Graph.from_coo([[0, 1], [1, 0]], 2) as other:
        other.partition(2, path / "graph", "hash")
    return path


def part(folder: Path, number: int, of: str = "parts") -> str:
    return str(folder / of / f"part-{number}")


# --- what they have ------------------------------------------------------------------------------


@pytest.mark.parametrize("of", ["version", "method", "edges", "topology", "number", "graph"])
def test_folders_that_do_not_fit_together_are_refused_by_name(folder: Path, of: str) -> None:
    """CONTRACT 71: another graph, version or cut; the part is named, and how it differs."""
    with pytest.raises(GraphFormatError, match=r"part 1 is of another graph, version or cut"):
        open_parts([part(folder, 0), part(folder, 1, of)])


@pytest.mark.parametrize(
    "numbers", [[0], [1], [0, 0], [0, 1, 1], []], ids=lambda numbers: f"parts {numbers}"
)
def test_parts_that_are_missing_or_there_twice_are_named(folder: Path, numbers: list[int]) -> None:
    """CONTRACT 71: no whole is made of anything but all parts, once each."""
    with pytest.raises((GraphFormatError, ValueError), match="part"):
        open_parts([part(folder, number) for number in numbers])


def test_parts_that_were_cut_twice_in_the_same_way_fit(folder: Path) -> None:
    """CONTRACT 71: what counts is what they have, not where and when they were written."""
    with small_graph() as graph:
        expected = whole_epoch(graph)
    with open_parts([part(folder, 1, "same"), part(folder, 0)]) as parts:
        assert whole_epoch(parts) == expected


@pytest.fixture(scope="module")
def store(folder: Path) -> Iterator[StoreProcesses]:
    with StoreProcesses([part(folder, 0), part(folder, 1)]) as servers:
        yield servers


@pytest.mark.parametrize("of", ["version", "topology"])
def test_servers_that_do_not_fit_together_are_refused_by_name(
    store: StoreProcesses, folder: Path, of: str
) -> None:
    """CONTRACT 71: by whoever connects, and by the servers, which never name the stranger."""
    stranger = PartServer(part(folder, 1, of), store.addresses, free_port())
    try:
        stranger.start()
        with pytest.raises(ValueError, match="do not belong to one store") as raised:
            ps.connect([store.addresses[0], stranger.address])
        assert any(each in str(raised.value) for each in (stranger.address, store.addresses[0]))
        assert stranger.address not in named_by(store.addresses[0])
        with joined(store.addresses[0]) as data:  # which was told of the stranger, and not by it
            assert stranger.address not in data.address
    finally:
        stranger.close()


def test_a_stranger_whom_a_server_names_is_refused(
    store: StoreProcesses, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """CONTRACT 71: it was started with a wrong list. Readers do without, and the log says why."""
    stranger = PartServer(part(folder, 1, "version"), (), free_port())
    misled = PartServer(part(folder, 0), (stranger.address, store.addresses[1]), free_port())
    try:
        stranger.begin()
        misled.begin()
        stranger.wait_until_up()
        misled.wait_until_up()
        with joined([misled.address, store.addresses[1]]) as data:
            refused = f"the server at {stranger.address} cannot be used: .* version"
            until(lambda: re.search(refused, caplog.text) is not None, "it is named in the log")
            assert states(data)[stranger.address] == "refused"
            assert torch.equal(data.get_node_feature(), x_of(small_graph()))
    finally:
        stranger.close()
        misled.close()


def states(data: Any) -> dict[str, str]:
    return {each.address: each.state for each in data.servers.statistics().servers}


def x_of(graph: Graph) -> Any:
    with graph:
        return torch.from_numpy(graph.node_attribute("x").copy())


def named_by(address: str) -> tuple[str, ...]:
    """The servers that a server names to whoever comes."""
    with ps.connect(address, part_only=True, same_host=False) as data:
        return tuple(data.partition.peers)


# --- who they are --------------------------------------------------------------------------------


class Keys:
    """Of one authority: what servers and ranks are started with."""

    def __init__(self, folder: Path) -> None:
        self._authority = Authority(folder)
        self._authority.issue_server()
        self._authority.issue_client("rank-0")
        self.folder = folder

    @property
    def server(self) -> dict[str, str]:
        names = {"certificate": "server.pem", "key": "server.key", "client_ca": "ca.pem"}
        return {word: str(self.folder / name) for word, name in names.items()}

    @property
    def rank(self) -> dict[str, str]:
        clients = self.folder / "clients"
        return {
            "ca": str(self.folder / "ca.pem"),
            "certificate": str(clients / "rank-0.pem"),
            "key": str(clients / "rank-0.key"),
        }


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return Keys(tmp_path_factory.mktemp("ours"))


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return Keys(tmp_path_factory.mktemp("theirs"))


@pytest.fixture(scope="module")
def guarded(folder: Path, ours: Keys) -> Iterator[StoreProcesses]:
    """Two servers that know each other, and their ranks, by certificate."""
    with StoreProcesses([part(folder, 0), part(folder, 1)], **ours.server) as servers:
        yield servers


@pytest.mark.parametrize("way", ["inline", "workers"])
def test_a_rank_with_a_certificate_reads_the_whole_store(
    guarded: StoreProcesses, ours: Keys, way: str
) -> None:
    """CONTRACT 66, 71: by one address; its workers come with the same certificate."""
    with small_graph() as graph:
        expected = whole_epoch(graph)
    with joined(guarded.addresses[0], **ours.rank) as data, everyday(data, way) as loader:
        assert list(map(digest_of, loader)) == expected
        assert data.get_node_ids("val").tolist() == list(range(20))


def test_strangers_are_let_in_by_none_of_them(
    guarded: StoreProcesses, ours: Keys, theirs: Keys
) -> None:
    """CONTRACT 71: without a certificate, or with one that somebody else has signed."""
    trusting = {"ca": ours.rank["ca"]}
    posing = theirs.rank | trusting
    for given in (trusting, posing):
        for addresses in (guarded.addresses, guarded.addresses[1:]):
            with pytest.raises(AccessDenied):
                ps.connect(addresses, timeout=PATIENCE_S, **given)


def test_a_rank_does_not_talk_to_servers_of_another_authority(
    guarded: StoreProcesses, theirs: Keys
) -> None:
    """CONTRACT 71: it trusts nobody whom its own authority does not know."""
    with pytest.raises((AccessDenied, ps.ServerGone), match=r"certificate|not trusted"):
        ps.connect(guarded.addresses, timeout=5.0, **theirs.rank)


def test_a_server_of_another_authority_is_not_taken_in(
    guarded: StoreProcesses, folder: Path, ours: Keys, theirs: Keys
) -> None:
    """CONTRACT 71: it has the same part, and is a stranger all the same."""
    stranger = PartServer(part(folder, 1), guarded.addresses, free_port(), **theirs.server)
    try:
        stranger.start()
        server = RemoteServer(Endpoint.at(guarded.addresses[0], **ours.rank))
        try:
            server.connect(Deadline(PATIENCE_S))
            with pytest.raises(Exception, match=r"not trusted|certificate"):
                server.call("announce", {"address": stranger.address}, {})
            named, _ = server.call("get_store_servers", {}, {})
        finally:
            server.close()
        assert stranger.address not in named
    finally:
        stranger.close()


def test_a_server_of_the_same_authority_is_taken_in(
    guarded: StoreProcesses, folder: Path, ours: Keys
) -> None:
    """CONTRACT 71: a replica with a certificate is named to ranks, and found by them."""
    added = PartServer(part(folder, 1), guarded.addresses[:1], free_port(), **ours.server)
    try:
        added.start()
        with joined(guarded.addresses[0], **ours.rank) as data:
            until(
                lambda: f":{added.port}" in str(data.servers.call(0, "get_store_servers")[0]),
                "the servers name it",
            )
        with joined(guarded.addresses[0], **ours.rank) as data:
            assert f":{added.port}" in data.address
    finally:
        added.close()


def test_bytes_that_are_no_greeting_disturb_nobody(guarded: StoreProcesses, ours: Keys) -> None:
    """CONTRACT 71, 73: a stranger who knows no protocol gets nothing."""
    for server in guarded.servers:
        with socket.create_connection(("localhost", server.port), timeout=PATIENCE_S) as bare:
            bare.sendall(b"GET / HTTP/1.0\r\n\r\n" + bytes(1000))
            assert b"penstock" not in read_all(bare)
    with joined(guarded.addresses, **ours.rank) as data:
        assert data.get_node_types() is None


def read_all(connection: socket.socket) -> bytes:
    found = b""
    try:
        while piece := connection.recv(4096):
            found += piece
    except ConnectionResetError:
        pass
    return found
