"""Who may come in: certificates, tokens, and addresses that other hosts can reach."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from penstock.errors import AccessDenied, PenstockError
from penstock.server.transport import authority as authorities
from penstock.server.transport.access import Access, add_token, read_tokens
from penstock.server.transport.authority import Authority
from penstock.wire.messages import PROTOCOL, Hello
from penstock.wire.transport.tls import (
    WARN_BEFORE,
    ServerCertificates,
    client_context,
    expiry_of,
    now,
)


def hello(token: str | None = None) -> Hello:
    return Hello(protocol=PROTOCOL, pid=1, token=token)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority, a server's certificate and a client's."""
    folder: Path = tmp_path_factory.mktemp("keys")
    authority = Authority(folder)
    authority.issue_server(["store.example.com", "10.0.0.7"])
    authority.issue_client("rank-0")
    return folder


# --- tokens --------------------------------------------------------------------------------------


def test_who_says_a_token_that_is_known_may_come_in(tmp_path: Path) -> None:
    token = add_token(tmp_path / "tokens", "alice")
    Access.of(tokens=tmp_path / "tokens").check(hello(token))


@pytest.mark.parametrize(
    ("token", "words"), [(None, "none was given"), ("wrong", "does not accept")]
)
def test_nobody_else_may(tmp_path: Path, token: str | None, words: str) -> None:
    add_token(tmp_path / "tokens", "alice")
    with pytest.raises(AccessDenied, match=words):
        Access.of(tokens=tmp_path / "tokens").check(hello(token))


def test_an_empty_list_of_tokens_lets_nobody_in() -> None:
    with pytest.raises(AccessDenied):
        Access(tokens={}).check(hello("x"))


def test_tokens_can_be_read_by_their_owner_only(tmp_path: Path) -> None:
    add_token(tmp_path / "tokens", "alice")
    assert (tmp_path / "tokens").stat().st_mode & 0o777 == 0o600


def test_a_second_token_for_a_name_is_refused(tmp_path: Path) -> None:
    add_token(tmp_path / "tokens", "alice")
    with pytest.raises(FileExistsError, match="'alice'"):
        add_token(tmp_path / "tokens", "alice")
    assert list(read_tokens(tmp_path / "tokens")) == ["alice"]


