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
    """A fraction of the inputs of one server, from its start to its end.

    Attributes:
        server_rank: The number of the server.
        start_num: Numerator of the start.
        start_den: Denominator of the start.
        end_num: Numerator of the end.
        end_den: Denominator of the end.

    Raises:
        ValueError: The numbers make no fraction.

    Examples:
        >>> import penstock as ps
        >>> ps.ServerSlice(0, 1, 4, 2, 4).slice_tensor(["a", "b", "c", "d"])
        ['b']
    """

    server_rank: int
    start_num: int = 0
    start_den: int = 1
    end_num: int = 1
    end_den: int = 1

    def __post_init__(self) -> None:
        for name in self.__slots__:
            _check_integer(name, getattr(self, name))
        for name, least in (("server_rank", 0), ("start_den", 1), ("end_den", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} is {getattr(self, name)}; expected at least {least}")
        in_order = self.start_num * self.end_den <= self.end_num * self.start_den
        if not (self.start_num >= 0 and in_order and self.end_num <= self.end_den):
            raise ValueError(
                f"the slice is {self.start_num}/{self.start_den} to {self.end_num}/{self.end_den}; "
                "expected 0 <= start <= end <= 1"
            )

    @classmethod
    def whole(cls, server_rank: int) -> Self:
        """Return the slice with all inputs of a server.

        Args:
            server_rank: The number of the server.
        """
        return cls(server_rank)

    def rows(self, length: int) -> slice:
        """Return which of `length` rows belong to the slice.

        Args:
            length: The number of rows.
        """
        return slice(
            length * self.start_num // self.start_den, length * self.end_num // self.end_den
        )

    def slice_tensor(self, tensor: _T) -> _T:
        """Return the values that belong to the slice: a view, if slicing gives one.

        Args:
            tensor: A tensor, an array or a list.
        """
        cut: _T = tensor[self.rows(len(tensor))]
        return cut


def compute_server_assignments(
    num_servers: int, num_compute_nodes: int, compute_rank: int
) -> dict[int, ServerSlice]:
    """Return the slices of one rank, by server number, in ascending order.

    With 3 servers and 2 ranks, rank 0 has server 0 and the first half of server 1.

    Args:
        num_servers: The number of servers.
        num_compute_nodes: The number of ranks that share them.
        compute_rank: The rank whose slices are computed.

    Returns:
        A slice for each server that the rank has something of.

    Raises:
        ValueError: A number is out of range.

    Examples:
        >>> import penstock as ps
        >>> parts = ps.compute_server_assignments(
        ...     num_servers=3, num_compute_nodes=2, compute_rank=0
        ... )
        >>> for rank, part in parts.items():
        ...     print(rank, part.start_num, part.start_den, part.end_num, part.end_den)
        0 0 2 2 2
        1 0 2 1 2
    """
    for name, value, least in (
        ("num_servers", num_servers, 1),
        ("num_compute_nodes", num_compute_nodes, 1),
        ("compute_rank", compute_rank, 0),
    ):
        _check_integer(name, value)
        if value < least:
            raise ValueError(f"{name} is {value}; expected at least {least}")
    if compute_rank >= num_compute_nodes:
        raise ValueError(
            f"compute_rank is {compute_rank}; expected 0 <= compute_rank < {num_compute_nodes}"
        )
    # Each server has one unit for each rank, so each rank takes as many units as there are servers.
    first, end = compute_rank * num_servers, (compute_rank + 1) * num_servers
    there = range(first // num_compute_nodes, (end - 1) // num_compute_nodes + 1)
    return {server: _overlap(server, first, end, num_compute_nodes) for server in there}


def _overlap(server: int, first: int, end: int, units: int) -> ServerSlice:
    begin = server * units
    return ServerSlice(server, max(first - begin, 0), units, min(end - begin, units), units)


def _check_integer(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{name} is {value!r}; expected an integer")
