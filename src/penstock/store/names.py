"""Names of stores: text that something resolves to the addresses of all servers, now and later.

    with resolve("ray:products", timeout=30.0) as name:
        StoreServers.find(
            name.addresses, address_file=name.address_file, **name.access
        )

Which scheme is resolved by what is a table here; the module is imported when a name is used, so
that nobody pays for what others resolve names with. This module must not import any of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final, Protocol, Self

# Scheme -> what resolves it: a class that is made with the rest of the name and `timeout`.
RESOLVERS: Final = {"ray": "penstock.cluster.name:RayName"}


class StoreName(Protocol):
    """A name that was resolved, and is, until it is closed."""

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses of the servers when it was resolved; at least one."""

    @property
    def access(self) -> Mapping[str, Any]:
        """Credentials for them: some of `ca`, `server_name` and `token`."""

    @property
    def address_file(self) -> str:
        """The file of an `AddressFile`, which has the addresses as they are now."""

    def close(self) -> None:
        """Stop resolving it. Idempotent."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


def is_name(text: object) -> bool:
    """Return whether this is a name and no address: "ray:products" is one."""
    if not isinstance(text, str):
        return False
    scheme, colon, rest = text.partition(":")
    return bool(colon) and scheme in RESOLVERS and not rest.startswith("//")


def resolve(text: str, timeout: float | None) -> StoreName:
    """Return what a name stands for.

    Args:
        text: The name, with its scheme.
        timeout: Seconds to wait until at least one server has an address; None: no limit.

    Raises:
        ValueError: There is no such name; the error names those that there are.
        ServerGone: No server has an address in time.
    """
    scheme, _, rest = text.partition(":")
    module, _, attribute = RESOLVERS[scheme].partition(":")
    resolved: StoreName = getattr(import_module(module), attribute)(rest, timeout)
    return resolved
