"""A batch as aligned bytes: what was written is read, and nothing reaches outside."""

from __future__ import annotations

import pickle

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ProtocolError
from penstock.graph.dtypes import SUPPORTED, storage_dtype
from penstock.graph.layout import ALIGNMENT
from penstock.sampling.buffer import SlotTooSmall
from penstock.wire.frames import BatchWriter, private_copy, private_memory, read
from penstock.wire.messages import ArrayLayout

shapes = st.lists(st.integers(0, 9), max_size=3).map(tuple)
specs = st.lists(st.tuples(st.sampled_from(SUPPORTED), shapes), max_size=8)
layouts = st.builds(
    ArrayLayout,
    name=st.text(max_size=3),
    dtype=st.sampled_from([*SUPPORTED, "object", "", "uint16"]),
    shape=st.lists(st.integers(-2, 70) | st.integers(0, 2**70), max_size=4).map(tuple),
    offset=st.integers(-64, 64).map(lambda n: n * 32) | st.integers(),
)


def filled(memory: np.ndarray, batch: list[tuple[str, tuple[int, ...]]]) -> tuple[list, tuple]:
    """Writes a batch of random bytes; what was written, and how it lies."""
    random = np.random.default_rng(0)
    writer, written = BatchWriter(memory), []
    for number, (dtype, shape) in enumerate(batch):
        array = writer.array(f"a{number}", dtype, shape)
        values = random.integers(0, 2, shape).astype(storage_dtype(dtype))
        array[...] = values
        written.append(values)
    return written, writer.commit()


@given(specs)
def test_what_was_written_is_read(batch: list[tuple[str, tuple[int, ...]]]) -> None:
    memory = private_memory(1 << 16)
    written, layouts = filled(memory, batch)
    travelled = msgspec.msgpack.decode(
        msgspec.msgpack.encode(layouts), type=tuple[ArrayLayout, ...]
    )
    arrays = read(memory, travelled)
    assert list(arrays) == [f"a{number}" for number in range(len(batch))]
    for values, array in zip(written, arrays.values(), strict=True):
        np.testing.assert_array_equal(array, values, strict=True)


@given(specs)
def test_every_array_begins_at_its_own_cache_line(
    batch: list[tuple[str, tuple[int, ...]]],
) -> None:
    memory = private_memory(1 << 16)
    _, layouts = filled(memory, batch)
    for array in read(memory, layouts).values():
        assert array.size == 0 or array.ctypes.data % ALIGNMENT == 0


def test_reading_copies_nothing() -> None:
    memory = private_memory(1024)
    _, layouts = filled(memory, [("int64", (10,))])
    array = read(memory, layouts)["a0"]
    memory[:8] = 255
    assert array[0] == -1


def test_what_is_read_can_be_written_to() -> None:
    memory = private_memory(1024)
    _, layouts = filled(memory, [("int64", (10,))])
    read(memory, layouts)["a0"][:] = 7
    assert read(memory, layouts)["a0"].tolist() == [7] * 10


def test_bfloat16_keeps_its_name_and_is_stored_as_16_bits() -> None:
    writer = BatchWriter(private_memory(1024))
    assert writer.array("x", "bfloat16", (3, 2)).dtype == np.uint16
    assert writer.commit()[0].dtype == "bfloat16"


def test_a_shorter_array_shows_its_first_rows_only() -> None:
    memory = private_memory(1024)
    writer = BatchWriter(memory)
    writer.array("x", "int32", (10, 2))[...] = np.arange(20).reshape(10, 2)
    writer.reshape("x", (3, 2))
    assert read(memory, writer.commit())["x"].tolist() == [[0, 1], [2, 3], [4, 5]]


def test_a_shorter_array_keeps_its_room() -> None:
    writer = BatchWriter(private_memory(4096))
    room = writer.array("n_id", "int64", 100)
    writer.reshape("n_id", 1)
    after = writer.array("e_id", "int64", 100)
    assert not np.shares_memory(room, after)


def test_an_array_may_take_another_shape_within_its_room() -> None:
    memory = private_memory(4096)
    writer = BatchWriter(memory)
    writer.array("edge_index", "int64", (2, 50))
    writer.reshape("edge_index", (2, 3))[...] = [[1, 2, 3], [4, 5, 6]]
    assert read(memory, writer.commit())["edge_index"].tolist() == [[1, 2, 3], [4, 5, 6]]


def test_an_array_that_nobody_could_read_is_not_written() -> None:
    writer = BatchWriter(private_memory(4096))
    with pytest.raises(ValueError, match="'x' has 33 dimensions: at most 32"):
        writer.array("x", "int64", (1,) * 33)
    assert writer.array("x", "int64", (1,) * 32).shape == (1,) * 32


def test_an_array_cannot_outgrow_its_room() -> None:
    writer = BatchWriter(private_memory(4096))
    writer.array("n_id", "int64", 10)
    with pytest.raises(ValueError, match="'n_id' has room for 80 bytes"):
        writer.reshape("n_id", 11)


def test_nbytes_is_how_far_the_batch_reaches() -> None:
    writer = BatchWriter(private_memory(4096))
    assert writer.nbytes == 0
    writer.array("a", "int8", 65)
    writer.array("b", "int64", 10)
    writer.reshape("b", 4)
    assert writer.nbytes == 128 + 32


def test_a_batch_that_does_not_fit_says_how_much_it_needs() -> None:
    """CONTRACT 21"""
    writer = BatchWriter(private_memory(200))
    writer.array("a", "int8", 100)
    with pytest.raises(SlotTooSmall) as raised:
        writer.array("b", "int64", 10)
    assert raised.value.needed == 128 + 80
    assert "208 bytes" in str(raised.value)


