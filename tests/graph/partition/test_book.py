"""Partition books."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.graph.partition.book import ArrayBook, HashBook, PartitionBook, RangeBook


def test_an_even_range_book_gives_the_first_parts_the_odd_ones() -> None:
    assert RangeBook.even(10, 4).bounds == (0, 3, 6, 8, 10)


@given(st.integers(0, 50), st.integers(1, 9))
def test_every_id_is_in_exactly_one_part_of_an_even_range_book(size: int, parts: int) -> None:
    book = RangeBook.even(size, parts)
    together = np.concatenate([book.ids_of(part) for part in range(parts)])
    assert together.tolist() == list(range(size))


@st.composite
def books(draw: Any) -> PartitionBook:
    parts = draw(st.integers(1, 5))
    kind = draw(st.sampled_from(("range", "hash", "array")))
    if kind == "hash":
        return HashBook(draw(st.integers(0, 30)), parts)
    if kind == "range":
        inner = sorted(draw(st.lists(st.integers(0, 30), min_size=parts, max_size=parts)))
        return RangeBook([0, *inner])
    return ArrayBook(np.array(draw(st.lists(st.integers(0, parts - 1), max_size=30)), int), parts)


@given(books())
def test_numbers_within_a_part_count_its_ids_in_their_order(book: PartitionBook) -> None:
    for part in range(book.num_partitions):
        ids = book.ids_of(part)
        assert book.count(part) == len(ids)
        assert (book.partition_of(ids) == part).all()
        assert book.local(ids, part).tolist() == list(range(len(ids)))


@pytest.mark.parametrize(
    "book",
    [RangeBook((0, 2, 4)), ArrayBook([0, 1, 0, 1], 2), HashBook(4, 2)],
    ids=["range", "array", "hash"],
)
class TestBadIds:
    def test_an_id_that_is_not_there_is_named(self, book: PartitionBook) -> None:
        """CONTRACT 38."""
        with pytest.raises(ValueError, match=r"ids\[1\] is 4; expected 0 <= id < 4"):
            book.partition_of([0, 4])

    def test_an_id_of_another_part_is_named_with_that_part(self, book: PartitionBook) -> None:
        """CONTRACT 38."""
        foreign = int(book.ids_of(1)[-1])
        with pytest.raises(
            ValueError, match=rf"ids\[1\] is {foreign}, which is in part 1; this is"
        ):
            book.local([0, foreign], 0)

    def test_what_are_no_ids_is_refused(self, book: PartitionBook) -> None:
        with pytest.raises(ValueError, match="expected a list of ids"):
            book.partition_of(np.array([0.5]))

    def test_a_part_that_is_not_there_is_refused(self, book: PartitionBook) -> None:
        with pytest.raises(ValueError, match="expected 0 <= part < 2"):
            book.ids_of(2)


def test_bounds_that_do_not_rise_are_refused() -> None:
    with pytest.raises(ValueError, match="expected rising numbers"):
        RangeBook((0, 3, 2))


def test_parts_beyond_their_number_are_refused() -> None:
    with pytest.raises(ValueError, match="0 <= part < 2"):
        ArrayBook([0, 2], 2)


@given(st.integers(0, 300), st.integers(1, 9))
def test_a_book_by_hashes_is_that_of_the_array_of_its_parts(size: int, parts: int) -> None:
    book = HashBook(size, parts)
    same = ArrayBook(book.parts(), parts)
    assert book.partition_of(np.arange(size)).tolist() == same.parts.tolist()
    assert [book.count(part) for part in range(parts)] == [same.count(p) for p in range(parts)]
    assert (book == HashBook(size, parts), book == HashBook(size, parts + 1)) == (True, False)


@pytest.mark.parametrize(
    ("parts", "dtype"), [(256, np.uint8), (257, np.int16), (1 << 15, np.int16), (40_000, np.int32)]
)
def test_numbers_of_parts_take_few_bytes(parts: int, dtype: type) -> None:
    assert ArrayBook([0, parts - 1], parts).parts.dtype == dtype
