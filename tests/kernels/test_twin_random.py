"""Random numbers: the native code gives the twin's bits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import kernels
from penstock.kernels import _native, reference
from tests.kernels.strategies import WORDS, same_array

SIZES = st.one_of(
    st.integers(0, 70),
    st.integers(0, 2**63),
    st.sampled_from([2**k + d for k in (8, 16, 31, 32, 33, 62) for d in (-1, 0, 1)]),
)


@given(WORDS)
def test_mix_is_the_twins(word: int) -> None:
    assert _native.mix(word) == int(reference.mix(word)[0])


@given(WORDS, WORDS)
def test_fold_is_the_twins(key: int, word: int) -> None:
    assert _native.fold(key, word) == reference.fold(key, word)


@given(WORDS, WORDS, WORDS)
def test_keys_are_the_twins(first: int, second: int, third: int) -> None:
    assert kernels.batch_key(first, second, third) == reference.batch_key(first, second, third)
    assert kernels.hop_key(first, second, third) == reference.hop_key(first, second, third)


@given(st.lists(st.text(max_size=20), max_size=4))
def test_name_hashes_are_the_twins(parts: list[str]) -> None:
    try:
        expected = reference.name_hash(parts)
    except UnicodeEncodeError:  # half of a surrogate pair has no bytes
        with pytest.raises(ValueError, match="surrogates"):
            kernels.name_hash(parts)
    else:
        assert kernels.name_hash(parts) == expected


@given(st.lists(st.lists(st.sampled_from(["", "a", "b", "ab", "\N{SNOWMAN}"]), max_size=4)))
def test_different_names_have_different_hashes(names: list[list[str]]) -> None:
    # The empty list and the list of one empty name are the same bytes.
    different = {tuple(parts) or ("",) for parts in names}
    assert len({kernels.name_hash(parts) for parts in different}) == len(different)


@given(WORDS, WORDS, SIZES, st.data())
def test_windows_of_permutations_are_the_twins(
    seed: int, epoch: int, size: int, data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, size))
    stop = data.draw(st.integers(start, min(size, start + 50)))
    window = kernels.permutation(seed, epoch, size, start, stop)
    same_array(window, reference.permutation(seed, epoch, size, start, stop))
    assert np.all((window >= 0) & (window < size))


@given(WORDS, WORDS, st.one_of(st.integers(0, 70), st.integers(0, 5000)))
def test_a_permutation_has_every_number_once(seed: int, epoch: int, size: int) -> None:
    permutation = kernels.permutation(seed, epoch, size)
    assert np.array_equal(np.sort(permutation), np.arange(size))


@given(WORDS, st.integers(1, 200), st.data())
def test_a_permutation_can_be_cut_anywhere(seed: int, size: int, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, size))
    whole = kernels.permutation(seed, 3, size)
    parts = [kernels.permutation(seed, 3, size, 0, cut), kernels.permutation(seed, 3, size, cut)]
    same_array(np.concatenate(parts), whole)


def test_permutations_differ_by_seed_epoch_and_size() -> None:
    several = [(0, 0, 100), (0, 1, 100), (1, 0, 100), (1, 1, 100), (0, 0, 101)]
    firsts = {tuple(kernels.permutation(*key)[:20].tolist()) for key in several}
    assert len(firsts) == len(several)
