"""Certificates and a token that a store makes for itself: its servers know each other by them.

A store has an authority of its own, which signs one certificate, and is then forgotten: nobody
can sign another. Its folder is in memory where the system has such, so that no key is on a disk.
All servers have that certificate, under a name that is no host's, so that a server may be on any
host. Readers trust the authority, and show the token. All of it is kept by Ray with the arguments
of actors: whoever reaches Ray's control plane has it.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from pathlib import Path
from typing import Final

import msgspec

# The name in every server's certificate. Authorities differ by store, so names need not.
SERVER_NAME: Final = "server.penstock"
# A file system in memory.
_MEMORY: Final = "/dev/shm"
# Who has the token, as servers are told.
_HOLDER: Final = "ray"
# As long as the authority's own: a store is brought up anew sooner.
_DAYS: Final = 3650


class Credentials(msgspec.Struct, frozen=True, kw_only=True):
    """What servers and readers of one store know each other by.

    Attributes:
        ca: The authority's certificate, in PEM.
        certificate: The servers' certificate, in PEM.
        key: Its private key, in PEM.
        token: What readers, and other servers, show.
    """

    ca: bytes
    certificate: bytes
    key: bytes
    token: str

    @property
    def tokens(self) -> bytes:
        """The file of tokens, as servers read it."""
        return f"{_HOLDER} {self.token}\n".encode()

    def __repr__(self) -> str:
        return "Credentials(…)"


def make_credentials() -> Credentials:
    """Return new credentials, for one store."""
    from penstock.server.transport.authority import Authority

    memory = _MEMORY if os.access(_MEMORY, os.W_OK | os.X_OK) else None
    with tempfile.TemporaryDirectory(prefix="penstock-keys-", dir=memory) as folder:
        keys = Path(folder)
        authority = Authority(keys)
        authority.issue_server((SERVER_NAME,), _DAYS)
        return Credentials(
            ca=authority.certificate.read_bytes(),
            certificate=(keys / "server.pem").read_bytes(),
            key=(keys / "server.key").read_bytes(),
            token=secrets.token_urlsafe(32),
        )
