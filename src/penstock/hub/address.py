"""Where a hub is found: "unix://@name" (no file; Linux) or "unix:///path/to/socket".

Text for people and settings on one side, what `socket.bind` takes on the other.
"""

from __future__ import annotations

from typing import Final

SCHEME: Final = "unix://"
# The kernel keeps a socket's address in 108 bytes, one of them for a closing or leading zero.
LONGEST: Final = 107


def socket_address(address: str) -> str:
    """What `bind` and `connect` take for `address`; ValueError if it is none."""
    name = address.removeprefix(SCHEME)
    if name == address or not name or name[0] not in "@/" or len(name) < 2 or "\0" in name:
        raise ValueError(
            f"address is {address!r}; expected 'unix://@name' or 'unix:///path/to/socket'"
        )
    if len(name.encode()) > LONGEST:
        raise ValueError(f"address is {address!r}: longer than {LONGEST} bytes")
    return "\0" + name[1:] if name[0] == "@" else name


def socket_file(address: str) -> str | None:
    """The file that listening at `address` makes; None where it makes none."""
    name = socket_address(address)
    return None if name.startswith("\0") else name
