"""Who may come in, beyond this host: by the server's key, by a key it knows, or by a token.

With keys everything that is said is encrypted, and a rank knows that the server is the one it
means. A folder of public keys lets in their owners only. Tokens are names with a word each; a rank
says its word in its first message, which without keys anybody on the way can read.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import zmq
from zmq.auth.thread import ThreadAuthenticator

from penstock.errors import AccessDenied
from penstock.server.admission import Peer
from penstock.wire.keys import PUBLIC, KeyPair, read_pair, read_public, write_private
from penstock.wire.remote import Knock

_DOMAIN: Final = "penstock"
_COMMENT: Final = "#"


@dataclass(frozen=True, slots=True)
class CurveKeys:
    """A server's pair, and the public keys of those it lets in (None: all who have its own)."""

    pair: KeyPair
    clients: Mapping[bytes, str] | None = None  # to the name of whose it is

    @classmethod
    def read(cls, server: str | os.PathLike[str], clients: Path | None = None) -> CurveKeys:
        """From a secret file, and a folder of public ones."""
        known = None if clients is None else _keys_in(clients)
        return cls(read_pair(server), known)


class Gate:
    """Keys and tokens, as far as they are wanted."""

    def __init__(
        self,
        curve: CurveKeys | None = None,
        tokens: Mapping[str, str] | None = None,
        *,
        allow_plaintext: bool = False,
    ) -> None:
        self._curve = curve
        # Only their digests: of the same length, whatever is compared with them.
        self._tokens = {name: _digest(token) for name, token in (tokens or {}).items()}
        self._wants_token = tokens is not None
        self._authenticator: ThreadAuthenticator | None = None
        self.open_beyond_loopback = curve is not None or allow_plaintext

    def configure(self, context: zmq.Context[Any], router: zmq.Socket[Any]) -> None:
        """Has the socket speak to those with keys only."""
        if self._curve is None:
            return
        router.curve_server = True
        router.curve_publickey = self._curve.pair.public
        router.curve_secretkey = self._curve.pair.secret
        if self._curve.clients is not None:
            router.zap_domain = _DOMAIN.encode()
            self._authenticator = ThreadAuthenticator(context)
            self._authenticator.start()
            self._authenticator.configure_curve_callback(_DOMAIN, _Known(self._curve.clients))

    def check(self, knock: Knock, peer: Peer) -> None:
        """AccessDenied for a token that is not among those there are."""
        if not self._wants_token:
            return
        if knock.token is None:
            raise AccessDenied("this server wants a token, and none came (token=…)")
        given = _digest(knock.token)
        # All of them, so that the time it takes tells nothing.
        matches = [hmac.compare_digest(given, known) for known in self._tokens.values()]
        if not any(matches):
            raise AccessDenied("this server does not know the token that came")

    def close(self) -> None:
        """Ends the thread that looks at keys. Idempotent."""
        authenticator, self._authenticator = self._authenticator, None
        if authenticator is not None:
            authenticator.stop()


class _Known:
    """What the authenticator asks."""

    def __init__(self, clients: Mapping[bytes, str]) -> None:
        self._clients = clients

    def callback(self, domain: str, key: bytes) -> bool:
        """Whether the owner of a key may come in."""
        return key in self._clients


def admission_for(
    *,
    curve: CurveKeys | str | os.PathLike[str] | None = None,
    tokens: Mapping[str, str] | str | os.PathLike[str] | None = None,
    allow_plaintext: bool = False,
) -> Gate:
    """A gate of what users give: keys or their file, tokens by name or their file."""
    if curve is not None and not isinstance(curve, CurveKeys):
        curve = CurveKeys.read(curve)
    if tokens is not None and not isinstance(tokens, Mapping):
        tokens = read_tokens(Path(tokens))
    return Gate(curve, tokens, allow_plaintext=allow_plaintext)


def read_tokens(path: Path) -> dict[str, str]:
    """Names and their words, a line each; what follows a # is for people."""
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
    """A new token under a name, added to the file; FileExistsError if the name is taken."""
    if not name or len(name.split()) != 1 or _COMMENT in name:
        raise ValueError(f"name is {name!r}; expected a word")
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_private(path, "# Tokens of Penstock's, a name and a word each: keep them.\n")
    if name in read_tokens(path):
        raise FileExistsError(f"{path} has a token for {name!r} already, which stays as it is")
    token = secrets.token_urlsafe(32)
    with path.open("a") as file:
        file.write(f"{name} {token}\n")
    return token


def _keys_in(folder: Path) -> dict[bytes, str]:
    if not folder.is_dir():
        raise ValueError(f"{folder} is no folder of public keys")
    return {read_public(path): path.stem for path in sorted(folder.glob(f"*{PUBLIC}"))}


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
