"""Which part of which server's inputs a rank takes, when ranks share the inputs of servers.

All servers' inputs, one server after the other, are divided into as many equal parts as there are
ranks. A part may end in the middle of a server, so it is a list of fractions. Both ranks at a
boundary compute it by the same formula, so all slices of a server together contain each of its
inputs once. Slices answer queries; they do not determine batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeVar


class _Sliced(Protocol):
    """Anything that can be sliced: lists, arrays, tensors."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: slice, /) -> Any: ...


_T = TypeVar("_T", bound=_Sliced)


@dataclass(frozen=True, slots=True)
class ServerSlice:
    """The fraction from `first`/`of` to `end`/`of` of the inputs of server number `server`.

    Attributes:
        server: The number of the server.
        first: Where the fraction begins.
        end: Where it ends.
        of: The number of parts that `first` and `end` count.

    Raises:
        ValueError: The numbers make no fraction.

    Examples:
        >>> import penstock as ps
        >>> ps.ServerSlice(0, first=1, end=2, of=4).cut(["a", "b", "c", "d"])
        ['b']
    """

    server: int
    first: int = 0
    end: int = 1
    of: int = 1

    def __post_init__(self) -> None:
        for name in ("server", "first", "end", "of"):
            _check_integer(name, getattr(self, name))
        if self.server < 0:
            raise ValueError(f"server is {self.server}; expected at least 0")
        if not 0 <= self.first <= self.end <= self.of or self.of < 1:
            raise ValueError(
                f"the slice is {self.first}/{self.of} to {self.end}/{self.of}; "
                "expected 0 <= first <= end <= of, and of at least 1"
            )

    @classmethod
    def whole(cls, server: int) -> Self:
        """Return the slice with all inputs of a server.

        Args:
            server: The number of the server.
        """
        return cls(server)

    def rows(self, length: int) -> slice:
        """Return which of `length` rows belong to the slice.

        Args:
            length: The number of rows.
        """
        return slice(length * self.first // self.of, length * self.end // self.of)

    def cut(self, values: _T) -> _T:
        """Return the values that belong to the slice: a view, if slicing gives one.

        Args:
            values: A list, an array or a tensor.
        """
        cut: _T = values[self.rows(len(values))]
        return cut


def compute_server_assignments(servers: int, ranks: int, rank: int) -> dict[int, ServerSlice]:
    """Return the slices of one rank, by server number, in ascending order.

    With 3 servers and 2 ranks, rank 0 has server 0 and the first half of server 1.

    Args:
        servers: The number of servers.
        ranks: The number of ranks that share them.
        rank: The rank whose slices are computed.

    Returns:
        A slice for each server that the rank has something of.

    Raises:
        ValueError: A number is out of range.

    Examples:
        >>> import penstock as ps
        >>> for server, part in ps.compute_server_assignments(servers=3, ranks=2, rank=0).items():
        ...     print(server, part.first, part.end, part.of)
        0 0 2 2
        1 0 1 2
    """
    for name, value, least in (("servers", servers, 1), ("ranks", ranks, 1), ("rank", rank, 0)):
        _check_integer(name, value)
        if value < least:
            raise ValueError(f"{name} is {value}; expected at least {least}")
    if rank >= ranks:
        raise ValueError(f"rank is {rank}; expected 0 <= rank < {ranks}")
    # Each server has `ranks` units, so each rank takes `servers` units.
    first, end = rank * servers, (rank + 1) * servers
    there = range(first // ranks, (end - 1) // ranks + 1)
    return {server: _overlap(server, first, end, ranks) for server in there}


def _overlap(server: int, first: int, end: int, ranks: int) -> ServerSlice:
    begin = server * ranks
    return ServerSlice(server, max(first - begin, 0), min(end - begin, ranks), ranks)


def _check_integer(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{name} is {value!r}; expected an integer")
