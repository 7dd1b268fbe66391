"""Servers that encrypt: who is let in, what the others are told, and certificates that change."""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from penstock import connect
from penstock.errors import AccessDenied, ProtocolError, ServerGone
from penstock.graph import Graph
from penstock.rpc.connection import RemoteConnection
from penstock.rpc.deadline import Deadline
from penstock.rpc.endpoint import Endpoint
from penstock.rpc.server import RemoteServer
from penstock.server.serving import Server, serve
from penstock.server.transport import authority as authorities
from penstock.server.transport import event_loop
from penstock.server.transport.authority import Authority
from penstock.wire.messages import PROTOCOL, Call, Refused
from penstock.wire.transport.tls import now
from tests.client.graphs import PATIENCE_S
from tests.processes import until
from tests.server.transport.strangers import Stranger, place_of


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority, a server's certificate and a client's."""
    folder: Path = tmp_path_factory.mktemp("keys")
    authority = Authority(folder)
    authority.issue_server()
    authority.issue_client("rank-0")
    return folder


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, of another authority."""
    folder: Path = tmp_path_factory.mktemp("others")
    authority = Authority(folder)
    authority.issue_server()
    authority.issue_client("rank-0")
    return folder


def own(keys: Path) -> dict[str, Path]:
    """What a server needs."""
    return {"certificate": keys / "server.pem", "key": keys / "server.key"}


def known(keys: Path) -> dict[str, Path]:
    """What a client of mutual TLS needs."""
    client = keys / "clients" / "rank-0"
    return {"certificate": client.with_suffix(".pem"), "key": client.with_suffix(".key")}


@pytest.fixture(scope="module")
def server(graph: Graph, keys: Path) -> Iterator[Server]:
    """One that encrypts."""
    with serve(graph, num_workers=1, **own(keys)) as served:
        yield served


@pytest.fixture(scope="module")
def mutual(graph: Graph, keys: Path) -> Iterator[Server]:
    """One that lets in only those it knows, and who say a token."""
    options = {"client_ca": keys / "ca.pem", "tokens": {"alice": "secret"}}
    with serve(graph, num_workers=1, **own(keys), **options) as served:
        yield served


def pinged(address: str, **access: Any) -> None:
    """Comes in, and is answered."""
    with closing(RemoteServer(Endpoint.at(address, **access))) as store:
        store.connect(Deadline(PATIENCE_S))
        assert store.call("ping") == (None, {})


# --- who is let in -------------------------------------------------------------------------------


def test_who_trusts_the_authority_gets_the_same_bytes_as_over_plain_tcp(
    server: Server, graph: Graph, keys: Path
) -> None:
    """CONTRACT 5"""
    assert server.address.startswith("tls://")
    with connect(server.address, ca=keys / "ca.pem", same_host=False) as data:
        ids = np.arange(0, graph.num_nodes(), 3)
        rows = data.get_node_feature(index=ids).numpy()
        assert np.array_equal(rows, graph.node_attribute("x")[ids])
        assert "tls://" in repr(data)


def test_an_authority_is_enough_to_encrypt_whatever_the_address_says(
    server: Server, keys: Path
) -> None:
    pinged(server.address.replace("tls://", "tcp://"), ca=keys / "ca.pem")


