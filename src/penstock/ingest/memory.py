"""How much memory a build may use."""

from __future__ import annotations

from typing import Any, Final

from penstock.client.sizes import parse_bytes
from penstock.workers import cgroups

# Less than that, and nothing could be read.
LEAST: Final = 64 << 20
# Of what the control group or the machine has, if nothing is said.
_SHARE: Final = 4
_UNKNOWN: Final = 4 << 30


def memory_of(said: Any) -> int:
    """Return the bytes that a build may use; None: a quarter of what there is.

    Raises:
        ValueError: It is no size, or too small.
    """
    if said is None:
        return max(LEAST, there_is() // _SHARE)
    found = parse_bytes(said, "memory")
    if found < LEAST:
        raise ValueError(f"memory is {said!r}; expected at least {LEAST >> 20} MiB")
    return found


def there_is() -> int:
    """Return the memory of the control group or of the machine: what is smaller, in bytes."""
    group = cgroups.find("memory")
    limit = None if group is None else cgroups.memory_limit(group)
    return min((size for size in (limit, _total()) if size is not None), default=_UNKNOWN)


def _total() -> int | None:
    import psutil

    return int(psutil.virtual_memory().total)
