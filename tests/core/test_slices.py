"""How ranks share out what servers hold."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.slices import ServerSlice, compute_server_assignments

few = st.integers(1, 12)


@given(few, few, st.lists(st.integers(0, 60), min_size=12, max_size=12))
def test_slices_of_all_ranks_recombine_to_all_that_servers_hold(
    servers: int, ranks: int, sizes: list[int]
) -> None:
    """CONTRACT 36: every row of every server, once, in order of ranks."""
    found: dict[int, list[int]] = {server: [] for server in range(servers)}
    for rank in range(ranks):
        for server, piece in compute_server_assignments(servers, ranks, rank).items():
            assert piece.server_rank == server
            found[server] += piece.slice_tensor(range(sizes[server]))
    assert found == {server: list(range(sizes[server])) for server in range(servers)}


@given(few, few)
def test_a_rank_has_an_equal_and_contiguous_share(servers: int, ranks: int) -> None:
    """CONTRACT 36: contiguous; every rank has `servers / ranks` of a server in all."""
    for rank in range(ranks):
        slices = compute_server_assignments(servers, ranks, rank)
        assert list(slices) == list(range(min(slices), max(slices) + 1))
        assert sum(piece.end_num - piece.start_num for piece in slices.values()) == servers
        assert all(piece.start_den == piece.end_den == ranks for piece in slices.values())
        assert all(piece.start_num == 0 for piece in list(slices.values())[1:])
        assert all(piece.end_num == piece.end_den for piece in list(slices.values())[:-1])


def test_two_ranks_share_the_middle_of_three_servers() -> None:
    """CONTRACT 36: rank 0 has server 0 and the first half of server 1."""
    assert compute_server_assignments(3, 2, 0) == {
        0: ServerSlice(0, 0, 2, 2, 2),
        1: ServerSlice(1, 0, 2, 1, 2),
    }
    assert compute_server_assignments(3, 2, 1) == {
        1: ServerSlice(1, 1, 2, 2, 2),
        2: ServerSlice(2, 0, 2, 2, 2),
    }


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((0, 1, 0), "num_servers is 0"),
        ((1, 0, 0), "num_compute_nodes is 0"),
        ((1, 2, 2), "compute_rank is 2; expected 0 <= compute_rank < 2"),
        ((1, 2, -1), "compute_rank is -1"),
        ((1.5, 2, 0), "num_servers is 1.5; expected an integer"),
        ((1, True, 0), "num_compute_nodes is True"),
    ],
)
def test_numbers_out_of_range_are_refused(arguments: Any, words: str) -> None:
    """CONTRACT 36: ValueError."""
    with pytest.raises(ValueError, match=words):
        compute_server_assignments(*arguments)


@pytest.mark.parametrize(
    "fields",
    [(-1,), (0, 2, 3, 1, 3), (0, 0, 3, 4, 3), (0, 0, 0, 0, 0), (0, -1, 1, 1, 1), (0, 1, 2, 1, 3)],
)
def test_a_slice_that_cannot_be_is_refused(fields: Any) -> None:
    """CONTRACT 36: ValueError, also for what was made by hand or came over a wire."""
    with pytest.raises(ValueError, match="expected"):
        ServerSlice(*fields)


def test_a_whole_server_is_a_slice_too() -> None:
    assert ServerSlice.whole(4).slice_tensor([1, 2, 3]) == [1, 2, 3]


def test_the_names_of_the_reference_are_those_of_the_fields() -> None:
    """CONTRACT 36: fractions may have different denominators."""
    found = compute_server_assignments(num_servers=3, num_compute_nodes=2, compute_rank=0)
    assert found[1] == ServerSlice(server_rank=1, start_num=0, start_den=2, end_num=1, end_den=2)
    piece = ServerSlice(server_rank=0, start_num=1, start_den=3, end_num=1, end_den=2)
    assert piece.slice_tensor(list(range(12))) == [4, 5]
