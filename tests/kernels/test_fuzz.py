"""Anything at all through the face: it works, or it is one of the errors it should be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from penstock import kernels
from penstock.errors import PenstockError
from penstock.kernels import Adjacency, Buffers, KHop, Relabeler, Relation
from penstock.kernels.arrays import Array

DTYPES = st.sampled_from(
    ["?", "i1", "u1", "i2", "i4", "u4", "i8", "u8", ">i4", ">i8", "f2", "f4", "f8", "c8", "S3", "O"]
)
NUMBERS = st.one_of(
    st.integers(-2, 12), st.sampled_from([2**31 - 1, -(2**31), 2**32, 2**62, 2**63 - 1, -(2**63)])
)
# Only numbers that ask for no more memory than there is.
SIZES = st.one_of(
    st.integers(-2, 12), st.sampled_from([2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63)])
)
SCALARS = st.one_of(SIZES, st.sampled_from([0.5, None, True, "a", np.int32(3), np.float64(2)]))


@st.composite
def arrays(draw: st.DrawFn) -> Array:
    """Mostly short lists of ids, which get furthest; sometimes anything."""
    kind = draw(st.integers(0, 9))
    if kind < 7:
        dtype = draw(st.sampled_from(["i4", "i8", "i8"]))
        values = draw(st.lists(NUMBERS if kind == 6 else st.integers(0, 6), max_size=12))
        array = np.array(values, np.int64).astype(dtype)
    else:
        shape = draw(hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5))
        array = np.zeros(shape, draw(DTYPES))
    return disguised(draw, array)


def disguised(draw: st.DrawFn, array: Array) -> Array:
    """The same in some other way: cut into pairs, backwards, with gaps, askew, read-only."""
    match draw(st.integers(0, 9)):
        case 0 | 1 if array.ndim == 1 and array.size % 2 == 0:
            return array.reshape(-1, 2)
        case 2 if array.ndim:
            return array[::-1]
        case 3 if array.ndim:
            return array[::2]
        case 4:
            array.flags.writeable = False
        case 5 if array.dtype != object and array.size:
            moved = np.zeros(array.nbytes + 1, np.uint8)[1:].view(array.dtype).reshape(array.shape)
            moved[...] = array
            return moved
        case 6:
            return np.broadcast_to(array, (3, *array.shape))[0] if array.ndim else array
    return array


def works_or_is_refused(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except (ValueError, TypeError, PenstockError):
        return None


LISTS = st.lists(arrays(), max_size=2)


@given(arrays(), SCALARS)
def test_checking_ids(ids: Array, bound: Any) -> None:
    works_or_is_refused(lambda: kernels.first_outside(ids, bound))
    works_or_is_refused(lambda: kernels.is_sorted(ids))


@given(arrays(), arrays(), arrays(), arrays())
def test_building(first: Array, second: Array, third: Array, fourth: Array) -> None:
    works_or_is_refused(lambda: kernels.fill_adjacency(first, second, third, fourth))
    works_or_is_refused(lambda: kernels.transpose(first, second, third, fourth))


@given(arrays(), arrays(), st.one_of(st.none(), arrays()))
def test_gathering(rows: Array, ids: Array, out: Array | None) -> None:
    result = works_or_is_refused(lambda: kernels.gather_rows(rows, ids, out))
    if result is not None:
        assert result.shape == (len(ids), *rows.shape[1:])


@given(arrays())
def test_digesting(array: Array) -> None:
    result = works_or_is_refused(lambda: kernels.digest(array))
    assert result is None or len(result) == 16


@given(arrays(), arrays(), arrays(), st.sampled_from([-2, -1, 0, 1, 3, 33, 1.5]), SCALARS)
def test_one_hop(indptr: Array, entries: Array, nodes: Array, fanout: Any, key: Any) -> None:
    adjacency = works_or_is_refused(lambda: Adjacency(indptr, entries))
    if adjacency is not None:
        for replace in (False, True):
            works_or_is_refused(
                lambda replace=replace: kernels.draw_hop(
                    adjacency, nodes, fanout, key, replace=replace
                )
            )


@st.composite
def samplers(draw: st.DrawFn) -> Callable[[], KHop]:
    """A sampler of any numbers over rows that are arrays, at least."""
    small = st.integers(-1, 2)
    fanouts = st.lists(st.sampled_from([-2, -1, 0, 1, 2, 33]), max_size=2).map(tuple)
    rows = draw(st.lists(st.tuples(offsets(), arrays(), fanouts, small, small), max_size=2))
    num_nodes = draw(st.lists(st.one_of(st.integers(-1, 5), SIZES), max_size=3))
    caps = draw(st.lists(SIZES, max_size=2))

    def make() -> KHop:
        relations = [Relation(Adjacency(indptr, entries), *rest) for indptr, entries, *rest in rows]
        return KHop(num_nodes, relations, node_caps=caps)

    return make


@st.composite
def offsets(draw: st.DrawFn) -> Array:
    return np.array(draw(st.lists(st.integers(-1, 8), min_size=1, max_size=6).map(sorted)))


@given(samplers(), SCALARS, LISTS, LISTS, LISTS, LISTS, st.one_of(st.none(), LISTS))
def test_sampling(
    make: Callable[[], KHop],
    key: Any,
    seeds: list[Array],
    nodes: list[Array],
    rows: list[Array],
    cols: list[Array],
    edge_ids: list[Array] | None,
) -> None:
    sampler = works_or_is_refused(make)
    if sampler is not None:
        works_or_is_refused(lambda: sampler.sample(key, seeds))
        out = Buffers(nodes, rows, cols, edge_ids)
        works_or_is_refused(lambda: sampler.sample(key, seeds, out))


@given(st.lists(st.tuples(st.booleans(), arrays()), max_size=4), SIZES)
def test_relabeling(calls: list[tuple[bool, Array]], start: int) -> None:
    relabeler = Relabeler()
    for is_seeds, ids in calls:
        if is_seeds:
            works_or_is_refused(lambda ids=ids: relabeler.add_seeds(ids))
        else:
            works_or_is_refused(lambda ids=ids: relabeler.relabel(ids))
    works_or_is_refused(lambda: relabeler.nodes(start))


@given(SCALARS, SCALARS, SCALARS)
def test_keys(first: Any, second: Any, third: Any) -> None:
    works_or_is_refused(lambda: kernels.batch_key(first, second, third))
    works_or_is_refused(lambda: kernels.hop_key(first, second, third))


@given(SCALARS, SCALARS, SCALARS, SIZES, st.integers(-3, 50))
def test_permutations(seed: Any, epoch: Any, size: Any, start: int, length: int) -> None:
    window = works_or_is_refused(
        lambda: kernels.permutation(seed, epoch, size, start, start + length)
    )
    assert window is None or len(window) == length
