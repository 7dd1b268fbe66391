"""A save that ends at any instant, in any way, leaves the old graph or the new one."""

from __future__ import annotations

import errno
import itertools
import os
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import GraphFormatError
from penstock.graph.format import read, verify, write
from tests.graph.faults import CHANGES, OTHERS, FailAt, at_every_call
from tests.graph.format_graphs import Parts, as_data, entries, saved_data, tiny
from tests.graph.power_loss import Disk, Recorder, Survives

pytestmark = pytest.mark.usefixtures("no_leaks")

ROOT = Path(__file__).parents[2]
# Savers that are started at a time: most of their time is that of a fresh interpreter.
AT_ONCE = 2

SAVER = """
import sys
from penstock.graph.format import write
from tests.graph.faults import die_at
from tests.graph.format_graphs import tiny

new = tiny(seed=1)
die_at(int(sys.argv[2]))
write(sys.argv[1], *new)
"""

Notes = list[tuple[Any, ...]]
# A folder before a save, all that the save did to it, and what is found in it before.
Recorded = tuple[Path, Notes, str]

OLD, NEW, NOTHING, MIXTURE = "old", "new", "nothing", "a mixture"


def found_at(path: Path) -> str:
    """Which graph the folder holds, every byte of it."""
    try:
        data = saved_data(path)
    except (FileNotFoundError, GraphFormatError):
        return NOTHING
    return OLD if data == as_data(*tiny(0)) else NEW if data == as_data(*tiny(1)) else MIXTURE


def killed_saver(path: Path, position: int) -> int:
    """Saves in a fresh interpreter that is killed at a call; how it ended."""
    command = [sys.executable, "-c", SAVER, str(path), str(position)]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def assert_a_save_puts_all_in_order(path: Path) -> None:
    write(path, *tiny(1))
    assert (found_at(path), entries(path)) == (NEW, ["data", "manifest.json"])


def outcomes_of_killing(folder: Path, before: Path | None) -> list[str]:
    """What is found after a death at the first call, at the second, … until one save completes."""

    def kill(position: int) -> tuple[int, str]:
        path = folder / str(position) / "x.graph"
        path.parent.mkdir(parents=True)
        if before is not None:
            shutil.copytree(before, path)
        status, found = killed_saver(path, position), found_at(path)
        assert_a_save_puts_all_in_order(path)
        return status, found

    outcomes: list[str] = []
    with ThreadPoolExecutor(AT_ONCE) as threads:
        for first in itertools.count(1, 2 * AT_ONCE):
            for status, found in threads.map(kill, range(first, first + 2 * AT_ONCE)):
                outcomes.append(found)
                if status == 0:
                    return outcomes
                assert status == -signal.SIGKILL
    raise AssertionError("unreachable")


def test_a_saver_killed_at_any_call_leaves_the_old_graph_or_the_new_one(tmp_path: Path) -> None:
    write(tmp_path / "old.graph", *tiny(0))
    outcomes = outcomes_of_killing(tmp_path / "new", tmp_path / "old.graph")
    turn = outcomes.index(NEW)
    assert (set(outcomes[:turn]), set(outcomes[turn:])) == ({OLD}, {NEW})
    assert min(turn, len(outcomes) - turn) > 5


def test_a_first_saver_killed_at_any_call_leaves_no_graph_or_a_whole_one(tmp_path: Path) -> None:
    outcomes = outcomes_of_killing(tmp_path / "new", None)
    turn = outcomes.index(NEW)
    assert (set(outcomes[:turn]), set(outcomes[turn:])) == ({NOTHING}, {NEW})
    assert turn > 10


def test_leftovers_of_several_dead_savers_are_removed_together(tmp_path: Path) -> None:
    path = tmp_path / "x.graph"
    write(path, *tiny(0))
    keep = path / "notes.txt"
    keep.write_text("not ours")
    whole = next(path.glob("data-*"))
    for number in range(3):
        shutil.copytree(whole, path / f"data-{number:016x}")
    (path / "manifest.json.tmp").write_text("{")
    write(path, *tiny(1))
    assert (found_at(path), entries(path)) == (NEW, ["data", "manifest.json", "notes.txt"])


@pytest.mark.parametrize("for_good", [False, True])
@pytest.mark.parametrize("old", [False, True])
def test_an_error_at_any_call_leaves_the_old_graph_or_the_new_one(
    old: bool, for_good: bool, tmp_path: Path
) -> None:
    path, new = tmp_path / "x.graph", tiny(1)
    for position in itertools.count(1):
        shutil.rmtree(path, ignore_errors=True)
        if old:
            write(path, *tiny(0))
        fault = FailAt(position, for_good=for_good)
        told = error_of_saving_with(fault, path, new)
        # An error when the new manifest is in place is told, but what is new is kept.
        before = OLD if old else NOTHING
        assert found_at(path) in ((before, NEW) if told else (NEW,))
        if not fault.struck:
            break
        assert_a_save_puts_all_in_order(path)
    assert position > 30


def test_a_first_save_that_cannot_sync_the_folder_above_leaves_none_behind(tmp_path: Path) -> None:
    fault = FailAt(1, for_good=False)
    told = error_of_saving_with(fault, tmp_path / "x.graph", tiny(), ("fsync",))
    assert told is not None
    assert list(tmp_path.iterdir()) == []