def test_a_list_of_tokens_with_a_bad_line_names_it(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("# people\nalice\n")
    with pytest.raises(ValueError, match="line 2"):
        read_tokens(tmp_path / "tokens")


# --- addresses -----------------------------------------------------------------------------------


def test_only_a_certificate_or_a_flag_opens_a_server_to_other_hosts(keys: Path) -> None:
    anywhere = "tcp://0.0.0.0:7070"
    for weak in (Access(), Access(tokens={"alice": "x"})):
        with pytest.raises(ValueError, match="which other hosts can reach"):
            weak.address(anywhere)
    assert str(Access(allow_plaintext=True).address(anywhere)) == anywhere
    own = {"certificate": keys / "server.pem", "key": keys / "server.key"}
    for known in ({"tokens": {"alice": "x"}}, {"client_ca": keys / "ca.pem"}):
        assert str(Access.of(**own, **known).address(anywhere)) == "tls://0.0.0.0:7070"


def test_a_certificate_alone_opens_a_server_to_no_other_host(keys: Path) -> None:
    """Whoever reaches it could read the graph: that is allowed by name only."""
    own = {"certificate": keys / "server.pem", "key": keys / "server.key"}
    assert str(Access.of(**own).address("tcp://127.0.0.1:7070")) == "tls://127.0.0.1:7070"
    with pytest.raises(ValueError, match=r"client_ca=…, tokens=….*allow_anyone=True"):
        Access.of(**own).address("tcp://0.0.0.0:7070")
    anyone = Access.of(**own, allow_anyone=True)
    assert str(anyone.address("tcp://0.0.0.0:7070")) == "tls://0.0.0.0:7070"


def test_an_encrypted_address_wants_a_certificate() -> None:
    with pytest.raises(ValueError, match="give the server a certificate"):
        Access(allow_plaintext=True).address("tls://127.0.0.1:0")


@pytest.mark.parametrize("name", ["key", "client_ca"])
def test_what_belongs_to_a_certificate_is_nothing_without_one(keys: Path, name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is given, but certificate"):
        Access.of(**{name: keys / "ca.pem"})


# --- files ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("files", [("ca.pem", "server.key"), ("server.key", "server.key")])
def test_files_that_do_not_belong_together_are_named(keys: Path, files: tuple[str, str]) -> None:
    certificate, key = (keys / name for name in files)
    with pytest.raises(ValueError, match="no certificate with its private key") as caught:
        ServerCertificates(certificate, key)
    assert str(certificate) in str(caught.value)


def test_a_file_that_is_not_there_is_named(keys: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        ServerCertificates(keys / "nowhere.pem", keys / "server.key")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        client_context(keys / "nowhere.pem")


def test_a_file_of_something_else_is_no_authority(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(bytes(range(256)))
    with pytest.raises(ValueError, match="no certificate in PEM"):
        client_context(tmp_path / "x")


def test_an_encrypted_key_is_refused_rather_than_waited_for(keys: Path, tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_pem_private_key((keys / "server.key").read_bytes(), None)
    (tmp_path / "server.key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    with pytest.raises(ValueError, match="without a passphrase"):
        ServerCertificates(keys / "server.pem", tmp_path / "server.key")


def test_certificate_and_key_may_be_in_one_file(keys: Path, tmp_path: Path) -> None:
    both = (keys / "server.pem").read_bytes() + (keys / "server.key").read_bytes()
    (tmp_path / "both.pem").write_bytes(both)
    assert ServerCertificates(tmp_path / "both.pem").expires > now()


def test_a_key_that_others_can_read_is_warned_of(
    keys: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Not refused: orchestrators mount them so."""
    (tmp_path / "server.key").write_bytes((keys / "server.key").read_bytes())
    (tmp_path / "server.key").chmod(0o644)
    ServerCertificates(keys / "server.pem", tmp_path / "server.key")
    assert "chmod 600" in caplog.text


# --- when certificates expire --------------------------------------------------------------------

EXPIRES = datetime(2031, 5, 4, 3, 2, 1, tzinfo=UTC)


def test_when_a_certificate_expires_is_read_from_it(tmp_path: Path) -> None:
    """As OpenSSL reads it."""
    authority = Authority(tmp_path)
    authority.issue_server(days=77)
    found = expiry_of(tmp_path / "server.pem")
    told = ssl._ssl._test_decode_cert(str(tmp_path / "server.pem"))["notAfter"]  # type: ignore[attr-defined]
    assert found.timestamp() == ssl.cert_time_to_seconds(told)
    assert abs(found - now() - timedelta(days=77)) < timedelta(minutes=5)


def test_a_certificate_of_the_far_future_is_read_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After 2049 the year has four digits."""
    monkeypatch.setattr(authorities, "now", lambda: datetime(2060, 1, 2, tzinfo=UTC))
    Authority(tmp_path).issue_server(days=10)
    assert expiry_of(tmp_path / "server.pem") == datetime(2060, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("left", "words"),
    [
        (WARN_BEFORE + timedelta(seconds=1), None),
        (WARN_BEFORE, "expires in 30 days (2031-05-04 03:02 UTC)"),
        (timedelta(hours=30), "expires in 1 days"),
        (timedelta(0), "has expired (2031-05-04 03:02 UTC)"),
        (timedelta(days=-3), "no rank can connect"),
    ],
    ids=["long", "a month", "a day", "now", "past"],
)
def test_a_certificate_is_warned_of_before_it_expires(
    keys: Path, left: timedelta, words: str | None
) -> None:
    certificates = ServerCertificates(keys / "server.pem", keys / "server.key")
    certificates.expires = EXPIRES
    told = certificates.warning(EXPIRES - left)
    assert told == words if words is None else words in str(told)
    assert words is None or str(keys / "server.pem") in str(told)


def test_files_that_make_no_sense_change_nothing_when_they_are_read_again(
    keys: Path, tmp_path: Path
) -> None:
    for name in ("server.pem", "server.key"):
        (tmp_path / name).write_bytes((keys / name).read_bytes())
    certificates = ServerCertificates(tmp_path / "server.pem", tmp_path / "server.key")
    before = certificates.context, certificates.expires
    (tmp_path / "server.pem").write_text("half a certific")
    with pytest.raises(ValueError, match="no certificate"):
        certificates.reload()
    assert (certificates.context, certificates.expires) == before


# --- an authority of one's own -------------------------------------------------------------------


def test_private_keys_can_be_read_by_their_owner_only(keys: Path) -> None:
    private = [keys / "ca.key", keys / "server.key", keys / "clients" / "rank-0.key"]
    assert [path.stat().st_mode & 0o777 for path in private] == [0o600] * 3
    assert (keys / "ca.pem").stat().st_mode & 0o444 == 0o444


def test_a_server_is_known_by_all_names_it_was_given(keys: Path) -> None:
    told = ssl._ssl._test_decode_cert(str(keys / "server.pem"))  # type: ignore[attr-defined]
    names = {value for _, value in told["subjectAltName"]}
    assert names >= {"store.example.com", "10.0.0.7", "localhost", "127.0.0.1"}


def test_an_authority_is_made_once(keys: Path) -> None:
    before = (keys / "ca.pem").read_bytes()
    assert Authority(keys).made == []
    assert (keys / "ca.pem").read_bytes() == before


def test_a_client_that_has_a_certificate_keeps_it(keys: Path) -> None:
    with pytest.raises(FileExistsError, match="rank-0"):
        Authority(keys).issue_client("rank-0")


@pytest.mark.parametrize("name", ["../server", "", ".hidden", "a b"])
def test_a_name_that_is_no_file_name_is_refused(keys: Path, name: str) -> None:
    with pytest.raises(ValueError, match="name is"):
        Authority(keys).issue_client(name)


def test_without_the_authoritys_key_nothing_can_be_signed(keys: Path, tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_bytes((keys / "ca.pem").read_bytes())
    with pytest.raises(FileNotFoundError, match=r"ca\.key is not here"):
        Authority(tmp_path).issue_server()
    assert not (tmp_path / "server.pem").exists()


def test_what_is_missing_to_make_certificates_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "cryptography", None)
    with pytest.raises(PenstockError, match=r"pip install 'penstock-gnn\[tls\]'"):
        Authority(tmp_path)
