"""Which ids are here, and which row each has."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import GraphFormatError
from penstock.kernels.members import Members

SETS = st.integers(0, 300).flatmap(
    lambda size: st.tuples(
        st.just(size), st.sets(st.integers(0, size - 1) if size else st.nothing()).map(sorted)
    )
)


@given(SETS)
def test_ids_come_back_in_order(given: tuple[int, list[int]]) -> None:
    size, ids = given
    members = Members.of(np.array(ids, np.int64), size)
    assert members.ids().tolist() == ids
    assert (members.size, members.count) == (size, len(ids))
    members.check()


@given(SETS)
def test_the_row_of_an_id_is_how_many_smaller_ones_are_here(given: tuple[int, list[int]]) -> None:
    size, ids = given
    members = Members.of(np.array(ids, np.int64), size)
    rows = {id_: row for row, id_ in enumerate(ids)}
    asked = np.arange(size)[::-1]
    assert members.rows(asked).tolist() == [rows.get(id_, -1) for id_ in asked.tolist()]
    assert members.rows(asked).dtype == np.int64


@given(SETS)
def test_words_are_bits_and_ranks(given: tuple[int, list[int]]) -> None:
    size, ids = given
    words = Members.of(np.array(ids, np.int64), size).words
    for word, (bits, rank) in enumerate(words.tolist()):
        here = {id_ - 64 * word for id_ in ids if id_ // 64 == word}
        assert bits == sum(1 << bit for bit in here)
        assert rank == sum(id_ < 64 * word for id_ in ids)


def test_words_in_memory_that_is_read_only_are_taken_as_they_are() -> None:
    words = Members.of(np.array([1, 64, 70]), 100).words
    words.flags.writeable = False
    members = Members(words, 100)
    assert members.words is words
    assert members.rows(np.array([70, 2])).tolist() == [2, -1]


@pytest.mark.parametrize("bad", [-1, 10, 2**62])
def test_an_id_that_is_none_is_named(bad: int) -> None:
    members = Members.of(np.array([3]), 10)
    with pytest.raises(ValueError, match=rf"ids\[1\] is {bad}; expected 0 <= id < 10"):
        members.rows(np.array([3, bad]))
    with pytest.raises(ValueError, match=r"ids\[0\] is -?\d+; expected 0 <= id < 10"):
        Members.of(np.array([bad]), 10)


def test_ids_that_do_not_rise_are_named() -> None:
    with pytest.raises(ValueError, match=r"ids\[2\] is 4, after 4; expected ids that rise"):
        Members.of(np.array([1, 4, 4]), 10)


@pytest.mark.parametrize(
    "words",
    [np.zeros((1, 2), np.int64), np.zeros((2, 2), np.uint64), np.zeros(2, np.uint64)],
)
def test_words_of_another_form_are_refused(words: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"words must be uint64 of shape \[1, 2\]"):
        Members(words, 10)


def test_damage_is_told() -> None:
    words = Members.of(np.arange(0, 200, 3), 200).words
    with pytest.raises(GraphFormatError, match="are said to be here"):
        Members(words + np.uint64(1000), 200)
    wrong = words.copy()
    wrong[1, 1] += np.uint64(1)
    with pytest.raises(GraphFormatError, match="damaged members"):
        Members(wrong, 200).check()
    beyond = words.copy()
    beyond[-1, 0] |= np.uint64(1) << np.uint64(63)
    with pytest.raises(GraphFormatError, match="damaged members"):
        Members(beyond, 200).check()
