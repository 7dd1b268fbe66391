"""Sizes as people write them: 67108864, "64MB", "1.5 GiB"."""

from __future__ import annotations

import re
from typing import Final

# As in the reference design, MB and MiB are both 2**20.
_UNITS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SIZE: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?\s*", re.IGNORECASE)


def parse_bytes(size: int | str, name: str) -> int:
    """Return `size` in bytes; `name` is the argument that errors name."""
    if isinstance(size, str):
        match = _SIZE.fullmatch(size)
        if match is None:
            raise ValueError(f"{name} is {size!r}; expected bytes, or a size such as '64MB'")
        number = int(float(match[1]) * _UNITS[match[2].lower()])
    elif isinstance(size, bool) or not isinstance(size, int):
        raise ValueError(f"{name} is {size!r}; expected bytes, or a size such as '64MB'")
    else:
        number = size
    if number <= 0:
        raise ValueError(f"{name} is {size!r}; it must be greater than 0")
    return number


def written_bytes(nbytes: int) -> str:
    """Return a size as people write it, and `parse_bytes` reads it: about as many bytes."""
    for letter, unit in reversed(_UNITS.items()):
        if nbytes >= unit:
            return f"{nbytes / unit:.4g}{letter.upper()}B"
    return f"{nbytes}B"
