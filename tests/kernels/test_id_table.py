"""Finding the positions of users' ids."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import GraphFormatError
from penstock.kernels.arrays import Array
from penstock.kernels.id_table import (
    Keys,
    Text,
    extend_slots,
    fill_slots,
    hash_keys,
    look_up,
    slot_dtype,
    slots_needed,
)
from penstock.kernels.twins import id_table as twin
from tests.kernels.strategies import same_array

# Few values, so that some repeat; and the largest, next to each other.
NUMBERS = st.one_of(st.integers(0, 40), st.integers(-(2**63), 2**63 - 1))
STRINGS = st.one_of(st.text("ab\0", max_size=3), st.text(max_size=20))
SOME_KEYS = st.one_of(
    st.tuples(st.lists(NUMBERS, max_size=200), st.lists(NUMBERS, max_size=100)),
    st.tuples(st.lists(STRINGS, max_size=200), st.lists(STRINGS, max_size=100)),
)


def keys_of(values: list[int] | list[str], like: list[int] | list[str]) -> Keys:
    """Numbers or text, as the values are, or those of the other list if there are none."""
    if any(isinstance(value, str) for value in [*values, *like]):
        return Text.of([str(value) for value in values])
    return np.array(values, np.int64)


def plain(keys: Keys) -> list[int] | list[bytes]:
    return [key.encode() for key in keys.strings()] if isinstance(keys, Text) else keys.tolist()


def table(keys: Keys) -> Array:
    slots = np.empty(slots_needed(len(keys)), slot_dtype(len(keys)))
    fill_slots(keys, slots)
    return slots


@given(SOME_KEYS, st.sampled_from([np.int32, np.int64]), st.integers(0, 2))
def test_slots_and_positions_are_the_twins(
    some: tuple[list[int], list[int]], dtype: type, more: int
) -> None:
    keys, wanted = keys_of(some[0], some[1]), keys_of(some[1], some[0])
    num_slots = slots_needed(len(keys)) << more
    slots = np.full(num_slots, 12345, dtype)  # what was there counts for nothing
    repeated = fill_slots(keys, slots)
    expected, expected_repeated = twin.fill(plain(keys), num_slots, dtype)
    same_array(slots, expected)
    assert repeated == expected_repeated
    for asked in (wanted, keys):
        same_array(look_up(keys, slots, asked), twin.look_up(plain(keys), expected, plain(asked)))


@given(SOME_KEYS)
def test_a_key_is_found_where_it_first_stands_and_no_other_is(
    some: tuple[list[int], list[int]],
) -> None:
    keys, wanted = keys_of(some[0], some[1]), keys_of(some[1], some[0])
    first: dict[int | bytes, int] = {}
    for at, key in enumerate(plain(keys)):
        first.setdefault(key, at)
    found = look_up(keys, table(keys), wanted)
    assert found.tolist() == [first.get(key, -1) for key in plain(wanted)]


@given(SOME_KEYS, st.data())
def test_a_table_that_is_extended_is_the_one_of_all_keys(
    some: tuple[list[int], list[int]], data: st.DataObject
) -> None:
    values = some[0]
    first = data.draw(st.integers(0, len(values)))
    keys, before = keys_of(values, some[1]), keys_of(values[:first], values or some[1])
    slots = np.empty(slots_needed(len(keys)), np.int64)
    repeated = fill_slots(before, slots)
    further = extend_slots(keys, slots, first)
    expected, expected_repeated = twin.fill(plain(keys), len(slots), np.int64)
    same_array(slots, expected)
    assert (further if repeated < 0 else repeated) == expected_repeated


@given(SOME_KEYS)
def test_hashes_are_the_twins(some: tuple[list[int], list[int]]) -> None:
    keys = keys_of(some[0], some[1])
    hashed = [
        twin.hash_text(key) if isinstance(key, bytes) else twin.hash_number(key)
        for key in plain(keys)
    ]
    assert hash_keys(keys).tolist() == hashed


@pytest.mark.parametrize("is_text", [False, True])
def test_blocks_of_keys_are_all_found(is_text: bool) -> None:
    """There are more keys than are searched for together, and a last block that is not full."""
    count = 100_003
    numbers = np.random.default_rng(0).permutation(np.arange(count) * 1_000_003 - 2**40)
    keys: Keys = Text.of([f"node {n}" for n in numbers.tolist()]) if is_text else numbers
    slots = table(keys)
    assert fill_slots(keys, slots) == -1
    assert np.array_equal(look_up(keys, slots, keys), np.arange(count))
    others: Keys = Text.of([f"node {n + 1}" for n in numbers.tolist()]) if is_text else numbers + 1
    assert (look_up(keys, slots, others) == -1).all()


def test_the_first_key_that_stood_before_is_told() -> None:
    slots = np.empty(16, np.int32)
    assert fill_slots(np.array([5, 6, 7, 6, 5]), slots) == 3
    assert look_up(np.array([5, 6, 7, 6, 5]), slots, np.array([5, 6, 7])).tolist() == [0, 1, 2]
    assert fill_slots(Text.of(["b", "a", "", "a", "b", ""]), slots) == 3


def test_text_that_looks_alike_is_not_the_same() -> None:
    keys = Text.of(["a", "a\0", "a\0\0", "", "\0", "é", "e\u0301", "12345678", "12345678\0"])
    assert look_up(keys, table(keys), keys).tolist() == list(range(len(keys)))
    assert fill_slots(keys, np.empty(32, np.int32)) == -1


@pytest.mark.parametrize(
    ("count", "slots"), [(0, 2), (1, 2), (2, 4), (3, 8), (4, 8), (5, 16), (10**8, 2**28)]
)
def test_at_most_half_of_the_slots_are_in_use(count: int, slots: int) -> None:
    assert slots_needed(count) == slots


def test_slots_are_wide_enough_for_the_last_position() -> None:
    assert slot_dtype(0) == slot_dtype(2**31 - 1) == np.int32
    assert slot_dtype(2**31) == np.int64


def test_tables_are_read_from_memory_that_is_read_only() -> None:
    keys = np.array([3, 1, 2])
    slots = table(keys)
    for array in (keys, slots):
        array.flags.writeable = False
    assert look_up(keys, slots, np.array([1, 4])).tolist() == [1, -1]
    with pytest.raises(ValueError, match="slots must be writeable"):
        fill_slots(keys, slots)


def test_strided_numbers_are_taken() -> None:
    keys = np.arange(20)[::2]
    slots = table(keys)
    assert look_up(keys, slots, np.arange(0, 20, 4)[::-1]).tolist() == [8, 6, 4, 2, 0]


@given(st.lists(STRINGS), st.data())
def test_text_gives_its_strings_back(strings: list[str], data: st.DataObject) -> None:
    text = Text.of(strings)
    assert len(text) == len(strings)
    assert text.strings() == strings
    at = data.draw(st.lists(st.integers(0, len(strings) - 1)) if strings else st.just([]))
    assert text.take(np.array(at, np.int64)).strings() == [strings[i] for i in at]


# --- damage and refusals --------------------------------------------------------------------------


@given(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=16, max_size=16), st.booleans())
def test_damaged_slots_lead_to_other_keys_or_to_none(values: list[int], is_text: bool) -> None:
    """The sanitized run sees that nothing else is read."""
    slots = np.array(values, np.int32)
    keys: Keys = Text.of(list("abcdef")) if is_text else np.arange(6)
    wanted: Keys = Text.of(list("afz")) if is_text else np.array([0, 5, 99])
    found = look_up(keys, slots, wanted)
    assert found[0] in (0, -1)
    assert found[1] in (5, -1)
    assert found[2] == -1


def test_a_table_without_a_vacant_slot_ends_a_search() -> None:
    assert look_up(np.arange(6), np.zeros(16, np.int32), np.array([9, 0])).tolist() == [-1, 0]


@pytest.mark.parametrize("offsets", [[0, 5, 2], [0, 1, 2**62], [-1, 1, 2], [-(2**63), 0, 1]])
def test_damaged_offsets_are_named_or_lead_nowhere(offsets: list[int]) -> None:
    damaged = Text(np.array(offsets), np.frombuffer(b"ab", np.uint8))
    for use in (damaged.check, damaged.strings, lambda: damaged.take(np.arange(2))):
        with pytest.raises(GraphFormatError, match=r"damaged text: key [01] begins at"):
            use()
    with pytest.raises(GraphFormatError, match="damaged text"):
        fill_slots(damaged, np.zeros(8, np.int32))
    sound = Text.of(["a", "b"])
    with pytest.raises(GraphFormatError, match="damaged text"):
        look_up(sound, table(sound), damaged)
    assert set(look_up(damaged, table(sound), sound).tolist()) <= {0, 1, -1}


def test_text_that_is_not_utf_8_is_told() -> None:
    text = Text(np.array([0, 1]), np.frombuffer(b"\xff", np.uint8))
    with pytest.raises(GraphFormatError, match="not UTF-8"):
        text.strings()
    assert look_up(text, table(text), text).tolist() == [0]


def test_strings_that_are_none_are_named() -> None:
    with pytest.raises(ValueError, match=r"strings\[1\] is 7; expected a string"):
        Text.of(["a", 7])  # type: ignore[list-item]
    with pytest.raises(ValueError, match=r"strings\[2\] is '\\ud800', which is no text"):
        Text.of(["a", "b", "\ud800"])


@pytest.mark.parametrize(
    ("offsets", "data", "words"),
    [
        (np.zeros(2, np.int32), np.zeros(1, np.uint8), "offsets must be int64"),
        (np.zeros((2, 2), np.int64), np.zeros(1, np.uint8), "offsets must be int64"),
        (np.zeros(2, np.int64), np.zeros(1, np.int8), "data must be uint8"),
        (np.zeros(2, np.int64), np.zeros(2, np.uint8)[::2], "data must be uint8, contiguous"),
        (np.zeros(0, np.int64), np.zeros(1, np.uint8), "offsets must be aligned, and have one"),
    ],
)
def test_text_of_another_form_is_refused(offsets: Array, data: Array, words: str) -> None:
    data = np.zeros(4, np.uint8)[::2] if "contiguous" in words else data
    with pytest.raises(ValueError, match=words):
        Text(offsets, data)


@pytest.mark.parametrize(
    "slots",
    [
        np.zeros(12, np.int32),
        np.zeros(1, np.int32),
        np.zeros(0, np.int64),
        np.zeros((4, 4), np.int32),
        np.zeros(16, np.uint32),
        np.zeros(16, np.float64),
    ],
)
def test_slots_of_another_form_are_refused(slots: Array) -> None:
    for use in (fill_slots, lambda keys, slots: look_up(keys, slots, keys)):
        with pytest.raises(ValueError, match=r"slots are .*; expected int32 or int64, a power"):
            use(np.arange(3), slots)


def test_too_few_slots_are_refused() -> None:
    with pytest.raises(ValueError, match="there are 4 slots for 4 keys; expected more"):
        fill_slots(np.arange(4), np.zeros(4, np.int32))


def test_slots_at_odd_addresses_are_refused() -> None:
    askew = np.zeros(4 * 16 + 1, np.uint8)[1:].view(np.int32)
    with pytest.raises(ValueError, match="slots must be contiguous and aligned"):
        look_up(np.arange(3), askew, np.arange(3))


def test_slots_in_the_memory_of_the_keys_are_refused() -> None:
    keys = np.arange(16)
    with pytest.raises(ValueError, match="share memory"):
        fill_slots(keys[:5], keys)


def test_numbers_are_not_looked_up_in_text() -> None:
    text, numbers = Text.of(["1"]), np.array([1])
    with pytest.raises(ValueError, match="the keys are text and the wanted ones are numbers"):
        look_up(text, table(text), numbers)
    with pytest.raises(ValueError, match="the keys are numbers and the wanted ones are text"):
        look_up(numbers, table(numbers), text)


def test_positions_outside_are_named() -> None:
    with pytest.raises(ValueError, match=r"positions\[1\] is 2; expected 0 <= position < 2"):
        Text.of(["a", "b"]).take(np.array([0, 2]))