def test_what_is_said_to_be_needed_is_enough() -> None:
    with pytest.raises(SlotTooSmall) as raised:
        BatchWriter(private_memory(10)).array("a", "int64", 100)
    BatchWriter(private_memory(raised.value.needed)).array("a", "int64", 100)


def test_after_one_that_does_not_fit_a_smaller_one_may_be_asked_for() -> None:
    writer = BatchWriter(private_memory(100))
    with pytest.raises(SlotTooSmall):
        writer.array("a", "int64", 100)
    writer.array("a", "int64", 10)
    assert [layout.shape for layout in writer.commit()] == [(10,)]


def test_too_small_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(SlotTooSmall(300, 200)))
    assert (error.needed, error.room, str(error)) == (300, 200, str(SlotTooSmall(300, 200)))


@pytest.mark.parametrize("end", ["commit", "abort"])
@pytest.mark.parametrize("further", ["array", "reshape", "commit", "abort"])
def test_a_batch_ends_once(end: str, further: str) -> None:
    writer = BatchWriter(private_memory(1024))
    writer.array("a", "int8", 3)
    getattr(writer, end)()
    arguments = {"array": ("b", "int8", 3), "reshape": ("a", 1)}.get(further, ())
    with pytest.raises(ValueError, match="ted already"):
        getattr(writer, further)(*arguments)


def test_a_batch_that_was_not_committed_is_aborted_on_leaving() -> None:
    with BatchWriter(private_memory(1024)) as writer:
        writer.array("a", "int8", 3)
    with pytest.raises(ValueError, match="aborted already"):
        writer.commit()


def test_a_committed_batch_stays_committed_on_leaving() -> None:
    with BatchWriter(private_memory(1024)) as writer:
        writer.commit()
    with pytest.raises(ValueError, match="committed already"):
        writer.abort()


def test_a_name_is_used_once() -> None:
    writer = BatchWriter(private_memory(1024))
    writer.array("a", "int8", 3)
    with pytest.raises(ValueError, match="'a': the batch has such an array already"):
        writer.array("a", "int8", 3)


def test_an_array_that_is_not_there_cannot_be_reshaped() -> None:
    with pytest.raises(ValueError, match="'a': the batch has no such array"):
        BatchWriter(private_memory(1024)).reshape("a", 3)


@pytest.mark.parametrize(
    "memory",
    [np.zeros(64, np.int8), np.zeros((8, 8), np.uint8), np.zeros(64, np.uint8)[::2]],
    ids=["not bytes", "not flat", "with gaps"],
)
def test_a_batch_is_written_to_flat_bytes(memory: np.ndarray) -> None:
    with pytest.raises(ValueError, match="must be flat bytes"):
        BatchWriter(memory)


def test_a_batch_is_not_written_to_read_only_memory() -> None:
    memory = private_memory(64)
    memory.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        BatchWriter(memory)


@pytest.mark.parametrize(
    "layout",
    [
        ArrayLayout("x", "int64", (8,), 8),
        ArrayLayout("x", "int64", (8,), -64),
        ArrayLayout("x", "int64", (129,), 0),
        ArrayLayout("x", "int8", (1,), 1024),
        ArrayLayout("x", "int64", (2**62, 2**62), 0),
        ArrayLayout("x", "int64", (0, 2**80), 0),
        ArrayLayout("x", "int64", (-1,), 0),
        ArrayLayout("x", "int64", (-1, -8), 0),
        ArrayLayout("x", "object", (1,), 0),
        ArrayLayout("x", "uint16", (1,), 0),
        ArrayLayout("x", "int8", (1,) * 33, 0),
    ],
    ids=str,
)
def test_a_layout_that_cannot_be_is_refused(layout: ArrayLayout) -> None:
    with pytest.raises(ProtocolError, match="array 'x'"):
        read(private_memory(1024), [layout])


def test_two_arrays_of_one_name_are_refused() -> None:
    layout = ArrayLayout("x", "int8", (1,), 0)
    with pytest.raises(ProtocolError, match="two arrays"):
        read(private_memory(1024), [layout, layout])


@given(layouts)
def test_no_layout_reaches_outside_the_memory(layout: ArrayLayout) -> None:
    memory = private_memory(1024)
    try:
        array = read(memory, [layout])[layout.name]
    except ProtocolError:
        return
    begin = array.ctypes.data - memory.ctypes.data
    assert array.size == 0 or 0 <= begin <= begin + array.nbytes <= memory.nbytes


@given(specs)
def test_a_private_copy_has_the_same_arrays(batch: list[tuple[str, tuple[int, ...]]]) -> None:
    memory = private_memory(1 << 16)
    written, layouts = filled(memory, batch)
    copies = private_copy(memory, layouts)
    memory[:] = 255
    for values, array in zip(written, copies.values(), strict=True):
        np.testing.assert_array_equal(array, values, strict=True)


def test_a_private_copy_takes_no_more_than_it_needs() -> None:
    writer = BatchWriter(memory := private_memory(1 << 20))
    writer.array("a", "int8", 1 << 18)
    writer.array("b", "int8", 1 << 18)
    writer.reshape("a", 10)
    writer.reshape("b", 10)
    copies = private_copy(memory, writer.commit())
    assert copies["b"].ctypes.data - copies["a"].ctypes.data == ALIGNMENT


def test_a_private_copy_of_a_bad_layout_is_refused() -> None:
    with pytest.raises(ProtocolError):
        private_copy(private_memory(64), [ArrayLayout("x", "int8", (65,), 0)])
