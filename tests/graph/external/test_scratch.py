"""Scratch folders are removed by whoever closes them, or by the next one after a death."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from penstock.graph.external import scratch as module
from penstock.graph.external.scratch import Scratch, append, mapped_array, numbers_of

pytestmark = pytest.mark.usefixtures("no_leaks")

ROOT = Path(__file__).parents[3]
HOLDER = """
import sys
from pathlib import Path
from penstock.graph.external.scratch import Scratch

scratch = Scratch(Path(sys.argv[1]))
scratch.path("a-1").write_bytes(b"a")
print(scratch.folder.name, flush=True)
sys.stdin.read()
"""


def test_a_folder_is_removed_with_its_files(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path)
    scratch.path("a-1").write_bytes(b"a")
    scratch.array("b", "int64", [100], 0)
    scratch.close()
    scratch.close()
    assert not any(tmp_path.iterdir())


def test_arrays_that_are_large_lie_in_files_and_outlive_them(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path)
    small, large = (scratch.array(str(room), "int64", [5, 2], room) for room in (80, 79))
    assert not scratch.path("80").exists()
    assert scratch.path("79").stat().st_size == 80
    for array in (small, large):
        assert not array.any()
        array[:] = np.arange(10).reshape(5, 2)
    scratch.close()
    np.testing.assert_array_equal(small, large)


def test_numbers_that_were_appended_are_read_in_order(tmp_path: Path) -> None:
    numbers = np.random.default_rng(0).integers(0, 2**62, 2_500_000)
    for part in np.array_split(numbers, 3):
        append(tmp_path / "x", [part.view(np.uint8)])
    found = list(numbers_of(tmp_path / "x"))
    assert len(found) > 1
    np.testing.assert_array_equal(np.concatenate(found), numbers)


def test_a_folder_in_use_stays_and_one_of_a_dead_process_is_removed(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        left = tmp_path / holder.stdout.readline().strip()
        Scratch(tmp_path).close()
        assert [path.name for path in left.iterdir()] == ["a-1.tmp"]
        holder.send_signal(signal.SIGKILL)
    Scratch(tmp_path).close()
    assert not any(tmp_path.iterdir())


def test_nothing_is_removed_that_is_not_ours(tmp_path: Path) -> None:
    left = tmp_path / "penstock-scratch-0123456789abcdef"
    others = [tmp_path / "penstock-scratch-notes", tmp_path / "x"]
    for folder in (left, *others):
        folder.mkdir()
        (folder / "notes.txt").write_text("not ours")
    (left / "a-1.tmp").write_text("ours")
    (tmp_path / "penstock-scratch-0000000000000000").write_text("a file")
    (tmp_path / "penstock-scratch-1111111111111111").symlink_to(others[1])
    Scratch(tmp_path).close()
    assert [path.name for path in left.iterdir()] == ["notes.txt"]
    assert all((folder / "notes.txt").exists() for folder in others)
    assert (tmp_path / "penstock-scratch-0000000000000000").exists()


def test_a_folder_that_is_swept_before_it_is_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked, made = module._locked, []

    def swept(folder: Path) -> int | None:
        made.append(folder)
        if len(made) == 1:
            os.rmdir(folder)
        return locked(folder)

    monkeypatch.setattr(module, "_locked", swept)
    scratch = Scratch(tmp_path)
    assert scratch.folder == made[1]
    scratch.close()


def test_a_file_system_that_cannot_lock_is_no_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Scratch(tmp_path)

    def cannot(*_: object) -> None:
        raise OSError(errno.ENOTSUP, "no locks here")

    monkeypatch.setattr(module.fcntl, "flock", cannot)
    second = Scratch(tmp_path)
    assert first.folder.exists()  # nobody can tell whether it is in use
    for scratch in (first, second):
        scratch.close()


def test_an_error_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as told:
        append(tmp_path / "none" / "x", [np.zeros(3, np.uint8)])
    assert told.value.filename == str(tmp_path / "none" / "x")
    with pytest.raises(FileNotFoundError, match="none"):
        Scratch(tmp_path / "none")


def test_a_mapped_array_has_its_place_on_the_disk(tmp_path: Path) -> None:
    """A file with holes kills who writes to it when the disk is full."""
    array = mapped_array(tmp_path / "a.tmp", np.int32, [1 << 16])
    assert (tmp_path / "a.tmp").stat().st_blocks * 512 >= array.nbytes
    assert array.shape == (1 << 16,)
    assert not array.any()
    with pytest.raises(FileExistsError):
        mapped_array(tmp_path / "a.tmp", np.int32, [1])