def test_whom_to_trust_may_stand_in_the_environment(
    server: Server, keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_CA", str(keys / "ca.pem"))
    pinged(server.address)


def test_a_server_of_another_authority_is_not_spoken_to(server: Server, others: Path) -> None:
    """And not tried again: it will not become another one."""
    with pytest.raises(AccessDenied, match=r"is not trusted: .*certificate.* \(setting: ca\)"):
        pinged(server.address, ca=others / "ca.pem")


def test_a_server_of_another_name_is_not_spoken_to(server: Server, keys: Path) -> None:
    with pytest.raises(AccessDenied, match=r"is not trusted: .*store\.example\.com"):
        pinged(server.address, ca=keys / "ca.pem", server_name="store.example.com")
    pinged(server.address, ca=keys / "ca.pem", server_name="localhost")


def test_who_is_known_by_certificate_and_token_comes_in(mutual: Server, keys: Path) -> None:
    pinged(mutual.address, ca=keys / "ca.pem", token="secret", **known(keys))


def test_who_shows_no_certificate_is_told_what_is_missing(mutual: Server, keys: Path) -> None:
    """CONTRACT 73: over TLS 1.3 a client hears of that only when it listens for the first time."""
    with pytest.raises(AccessDenied, match=r"does not trust our certificate, or wants one"):
        pinged(mutual.address, ca=keys / "ca.pem", token="secret")


def test_a_certificate_of_another_authority_is_none(
    mutual: Server, keys: Path, others: Path
) -> None:
    with pytest.raises(AccessDenied, match=r"does not trust our certificate"):
        pinged(mutual.address, ca=keys / "ca.pem", token="secret", **known(others))


def test_a_certificate_without_the_token_is_not_enough(mutual: Server, keys: Path) -> None:
    with pytest.raises(AccessDenied, match="requires a token"):
        pinged(mutual.address, ca=keys / "ca.pem", **known(keys))


def test_an_expired_certificate_opens_nothing(
    graph: Graph, keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ca.pem", "ca.key"):
        (tmp_path / name).write_bytes((keys / name).read_bytes())
    monkeypatch.setattr(authorities, "now", lambda: now() - timedelta(days=20))
    Authority(tmp_path).issue_server(days=10)
    with serve(graph, num_workers=1, **own(tmp_path)) as expired:
        with pytest.raises(AccessDenied, match="certificate has expired"):
            pinged(expired.address, ca=keys / "ca.pem")


@pytest.mark.parametrize(
    ("access", "words"),
    [
        ({"key": "server.key"}, "Keys of ZeroMQ's have gone"),
        ({"server_name": "store"}, "is not encrypted"),
    ],
)
def test_access_that_makes_no_sense_is_refused_at_once(access: dict[str, str], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Endpoint.at("tcp://127.0.0.1:7070", **access)  # type: ignore[arg-type]


# --- those who do not encrypt, and those who should not ------------------------------------------


def test_who_does_not_encrypt_is_told_to(server: Server) -> None:
    address = server.address.replace("tls://", "tcp://")
    with pytest.raises(AccessDenied, match="this server speaks TLS: connect to tls://"):
        pinged(address)


def test_who_encrypts_where_nobody_does_is_told_so(graph: Graph, keys: Path) -> None:
    with serve(graph, num_workers=1) as plain:
        endpoint = Endpoint.at(plain.address, ca=keys / "ca.pem")
        with pytest.raises(ConnectionError, match="Perhaps the server does not encrypt"):
            RemoteConnection.open(endpoint, Deadline(PATIENCE_S))


def test_an_older_tls_is_not_spoken(server: Server) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with socket.create_connection(place_of(server.address), PATIENCE_S) as old:
        with pytest.raises(ssl.SSLError):
            context.wrap_socket(old)


OLD_CLIENTS = ["plain", "encrypting"]


@pytest.mark.parametrize("encrypts", [False, True], ids=OLD_CLIENTS)
def test_a_client_of_before_is_told_in_words(graph: Graph, keys: Path, encrypts: bool) -> None:
    """It speaks ZeroMQ, says Knock, and raises what comes."""
    zmq = pytest.importorskip("zmq", reason="speaks as clients of version 1 did")
    options = own(keys) if encrypts else {}
    with serve(graph, num_workers=1, **options) as served, zmq.Context() as context:
        with context.socket(zmq.DEALER) as dealer:
            dealer.linger = 0
            dealer.connect(served.address.replace("tls://", "tcp://"))
            dealer.send(msgspec.msgpack.encode({"type": "Knock", "protocol": 1, "pid": 1}))
            assert dealer.poll(PATIENCE_S * 1000), "it is told nothing"
            refused = msgspec.msgpack.decode(dealer.recv(), type=Refused)
    assert (refused.request, refused.report.kind) == (0, ProtocolError.__name__)
    assert f"this server speaks {PROTOCOL}" in refused.report.message
    assert "install the same version" in refused.report.message


@pytest.mark.parametrize(
    "said",
    [b"", b"\x16", b"\x16\x03\x01\xff\xff" + bytes(100), b"GET / HTTP/1.1\r\n\r\n", b"\x80" * 500],
    ids=["nothing", "a byte", "garbage for a handshake", "HTTP", "garbage"],
)
def test_strangers_at_an_encrypted_server_harm_nobody(
    server: Server, keys: Path, said: bytes
) -> None:
    """CONTRACT 73"""
    strangers = [Stranger(server.address, said) for _ in range(10)]
    pinged(server.address, ca=keys / "ca.pem")
    for stranger in strangers:
        stranger.close()
    until(lambda: server.statistics().strangers == 0, "nothing of them is left")


def test_a_handshake_is_not_waited_for_for_ever(graph: Graph, keys: Path) -> None:
    """CONTRACT 73"""
    with serve(graph, num_workers=1, lease=0.5, **own(keys)) as strict:
        with Stranger(strict.address, b"\x16\x03\x01") as silent:
            until(lambda: silent.is_closed, "it is hung up on")


# --- large arrays --------------------------------------------------------------------------------


def test_a_large_batch_is_encrypted_by_a_thread_and_nobody_waits_for_it(
    keys: Path, tmp_path: Path
) -> None:
    """A rank that does not read its forty megabytes keeps nobody from being answered."""
    rows = np.zeros((2000, 5000), np.float32)
    edges = np.random.default_rng(2).integers(0, 2000, (2, 2000))
    with (
        Graph.from_coo(edges, 2000, x=rows, train=np.arange(2000)) as wide,
        serve(wide, num_workers=1, **own(keys)) as served,
        closing(RemoteServer(Endpoint.at(served.address, ca=keys / "ca.pem"))) as slow,
        closing(RemoteServer(Endpoint.at(served.address, ca=keys / "ca.pem"))) as quick,
    ):
        slow.connect(Deadline(PATIENCE_S))
        client = slow._held.one_that_lives()
        assert client is not None
        client._connection.send(Call(request=1000, verb="get_node_feature"), lane=5)
        until(
            lambda: any(one.unsent for one in served.statistics().sessions),
            "it waits to be read",
        )
        for _ in range(10):
            assert quick.call("ping") == (None, {})
        _, arrays = quick.call("get_node_feature", timeout=PATIENCE_S)
        assert next(iter(arrays.values())).nbytes == rows.nbytes


# --- certificates that change --------------------------------------------------------------------


def fingerprint(address: str) -> bytes:
    """Of the certificate that a server shows now."""
    pem = ssl.get_server_certificate(place_of(address), timeout=PATIENCE_S)
    return ssl.PEM_cert_to_DER_cert(pem)


def test_a_certificate_is_reloaded_and_no_rank_notices(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_CA", str(tmp_path / "ca.pem"))
    authority = Authority(tmp_path)
    authority.issue_server()
    with serve(graph, num_workers=1, **own(tmp_path)) as served:
        before = fingerprint(served.address)
        address = Endpoint.at(served.address)
        with closing(RemoteServer(address)) as there:
            there.connect(Deadline(PATIENCE_S))
            authority.issue_server()
            served.reload_certificates()
            until(lambda: fingerprint(served.address) != before, "the new one is shown")
            assert there.call("ping") == (None, {})
            assert served.statistics().opened == 1, "it has connected again"
        pinged(served.address)


def test_files_that_make_no_sense_leave_the_old_certificate_in_use(
    graph: Graph, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Authority(tmp_path).issue_server()
    with serve(graph, num_workers=1, **own(tmp_path)) as served:
        before = fingerprint(served.address)
        (tmp_path / "server.key").write_text("no key")
        served.reload_certificates()
        until(lambda: "stays as it was" in caplog.text, "it is told")
        assert fingerprint(served.address) == before


def test_a_certificate_that_expires_soon_is_warned_of_and_counted(
    graph: Graph,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without waiting for it: the server is told what time it is."""
    Authority(tmp_path).issue_server(days=100)
    late = now() + timedelta(days=90)
    monkeypatch.setattr(event_loop.EventLoop.__init__, "__defaults__", (lambda: late,))
    with caplog.at_level(logging.WARNING), serve(graph, num_workers=1, **own(tmp_path)) as served:
        until(lambda: "expires in 9 days" in caplog.text, "the operator is warned")
        days = served.statistics().certificate_days
        assert days is not None
        assert 9 < days < 10


# --- over a real server --------------------------------------------------------------------------


def test_a_rank_of_a_server_that_comes_back_goes_on_encrypted(
    graph: Graph, keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CONTRACT 41"""
    monkeypatch.setenv("PENSTOCK_CA", str(keys / "ca.pem"))
    with serve(graph, num_workers=1, **own(keys)) as first:
        address = first.address
        with closing(RemoteServer(Endpoint.at(address))) as store:
            store.connect(Deadline(PATIENCE_S))
            first.close()
            with pytest.raises(ServerGone):
                RemoteServer(Endpoint.at(address), 0.1).connect(Deadline(0.2))
            bound = address.replace("tls://", "tcp://")
            with serve(graph, bound, num_workers=1, **own(keys)):
                assert store.call("ping", timeout=PATIENCE_S) == (None, {})
