"""Arrays in files: mapped, read-only, and small to send."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from penstock.graph.shared import FileHandle, Segment, SharedArray
from tests.graph.shared_children import open_descriptors, run_child

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.fixture
def numbers() -> npt.NDArray[np.int32]:
    return np.arange(1000, dtype=np.int32)


@pytest.fixture
def path(tmp_path: Path, numbers: npt.NDArray[np.int32]) -> Path:
    """A file with sixteen bytes of something else, and then the numbers."""
    file = tmp_path / "numbers.bin"
    file.write_bytes(b"0123456789abcdef" + numbers.tobytes())
    return file


def test_a_file_is_read_where_the_array_lies(path: Path, numbers: npt.NDArray[np.int32]) -> None:
    with SharedArray.open(path, "int32", 1000, offset=16) as shared:
        assert np.array_equal(shared.array, numbers)


def test_writes_to_an_opened_file_are_refused(path: Path) -> None:
    with SharedArray.open(path, "int32", 1000, offset=16) as shared:
        view = shared.array
        with pytest.raises(ValueError, match="assignment destination is read-only"):
            view[0] = 1


def test_an_open_file_holds_no_descriptor(path: Path) -> None:
    before = open_descriptors()
    with SharedArray.open(path, "int32", 1000, offset=16):
        assert open_descriptors() == before


def test_views_outlive_the_file(path: Path) -> None:
    with SharedArray.open(path, "int32", 1000, offset=16) as shared:
        view = shared.array[-3:]
    os.unlink(path)
    assert view.tolist() == [997, 998, 999]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        SharedArray.open(tmp_path / "nowhere", "int32", 1000)


def test_a_file_that_is_too_short_is_named_with_both_sizes(path: Path) -> None:
    with pytest.raises(ValueError, match=r"numbers\.bin is too short.*4020 bytes, there are 4016"):
        SharedArray.open(path, "int32", 1001, offset=16)


def test_a_folder_is_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is not a regular file"):
        SharedArray.open(tmp_path, "int32", 0)


def test_a_file_is_never_attached_writable(path: Path) -> None:
    with pytest.raises(ValueError, match="always mapped read-only"):
        Segment.attach(FileHandle(str(path)), writable=True)


def test_freezing_what_is_read_only_anyway_does_nothing(path: Path) -> None:
    with SharedArray.open(path, "int32", 1000, offset=16) as shared:
        shared.freeze()
        assert shared.array[5] == 5


@pytest.mark.parametrize("shape", [(0,), (0, 3), (7, 0)])
def test_an_empty_array_lies_in_an_empty_file(tmp_path: Path, shape: tuple[int, ...]) -> None:
    (tmp_path / "empty").touch()
    with SharedArray.open(tmp_path / "empty", "float32", shape) as shared:
        assert shared.array.shape == shape
        assert not shared.array.flags.writeable


def test_an_empty_file_holds_no_scalar(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    with pytest.raises(ValueError, match="needs 4 bytes, there are 0"):
        SharedArray.open(tmp_path / "empty", "float32", ())


def test_a_scalar_lies_in_a_file(path: Path) -> None:
    with SharedArray.open(path, "int32", (), offset=16 + 4 * 7) as shared:
        assert shared.array == 7


def test_many_arrays_lie_in_one_file_mapped_once(path: Path) -> None:
    with Segment.open(path) as segment:
        letters, numbers = SharedArray(segment, "uint8", 16), SharedArray(segment, "int32", 2, 16)
        assert (letters.array.tobytes(), numbers.array.tolist()) == (b"0123456789abcdef", [0, 1])


def test_the_handle_holds_an_absolute_path(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    with SharedArray.open("numbers.bin", "int32", 1000, offset=16) as shared:
        assert shared.handle.segment == FileHandle(str(path))


@pytest.mark.parametrize("rows", [1, 1 << 28])
def test_the_array_pickles_small_whatever_its_size(tmp_path: Path, rows: int) -> None:
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.truncate(rows * 400)
    with SharedArray.open(path, "float32", (rows, 100)) as shared:
        assert len(pickle.dumps(shared)) < 200 + len(str(path))
        assert len(pickle.dumps(shared.handle)) < 200 + len(str(path))


def test_a_pickled_array_is_the_same_file_again(path: Path) -> None:
    with (
        SharedArray.open(path, "int32", 1000, offset=16) as shared,
        pickle.loads(pickle.dumps(shared)) as copy,
    ):
        assert copy.handle == shared.handle
        assert np.array_equal(copy.array, shared.array)


def test_a_pickled_segment_is_the_same_file_again(path: Path) -> None:
    with Segment.open(path) as segment, pickle.loads(pickle.dumps(segment)) as copy:
        assert copy.handle == segment.handle


def test_a_fresh_interpreter_maps_the_file_by_its_handle(path: Path) -> None:
    program = "say(SharedArray.attach(given_handle()).array[-2:].tolist())"
    with SharedArray.open(path, "int32", 1000, offset=16) as shared:
        assert run_child(program, shared.handle) == [998, 999]