def error_of_saving_with(
    fault: FailAt, path: Path, parts: Parts, calls: tuple[str, ...] = CHANGES + OTHERS
) -> OSError | None:
    with pytest.MonkeyPatch.context() as patch:
        for name, wrapped in at_every_call(fault, calls).items():
            patch.setattr(os, name, wrapped)
        try:
            write(path, *parts)
        except OSError as error:
            return error
    return None


def test_a_write_error_is_told_with_the_file_and_leaves_nothing(tmp_path: Path) -> None:
    """A limit on the size of files stands for a full disk: the same call fails in the same way."""
    path = tmp_path / "x.graph"
    write(path, *tiny(0))
    program = """
import resource, sys
from penstock.graph.format import write
from tests.graph.format_graphs import tiny

new = tiny(1)
resource.setrlimit(resource.RLIMIT_FSIZE, (50, resource.RLIM_INFINITY))
try:
    write(sys.argv[1], *new)
except OSError as error:
    print(error)
"""
    command = [sys.executable, "-c", program, str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "File too large" in done.stdout
    assert "0001-csc-adjacency.bin" in done.stdout
    assert (found_at(path), entries(path)) == (OLD, ["data", "manifest.json"])


def test_an_interrupt_at_any_progress_leaves_the_old_graph_and_nothing_else(
    tmp_path: Path,
) -> None:
    path = tmp_path / "x.graph"
    write(path, *tiny(0))
    for stop in range(1, 4):
        told = itertools.count(1)

        def interrupt(*_: int, stop: int = stop, told: itertools.count[int] = told) -> None:
            if next(told) == stop:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            write(path, *tiny(1), interrupt)
        assert (found_at(path), entries(path)) == (OLD, ["data", "manifest.json"])


def test_an_interrupted_first_save_leaves_no_folder(tmp_path: Path) -> None:
    def interrupt(*_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write(tmp_path / "x.graph", *tiny(1), interrupt)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(
    scope="module", params=["over a graph", "for the first time", "over a save that broke off"]
)
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    root = tmp_path_factory.mktemp("recorded")
    before, work = root / "before", root / "work"
    before.mkdir()
    if request.param != "for the first time":
        write(before / "x.graph", *tiny(0))
    shutil.copytree(before, work)
    recorder = Recorder()
    with pytest.MonkeyPatch.context() as patch:
        for name, wrapped in recorder.wrapped().items():
            patch.setattr(os, name, wrapped)
        if request.param == "over a save that broke off":
            save_without_the_last_sync(work / "x.graph", recorder)
        write(work / "x.graph", *tiny(1))
    notes = [moved(note, work, before) for note in recorder.notes]
    return before, notes, NOTHING if request.param == "for the first time" else OLD


def save_without_the_last_sync(path: Path, recorder: Recorder) -> None:
    """The new manifest is in place, but not for sure: nothing it replaces may be removed yet."""
    fsync = os.fsync

    def failing(fd: int) -> None:
        if any(note[0] == "replace" for note in recorder.notes):
            raise OSError(errno.EIO, "the disk fails")
        fsync(fd)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", failing)
        with pytest.raises(OSError, match="the disk fails"):
            write(path, *tiny(1))


def moved(note: tuple[Any, ...], work: Path, before: Path) -> tuple[Any, ...]:
    return tuple(
        before / part.relative_to(work) if isinstance(part, Path) else part for part in note
    )


@given(data=st.data())
def test_a_power_failure_at_any_instant_leaves_the_old_graph_or_the_new_one(
    data: st.DataObject,
    recorded: Recorded,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    before, notes, old = recorded
    instant = data.draw(st.integers(0, len(notes)))
    luck = data.draw(st.lists(st.booleans(), max_size=60))
    remains = tmp_path_factory.mktemp("remains") / "root"
    lose_power(before, notes[:instant], remains, lambda _: bool(luck) and luck.pop())
    found = found_at(remains / "x.graph")
    assert found == NEW if instant == len(notes) else found in (old, NEW)
    assert_a_save_puts_all_in_order(remains / "x.graph")


@pytest.mark.parametrize("contents", ["contents", ""])
@pytest.mark.parametrize("generation", ["generation", ""])
@pytest.mark.parametrize("folder", ["folder", ""])
def test_a_loss_of_one_kind_at_every_instant_leaves_the_old_graph_or_the_new_one(
    folder: str, generation: str, contents: str, recorded: Recorded, tmp_path: Path
) -> None:
    before, notes, old = recorded
    found = []
    for instant in range(len(notes) + 1):
        remains = tmp_path / str(instant)
        lose_power(before, notes[:instant], remains, {folder, generation, contents}.__contains__)
        found.append(found_at(remains / "x.graph"))
    turn = found.index(NEW)
    assert (set(found[:turn]), set(found[turn:])) == ({old}, {NEW})


def lose_power(before: Path, notes: Notes, remains: Path, survives: Survives) -> None:
    disk = Disk(before)
    for note in notes:
        disk.do(*note)
    disk.lose_power(remains, survives)


def test_mappings_of_a_graph_outlive_its_replacement(tmp_path: Path) -> None:
    path = tmp_path / "x.graph"
    write(path, *tiny(0))
    opened = read(path)
    write(path, *tiny(1))
    assert as_data(opened.schema, opened.arrays) == as_data(*tiny(0))
    assert verify(path) != opened.version
