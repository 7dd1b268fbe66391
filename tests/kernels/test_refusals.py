"""What the face does not let through, and in which words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from penstock import kernels
from penstock.kernels import Adjacency, Buffers, KHop, Relabeler, Relation
from penstock.kernels.arrays import Array
from tests.kernels.strategies import same_array

INDPTR = np.array([0, 2, 3, 3])


def adjacency() -> Adjacency:
    return Adjacency(INDPTR, np.array([1, 2, 0], np.int32))


def khop(num_nodes: Sequence[int] = (3,), **options: Any) -> KHop:
    return KHop(num_nodes, [Relation(adjacency(), (2, 2))], **options)


def along(*relations: tuple[Any, ...]) -> KHop:
    """A sampler with these fan-outs, and perhaps types, for its relations."""
    return KHop([3], [Relation(adjacency(), *relation) for relation in relations])


def read_only(array: Array) -> Array:
    array.flags.writeable = False
    return array


# --- ids ------------------------------------------------------------------------------------------

BAD_IDS = {
    "negative": (np.array([0, 2, -1, 9]), r"\[2\] is -1; expected 0 <= id < 3"),
    "too large": (np.array([0, 3]), r"\[1\] is 3; expected 0 <= id < 3"),
    "far too large": (np.array([2**62]), r"\[0\] is 4611686018427387904"),
    "too large for 32 bits only": (np.array([2**32]), r"\[0\] is 4294967296"),
    "floats": (np.array([0.0]), "must be integers, not float64"),
    "booleans": (np.array([True]), "must be integers, not bool"),
    "unsigned words": (np.array([0], np.uint64), "must be integers, not uint64"),
    "objects": (np.array([0], object), "must be integers, not object"),
    "strings": (np.array(["0"]), "must be integers, not <U1"),
    "a table": (np.array([[0, 1]]), r"must have one dimension, not shape \[1, 2\]"),
    "a number": (np.array(0), r"must have one dimension, not shape \[\]"),
    "an empty table": (np.empty((0, 2), np.int64), "must have one dimension"),
}


@pytest.mark.parametrize(("ids", "message"), BAD_IDS.values(), ids=BAD_IDS)
def test_seeds_that_are_no_nodes(ids: Array, message: str) -> None:
    with pytest.raises(ValueError, match=r"^seeds\[0\].*" + message):
        khop().sample(1, [ids])


@pytest.mark.parametrize(("ids", "message"), BAD_IDS.values(), ids=BAD_IDS)
def test_nodes_of_a_hop_that_are_no_nodes(ids: Array, message: str) -> None:
    with pytest.raises(ValueError, match="^nodes.*" + message):
        kernels.draw_hop(adjacency(), ids, 1, 1)


@pytest.mark.parametrize(("ids", "message"), BAD_IDS.values(), ids=BAD_IDS)
def test_ids_of_rows_that_are_no_rows(ids: Array, message: str) -> None:
    with pytest.raises(ValueError, match="^ids.*" + message):
        kernels.gather_rows(np.zeros((3, 2)), ids)


@pytest.mark.parametrize("what", [name for name, (ids, _) in BAD_IDS.items() if ids.dtype != "i8"])
def test_labels_for_what_is_no_id(what: str) -> None:
    ids, message = BAD_IDS[what]
    with pytest.raises(ValueError, match="^ids " + message):
        Relabeler().relabel(ids)
    with pytest.raises(ValueError, match="^seeds " + message):
        Relabeler().add_seeds(ids)


def test_a_seed_of_the_second_type_is_named_with_its_type() -> None:
    sampler = khop([3, 5])
    with pytest.raises(ValueError, match=r"seeds\[1\]\[1\] is 5; expected 0 <= id < 5"):
        sampler.sample(1, [np.array([0]), np.array([4, 5])])


@pytest.mark.parametrize("count", [0, 2])
def test_seeds_for_another_number_of_types(count: int) -> None:
    with pytest.raises(ValueError, match="seeds must have one array for each of 1 types"):
        khop().sample(1, [np.array([0])] * count)


# --- samplers -------------------------------------------------------------------------------------

BAD_SAMPLERS: dict[str, tuple[Callable[[], KHop], str]] = {
    "hops that differ": (lambda: along(((1,),), ((1, 1),)), "Number of hops must be the same"),
    "a fan-out below -1": (lambda: along(((1, -2),)), "fan-out of relation 0 at hop 1 is -2"),
    "a fan-out that is no integer": (lambda: along(((1.5,),)), "."),
    "a fan-out beyond 64 bits": (lambda: along(((2**63,),)), "."),
    "expanding a type not there": (lambda: along(((1,), 1, 0)), "relation 0 names node type 1"),
    "finding a type not there": (lambda: along(((1,), 0, -1)), "relation 0 names node type -1"),
    "rows for more nodes than there are": (lambda: khop([2]), "number of rows"),
    "rows for fewer nodes than there are": (lambda: khop([4]), "number of rows"),
    "fewer than no nodes": (lambda: khop([3, -1]), "num_nodes"),
    "caps that are no integers": (lambda: khop(node_caps=["many"]), "."),
    "caps beyond 64 bits": (lambda: khop(node_caps=[2**63]), "."),
}


@pytest.mark.parametrize(("make", "message"), BAD_SAMPLERS.values(), ids=BAD_SAMPLERS)
def test_samplers_that_make_no_sense(make: Callable[[], KHop], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        make()


@pytest.mark.parametrize("key", [-1, 2**64, 1.5, None, "key"])
def test_keys_that_are_no_words(key: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        khop().sample(key, [np.array([0])])
    with pytest.raises((ValueError, TypeError)):
        kernels.draw_hop(adjacency(), np.array([0]), 1, key)


@pytest.mark.parametrize("fanout", [-2, 1.5, None, 2**63])
def test_fan_outs_of_a_hop_that_make_no_sense(fanout: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        kernels.draw_hop(adjacency(), np.array([0]), fanout, 1)


BAD_ROWS = {
    "offsets of another type": (INDPTR.astype(np.int32), np.zeros(3, np.int32), ValueError),
    "offsets of the other order of bytes": (INDPTR.astype(">i8"), np.zeros(3, "i4"), ValueError),
    "no offsets": (np.empty(0, np.int64), np.zeros(0, np.int32), ValueError),
    "a table of offsets": (INDPTR.reshape(2, 2), np.zeros(3, np.int32), ValueError),
    "offsets with gaps": (np.zeros(8, np.int64)[::2], np.zeros(3, np.int32), TypeError),
    "entries of another type": (INDPTR, np.zeros(3, np.float32), ValueError),
    "unsigned entries": (INDPTR, np.zeros(3, np.uint32), ValueError),
    "entries with gaps": (INDPTR, np.zeros(6, np.int32)[::2], TypeError),
    "entries by column": (INDPTR, np.zeros((3, 2), np.int32, order="F"), TypeError),
    "entries of three": (INDPTR, np.zeros((3, 3), np.int32), ValueError),
    "entries of one": (INDPTR, np.zeros((3, 1), np.int32), ValueError),
    "a block of entries": (INDPTR, np.zeros((3, 2, 2), np.int32), ValueError),
    "one number for entries": (INDPTR, np.array(3, np.int32), ValueError),
}


@pytest.mark.parametrize(("indptr", "entries", "error"), BAD_ROWS.values(), ids=BAD_ROWS)
def test_rows_of_neighbours_of_other_shapes(
    indptr: Array, entries: Array, error: type[Exception]
) -> None:
    with pytest.raises(error):
        Adjacency(indptr, entries)


# --- output ---------------------------------------------------------------------------------------

BAD_OUTPUTS: dict[str, Callable[[], Array]] = {
    "narrower": lambda: np.full(2000, -7, np.int32),
    "unsigned": lambda: np.full(2000, 7, np.uint64),
    "floats": lambda: np.full(2000, -7.0),
    "of the other order of bytes": lambda: np.full(2000, -7, ">i8"),
    "with gaps": lambda: np.full(4000, -7)[::2],
    "backwards": lambda: np.full(2000, -7)[::-1],
    "a table": lambda: np.full((2000, 1), -7),
    "read-only": lambda: read_only(np.full(2000, -7)),
    "a list": lambda: [-7] * 2000,
}


@pytest.mark.parametrize("make", BAD_OUTPUTS.values(), ids=BAD_OUTPUTS)
@pytest.mark.parametrize("which", ["nodes", "rows", "cols", "edge_ids"])
def test_memory_that_cannot_hold_a_batch(which: str, make: Callable[[], Array]) -> None:
    arrays = {name: [np.full(2000, -7)] for name in ("nodes", "rows", "cols", "edge_ids")}
    arrays[which] = [make()]
    with pytest.raises((ValueError, TypeError)):
        khop().sample(1, [np.array([0])], Buffers(**arrays))


@pytest.mark.parametrize("which", ["nodes", "rows", "cols", "edge_ids"])
@pytest.mark.parametrize("count", [0, 2])
def test_memory_for_another_number_of_lists(which: str, count: int) -> None:
    arrays = {name: [np.full(2000, -7)] for name in ("nodes", "rows", "cols", "edge_ids")}
    arrays[which] = [np.full(2000, -7)] * count
    with pytest.raises((ValueError, TypeError)):
        khop().sample(1, [np.array([0])], Buffers(**arrays))


@pytest.mark.parametrize(
    "out",
    [
        np.zeros((2, 4), np.float32),
        np.zeros((3, 3), np.float32),
        np.zeros((2, 3), np.float64),
        np.zeros((2, 6), np.float32)[:, ::2],
        np.zeros((3, 2), np.float32).T,
        np.zeros(6, np.float32),
        read_only(np.zeros((2, 3), np.float32)),
    ],
)
def test_memory_that_cannot_hold_the_rows(out: Array) -> None:
    with pytest.raises((ValueError, TypeError)):
        kernels.gather_rows(np.ones((5, 3), np.float32), np.array([0, 4]), out)


def test_rows_with_gaps_are_not_gathered() -> None:
    with pytest.raises(ValueError, match="rows must be C-contiguous"):
        kernels.gather_rows(np.ones((5, 6))[:, ::2], np.array([0]))


def test_rows_of_objects_are_not_gathered() -> None:
    with pytest.raises(TypeError):
        kernels.gather_rows(np.array([object()]), np.array([0]))


# --- building -------------------------------------------------------------------------------------

KEYS, VALUES = np.array([1, 0, 1]), np.array([5, 6, 7])


def fill(**changes: Any) -> None:
    arguments = {
        "keys": KEYS,
        "values": VALUES,
        "indptr": np.zeros(3, np.int64),
        "adjacency": np.zeros((3, 2), np.int64),
        **changes,
    }
    kernels.fill_adjacency(**arguments)


BAD_FILLS = {
    "a key too large": ({"keys": np.array([1, 0, 2])}, r"keys\[2\] is 2; expected 0 <= id < 2"),
    "a negative key": ({"keys": np.array([1, -1, 1])}, r"keys\[1\] is -1; expected 0 <= id < 2"),
    "unsorted keys for bare rows": ({"adjacency": np.zeros(3, np.int64)}, "sorted keys"),
    "a value too large for the rows": (
        {"values": np.array([5, 2**31, 7]), "adjacency": np.zeros((3, 2), np.int32)},
        r"values\[1\] is 2147483648",
    ),
    "a value too large after one that just fits": (
        {"values": np.array([2**31 - 1, 5, 2**40]), "adjacency": np.zeros((3, 2), np.int32)},
        r"values\[2\] is 1099511627776",
    ),
    "more keys than values": ({"values": VALUES[:2]}, "one length"),
    "fewer entries than edges": ({"adjacency": np.zeros((2, 2), np.int64)}, "one length"),
    "entries of three": ({"adjacency": np.zeros((3, 3), np.int64)}, "shape"),
    "entries of floats": ({"adjacency": np.zeros((3, 2))}, "."),
    "entries with gaps": ({"adjacency": np.zeros((3, 4), np.int64)[:, ::2]}, "."),
    "read-only entries": ({"adjacency": read_only(np.zeros((3, 2), np.int64))}, "."),
    "read-only offsets": ({"indptr": read_only(np.zeros(3, np.int64))}, "."),
    "narrow offsets": ({"indptr": np.zeros(3, np.int32)}, "."),
    "no offsets": ({"indptr": np.zeros(0, np.int64), "keys": KEYS[:0]}, "."),
    "keys of floats": ({"keys": KEYS.astype(float)}, "."),
    "unsigned keys": ({"keys": KEYS.astype(np.uint64), "values": VALUES.astype(np.uint64)}, "."),
    "a table of keys": ({"keys": KEYS.reshape(1, 3)}, "."),
}


@pytest.mark.parametrize(("changes", "message"), BAD_FILLS.values(), ids=BAD_FILLS)
def test_edges_that_cannot_be_sorted_into_rows(changes: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        fill(**changes)


def test_the_largest_value_that_fits_is_taken() -> None:
    adjacency = np.zeros((3, 2), np.int32)
    fill(values=np.array([2**31 - 1, 0, 7]), adjacency=adjacency)
    assert adjacency.tolist() == [[0, 1], [2**31 - 1, 0], [7, 2]]


@pytest.mark.parametrize(
    ("out_indptr", "out_entries"),
    [
        (np.zeros(4, np.int64), np.zeros((2, 2), np.int32)),
        (np.zeros(4, np.int64), np.zeros(3, np.int32)),
        (np.zeros(4, np.int64), np.zeros((3, 3), np.int32)),
        (np.zeros(4, np.int64), np.zeros((3, 2), np.float32)),
        (np.zeros(4, np.int32), np.zeros((3, 2), np.int32)),
        (np.zeros(0, np.int64), np.zeros((3, 2), np.int32)),
        (np.zeros(4, np.int64), read_only(np.zeros((3, 2), np.int32))),
        (read_only(np.zeros(4, np.int64)), np.zeros((3, 2), np.int32)),
    ],
)
def test_memory_that_cannot_hold_a_transpose(out_indptr: Array, out_entries: Array) -> None:
    with pytest.raises((ValueError, TypeError)):
        kernels.transpose(INDPTR, np.zeros(3, np.int32), out_indptr, out_entries)


@pytest.mark.parametrize("ids", [np.array([1.0]), np.array([[1]]), np.array(["a"]), np.array(1)])
def test_only_lists_of_ids_are_checked(ids: Array) -> None:
    with pytest.raises((ValueError, TypeError)):
        kernels.first_outside(ids, 3)
    with pytest.raises((ValueError, TypeError)):
        kernels.is_sorted(ids)


# --- numbers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", [-1, 2**64, 1.5, "x", None])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_keys_are_made_of_words_only(place: int, word: Any) -> None:
    words: list[Any] = [1, 2, 3]
    words[place] = word
    with pytest.raises((ValueError, TypeError)):
        kernels.batch_key(*words)
    with pytest.raises((ValueError, TypeError)):
        kernels.hop_key(*words)


@pytest.mark.parametrize(
    "arguments",
    [
        (-1, 0, 5),
        (0, 2**64, 5),
        (0, 0, -1),
        (0, 0, 5, -1, 3),
        (0, 0, 5, 3, 2),
        (0, 0, 5, 0, 6),
        (0, 0, 5, 6, 6),
        (0, 0, 5.5),
        (0, 0, 2**63 + 1, 0, 5),
        (0, 0, 2**64, 0, 5),
    ],
)
def test_permutations_that_cannot_be(arguments: tuple[Any, ...]) -> None:
    with pytest.raises((ValueError, TypeError)):
        kernels.permutation(*arguments)


@pytest.mark.parametrize("start", [-1, 1])
def test_nodes_beyond_the_list(start: int) -> None:
    with pytest.raises(ValueError, match="start"):
        Relabeler().nodes(start)


@pytest.mark.parametrize("array", [np.arange(9)[::2], np.zeros((3, 3)).T, np.array([object()])])
def test_only_plain_bytes_are_digested(array: Array) -> None:
    with pytest.raises((ValueError, TypeError)):
        kernels.digest(array)


# --- and nothing is written --------------------------------------------------------------------


def test_nothing_is_written_when_a_seed_is_refused() -> None:
    out = Buffers.allocate([100], [100])
    for array in (*out.nodes, *out.rows, *out.cols):
        array[:] = -7
    with pytest.raises(ValueError, match="seeds"):
        khop().sample(1, [np.array([0, 3])], out)
    for array in (*out.nodes, *out.rows, *out.cols):
        same_array(array, np.full(100, -7))
