"""Decides who may connect: everyone on this host, or holders of a certificate or a token.

With a certificate all traffic is encrypted, and a rank can verify that it talks to the right
server. A client authority admits only ranks whose certificate it has signed. Each token has a name;
a rank sends its token in its first message. Without a certificate that message is plain text and
can be read on the network.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.errors import AccessDenied
from penstock.wire.messages import Hello
from penstock.wire.transport.tcp import ENCRYPTED, Address
from penstock.wire.transport.tls import ServerCertificates, StrPath

_COMMENT: Final = "#"


@dataclass(frozen=True, slots=True)
class Peer:
    """The other end of a connection: its host, and the name in its verified certificate."""

    host: str = ""
    name: str | None = None


class Access:
    """What a server requires of those who connect.

    For an address beyond loopback a server needs a certificate, and admits only ranks that have a
    certificate or a token; unless plain text, or anyone, is allowed explicitly.
    """

    def __init__(
        self,
        certificates: ServerCertificates | None = None,
        tokens: Mapping[str, str] | None = None,
        *,
        allow_plaintext: bool = False,
        allow_anyone: bool = False,
    ) -> None:
        self.certificates = certificates
        # Only the digests are kept: they have the same length, whatever is compared with them.
        self._tokens = {name: _digest(token) for name, token in (tokens or {}).items()}
        self._wants_token = tokens is not None
        self._allow_plaintext = allow_plaintext
        self._allow_anyone = allow_anyone

    @classmethod
    def of(
        cls,
        *,
        certificate: StrPath | None = None,
        key: StrPath | None = None,
        client_ca: StrPath | None = None,
        tokens: Mapping[str, str] | StrPath | None = None,
        allow_plaintext: bool = False,
        allow_anyone: bool = False,
    ) -> Access:
        """Make one from what users give: file names, or tokens by name."""
        if certificate is None and (key is not None or client_ca is not None):
            given = "key" if key is not None else "client_ca"
            raise ValueError(f"{given} is given, but certificate, the server's own, is not")
        certificates = None
        if certificate is not None:
            certificates = ServerCertificates(
                Path(certificate),
                None if key is None else Path(key),
                None if client_ca is None else Path(client_ca),
            )
        if tokens is not None and not isinstance(tokens, Mapping):
            tokens = read_tokens(Path(tokens))
        return cls(certificates, tokens, allow_plaintext=allow_plaintext, allow_anyone=allow_anyone)

    def address(self, text: str) -> Address:
        """Return the address to listen on.

        Raises:
            ValueError: It is no address, or it would need better access control than this.
        """
        address = Address.parse(text, listening=True)
        if self.certificates is not None:
            knows = self._wants_token or self.certificates.client_ca is not None
            if not (knows or address.is_loopback or self._allow_anyone):
                raise ValueError(
                    f"address is {text!r}, which other hosts can reach, and whoever does could "
                    "read the graph: name those who may (client_ca=…, tokens=…), or allow it to "
                    "all by name (allow_anyone=True)"
                )
            return Address(ENCRYPTED, address.host, address.port)
        if address.is_encrypted:
            raise ValueError(f"address is {text!r}: give the server a certificate, or use tcp://")
        if not (address.is_loopback or self._allow_plaintext):
            raise ValueError(
                f"address is {text!r}, which other hosts can reach: give the server a certificate "
                "(certificate=…, key=…), or allow plain text by name (allow_plaintext=True); or "
                "bind to tcp://127.0.0.1"
            )
        return address

    def peers(self, addresses: Sequence[str]) -> list[str]:
        """Return addresses of servers that require the same as this one, as ranks are told them.

        Raises:
            ValueError: Something is no address.
        """
        if isinstance(addresses, str):
            raise ValueError(f"store is {addresses!r}; expected a list of addresses")
        try:
            parsed = [Address.parse(text) for text in addresses]
        except ValueError as error:
            raise ValueError(f"store is {', '.join(map(str, addresses))}: {error}") from None
        encrypted = self.certificates is not None
        return [
            str(Address(ENCRYPTED if encrypted else each.scheme, each.host, each.port))
            for each in parsed
        ]

    def check(self, hello: Hello) -> None:
        """Raise `AccessDenied` if a token is required and this message's token is not known."""
        if not self._wants_token:
            return
        if hello.token is None:
            raise AccessDenied("this server requires a token, and none was given (token=…)")
        given = _digest(hello.token)
        # Compare with all tokens, so that the time taken reveals nothing.
        matches = [hmac.compare_digest(given, known) for known in self._tokens.values()]
        if not any(matches):
            raise AccessDenied("this server does not accept this token")


def read_tokens(path: Path) -> dict[str, str]:
    """Read names and their tokens, one pair per line; text after a # is a comment."""
    found: dict[str, str] = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        parts = line.split(_COMMENT)[0].split()
        if not parts:
            continue
        if len(parts) != 2:
            raise ValueError(f"{path}, line {number}: expected a name and a token")
        found[parts[0]] = parts[1]
    return found


def add_token(path: Path, name: str) -> str:
    """Make a new token for a name, and add it to the file.

    Raises:
        FileExistsError: The name has a token already.
    """
    if not name or len(name.split()) != 1 or _COMMENT in name:
        raise ValueError(f"name is {name!r}; expected a word")
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_private(path, b"# Tokens of Penstock's, a name and a word each: keep them.\n")
    if name in read_tokens(path):
        raise FileExistsError(f"{path} has a token for {name!r} already, which stays as it is")
    token = secrets.token_urlsafe(32)
    with path.open("a") as file:
        file.write(f"{name} {token}\n")
    return token


def write_private(path: Path, data: bytes) -> None:
    """Write a new file that only its owner can read; `FileExistsError` if it exists."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
