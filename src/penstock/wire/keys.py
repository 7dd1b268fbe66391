"""Keys for connections that nobody else can read: written once, told apart, kept from others.

CURVE keys come in pairs. A server has one, whose public half its ranks must know; a rank makes one
up for each connection, or has one of its own where a server lets in only those it knows.

    keys/
      server.secret     stays with the server (mode 600)
      server.public     goes to every rank
      rank-0.secret     …

A file has a line for each half. Wherever a public key is expected, its 40 letters will do as well.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import zmq

SECRET: Final = ".secret"
PUBLIC: Final = ".public"
_LINE: Final = re.compile(r"^(public|secret) = (\S{40})$", re.MULTILINE)
_NAME: Final = re.compile(r"[\w.-]{1,64}")


@dataclass(frozen=True, slots=True)
class KeyPair:
    """Both halves, in Z85. The secret one is not shown."""

    public: bytes
    secret: bytes = field(repr=False)


def new_pair() -> KeyPair:
    """A pair that nobody has."""
    return KeyPair(*zmq.curve_keypair())


def write_pair(folder: Path, name: str) -> tuple[Path, Path]:
    """Makes a pair and writes its files, the secret one for its owner only.

    FileExistsError for a name that is taken: whoever has the public half would be locked out.
    """
    if not _NAME.fullmatch(name) or name.startswith("."):
        raise ValueError(f"name is {name!r}; expected letters, digits, '-', '_' and '.'")
    secret, public = folder / f"{name}{SECRET}", folder / f"{name}{PUBLIC}"
    for path in (secret, public):
        if path.exists():
            raise FileExistsError(f"{path} is there already, and stays as it is")
    folder.mkdir(parents=True, exist_ok=True)
    pair = new_pair()
    halves = f"public = {pair.public.decode()}\n", f"secret = {pair.secret.decode()}\n"
    write_private(secret, f"# A secret key of Penstock's: keep it.\n{halves[0]}{halves[1]}")
    public.write_text(f"# A public key of Penstock's.\n{halves[0]}")
    return secret, public


def write_private(path: Path, text: str) -> None:
    """A new file that only its owner can read."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)


def read_pair(path: str | os.PathLike[str]) -> KeyPair:
    """The pair in a secret file; ValueError if others can read it, or it is none."""
    halves = _halves(Path(path))
    if halves.keys() != {"public", "secret"}:
        raise ValueError(f"{path} is no secret key, as 'penstock keys' writes them")
    if os.name == "posix" and os.stat(path).st_mode & 0o077:
        raise ValueError(f"{path} can be read by others than its owner: chmod 600 it")
    pair = KeyPair(halves["public"].encode(), halves["secret"].encode())
    if zmq.curve_public(pair.secret) != pair.public:
        raise ValueError(f"{path} has two halves that do not belong together")
    return pair


def read_public(key: str | bytes | os.PathLike[str]) -> bytes:
    """A public key: given in its 40 letters, or by the file it is in."""
    text = key.decode() if isinstance(key, bytes) else str(key)
    if len(text) == 40 and not Path(text).exists():
        return text.encode()
    halves = _halves(Path(text))
    if "public" not in halves:
        raise ValueError(f"{text} is no public key, as 'penstock keys' writes them")
    return halves["public"].encode()


def _halves(path: Path) -> dict[str, str]:
    try:
        return dict(_LINE.findall(path.read_text()))
    except UnicodeDecodeError:
        return {}
