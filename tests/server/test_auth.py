"""Keys and tokens."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import zmq

from penstock.errors import AccessDenied
from penstock.server.admission import Peer
from penstock.server.auth import CurveKeys, Gate, add_token, admission_for, read_tokens
from penstock.wire.keys import new_pair, read_pair, read_public, write_pair
from penstock.wire.remote import Knock

WAIT_MS = 60_000


def knock(token: str | None = None) -> Knock:
    return Knock(protocol=1, pid=1, host="", token=token)


def test_a_secret_key_can_be_read_by_its_owner_only(tmp_path: Path) -> None:
    secret, public = write_pair(tmp_path, "server")
    assert secret.stat().st_mode & 0o777 == 0o600
    assert read_public(public) == read_pair(secret).public
    assert "secret =" not in public.read_text()


def test_a_secret_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    secret, _ = write_pair(tmp_path, "server")
    secret.chmod(0o644)
    with pytest.raises(ValueError, match="chmod 600"):
        read_pair(secret)


def test_a_key_that_is_there_is_never_written_over(tmp_path: Path) -> None:
    secret, _ = write_pair(tmp_path, "server")
    before = secret.read_text()
    with pytest.raises(FileExistsError, match="stays as it is"):
        write_pair(tmp_path, "server")
    assert secret.read_text() == before


def test_halves_that_do_not_belong_together_are_found_out(tmp_path: Path) -> None:
    secret, _ = write_pair(tmp_path, "server")
    other = new_pair().public.decode()
    text = secret.read_text().replace(read_pair(secret).public.decode(), other)
    secret.write_text(text)
    with pytest.raises(ValueError, match="do not belong together"):
        read_pair(secret)


@pytest.mark.parametrize("name", ["../server", "", ".hidden", "a b"])
def test_a_name_that_is_no_file_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="name is"):
        write_pair(tmp_path / "keys", name)
    assert not (tmp_path / "keys").exists()


def test_a_pair_does_not_show_its_secret() -> None:
    pair = new_pair()
    assert pair.secret.decode() not in repr(pair)


def test_a_public_key_can_be_given_in_its_letters() -> None:
    pair = new_pair()
    assert read_public(pair.public.decode()) == pair.public


def test_a_file_of_something_else_is_no_key(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(os.urandom(200))
    with pytest.raises(ValueError, match="no public key"):
        read_public(tmp_path / "x")


def test_a_token_that_is_known_opens_the_gate(tmp_path: Path) -> None:
    token = add_token(tmp_path / "tokens", "alice")
    admission_for(tokens=tmp_path / "tokens").check(knock(token), Peer())


@pytest.mark.parametrize(("token", "words"), [(None, "none came"), ("wrong", "does not know")])
def test_any_other_does_not(tmp_path: Path, token: str | None, words: str) -> None:
    add_token(tmp_path / "tokens", "alice")
    with pytest.raises(AccessDenied, match=words):
        admission_for(tokens=tmp_path / "tokens").check(knock(token), Peer())


def test_an_empty_list_of_tokens_lets_nobody_in() -> None:
    with pytest.raises(AccessDenied):
        Gate(tokens={}).check(knock("x"), Peer())


def test_a_second_token_for_a_name_is_refused(tmp_path: Path) -> None:
    add_token(tmp_path / "tokens", "alice")
    with pytest.raises(FileExistsError, match="'alice'"):
        add_token(tmp_path / "tokens", "alice")
    assert list(read_tokens(tmp_path / "tokens")) == ["alice"]


def test_a_list_of_tokens_with_a_bad_line_names_it(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("# people\nalice\n")
    with pytest.raises(ValueError, match="line 2"):
        read_tokens(tmp_path / "tokens")


def test_only_keys_or_a_flag_open_a_server_to_other_hosts() -> None:
    assert not Gate(tokens={"alice": "x"}).open_beyond_loopback
    assert Gate(CurveKeys(new_pair())).open_beyond_loopback
    assert Gate(allow_plaintext=True).open_beyond_loopback


class TestWithASocket:
    """Who gets a word through to a ROUTER that has keys."""

    def heard(self, gate: Gate, **options: bytes) -> bool:
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        router, dealer = context.socket(zmq.ROUTER), context.socket(zmq.DEALER)
        try:
            gate.configure(context, router)
            port = router.bind_to_random_port("tcp://127.0.0.1")
            for name, value in options.items():
                setattr(dealer, name, value)
            monitor = dealer.get_monitor_socket()
            dealer.connect(f"tcp://127.0.0.1:{port}")
            dealer.send(b"hello")
            return self._ends_well(router, monitor)
        finally:
            gate.close()
            context.destroy(linger=0)

    def _ends_well(self, router: zmq.Socket[bytes], monitor: zmq.Socket[bytes]) -> bool:
        """Whether the word came, before the handshake failed."""
        poller = zmq.Poller()
        poller.register(router, zmq.POLLIN)
        poller.register(monitor, zmq.POLLIN)
        while ready := dict(poller.poll(WAIT_MS)):
            if router in ready:
                return True
            event = int.from_bytes(monitor.recv_multipart()[0][:2], "little")
            if event in (
                zmq.EVENT_HANDSHAKE_FAILED_AUTH,
                zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL,
                zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL,
                zmq.EVENT_DISCONNECTED,
            ):
                return False
        raise AssertionError("neither came a word nor did the handshake fail")

    def test_who_has_the_servers_public_key_is_heard(self) -> None:
        server, client = new_pair(), new_pair()
        gate = Gate(CurveKeys(server))
        assert self.heard(
            gate,
            curve_serverkey=server.public,
            curve_publickey=client.public,
            curve_secretkey=client.secret,
        )

    def test_who_has_none_is_not(self) -> None:
        assert not self.heard(Gate(CurveKeys(new_pair())))

    def test_where_clients_are_named_another_key_is_not_enough(self) -> None:
        server, known, stranger = new_pair(), new_pair(), new_pair()
        for client, welcome in ((known, True), (stranger, False)):
            gate = Gate(CurveKeys(server, {known.public: "known"}))
            heard = self.heard(
                gate,
                curve_serverkey=server.public,
                curve_publickey=client.public,
                curve_secretkey=client.secret,
            )
            assert heard is welcome
