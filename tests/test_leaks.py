"""The watch for leaks sees what it is there to see."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.graph.named import DIRECTORY_VARIABLE, NamedMemory
from tests import leaks
from tests.leaks import MARK, SHARED_MEMORY, Holdings, leaks_since, own_threads, threads_since

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc and /dev/shm")

WAIT_FOR_EOF = "import sys; sys.stdin.read()"
# Prints the id of a child that waits for the end of the same stdin, and ends.
LEAVE_AN_ORPHAN = f"""
import subprocess, sys
print(subprocess.Popen([sys.executable, "-c", {WAIT_FOR_EOF!r}], stdout=subprocess.DEVNULL).pid)
"""


@pytest.fixture
def mark(monkeypatch: pytest.MonkeyPatch) -> str:
    value = uuid.uuid4().hex
    monkeypatch.setenv(MARK, value)
    return value


@pytest.fixture
def before(mark: str) -> Holdings:
    return Holdings.now(mark)


class Unclosed:
    """Holds a descriptor for as long as it lives."""

    itself: Unclosed

    def __init__(self, path: Path) -> None:
        self.fd = os.open(path, os.O_WRONLY | os.O_CREAT)

    def __del__(self) -> None:
        os.close(self.fd)


@pytest.fixture
def only_told_to_collect() -> Iterator[None]:
    """No garbage is collected but by those who ask."""
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def shared_file() -> Iterator[Callable[[str], Path]]:
    """Makes a file in shared memory whose name begins as told."""
    made: list[Path] = []

    def make(prefix: str) -> Path:
        made.append(SHARED_MEMORY / f"{prefix}-{os.getpid()}-{uuid.uuid4().hex[:16]}")
        made[-1].touch()
        return made[-1]

    yield make
    for file in made:
        file.unlink()


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def test_nothing_is_left_behind_by_doing_nothing(before: Holdings, mark: str) -> None:
    assert leaks_since(before, mark) == []


def test_an_open_descriptor_is_named_with_what_it_opens(
    before: Holdings, mark: str, tmp_path: Path
) -> None:
    with (tmp_path / "forgotten").open("w") as file:
        assert Holdings.now(mark).beyond(before) == [f"descriptor {file.fileno()}: {file.name}"]


def test_a_running_thread_is_named(before: Holdings, mark: str) -> None:
    done = threading.Event()
    thread = threading.Thread(target=done.wait, name="forgotten")
    thread.start()
    try:
        assert Holdings.now(mark).beyond(before) == [f"thread {thread.native_id}: forgotten"]
    finally:
        done.set()
        thread.join()


def test_a_running_child_is_named(pipe: tuple[int, int], before: Holdings, mark: str) -> None:
    with subprocess.Popen([sys.executable, "-c", WAIT_FOR_EOF], stdin=pipe[0]) as child:
        leaks = Holdings.now(mark).beyond(before)
        child.kill()
    assert [leak.split(":")[0] for leak in leaks] == [f"process {child.pid}"]


def test_a_child_that_was_not_waited_for_is_named(before: Holdings, mark: str) -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    leaks = Holdings.now(mark).beyond(before)
    child.wait()
    assert leaks == [f"process {child.pid}: (not reaped)"]


def test_a_grandchild_is_found_after_its_parent_has_gone(mark: str) -> None:
    reading, writing = os.pipe()
    before = Holdings.now(mark)
    # Its stderr is not captured: the grandchild holds it too, and the end would never be read.
    command = [sys.executable, "-c", LEAVE_AN_ORPHAN]
    try:
        parent = subprocess.run(command, stdin=reading, stdout=subprocess.PIPE, text=True)
        leaks = Holdings.now(mark).beyond(before)
    finally:
        os.close(writing)  # the grandchild reads the end of its input, and ends
        os.close(reading)
    assert [leak.split(":")[0] for leak in leaks] == [f"process {parent.stdout.strip()}"]


def test_a_descriptor_that_took_the_number_of_a_closed_one_is_named(mark: str) -> None:
    number = os.memfd_create("same name")
    before = Holdings.now(mark)
    os.close(number)
    assert os.memfd_create("same name") == number
    try:
        leaks = Holdings.now(mark).beyond(before)
    finally:
        os.close(number)
    assert leaks == [f"descriptor {number}: /memfd:same name (deleted)"]


def test_what_only_a_cycle_keeps_alive_is_not_left_behind(
    before: Holdings, mark: str, tmp_path: Path, only_told_to_collect: None
) -> None:
    holder = Unclosed(tmp_path / "held")
    holder.itself = holder
    del holder
    assert Holdings.now(mark).beyond(before) != []
    assert leaks_since(before, mark) == []


def test_a_shared_memory_file_is_named(
    before: Holdings, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(DIRECTORY_VARIABLE, raising=False)
    memory = NamedMemory(1)
    try:
        leaks = Holdings.now(mark).beyond(before)
    finally:
        memory.close()
    assert f"shared memory {memory.handle.path}" in leaks


def test_a_shared_memory_file_of_another_program_is_not_ours(
    before: Holdings, mark: str, shared_file: Callable[[str], Path]
) -> None:
    shared_file("another-program")
    assert Holdings.now(mark).beyond(before) == []


def test_a_shared_memory_file_that_a_stranger_is_making_is_not_ours(
    before: Holdings, mark: str, shared_file: Callable[[str], Path]
) -> None:
    """Its name carries the process, which has not mapped it yet: the first of the machine."""
    shared_file("penstock-1")
    assert Holdings.now(mark).beyond(before) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_shared_memory_file_of_another_user_is_not_ours(
    before: Holdings, mark: str, shared_file: Callable[[str], Path]
) -> None:
    os.chown(shared_file("penstock"), 65534, -1)
    assert Holdings.now(mark).beyond(before) == []


def test_the_fixture_fails_a_test_that_leaves_a_descriptor_open(tmp_path: Path) -> None:
    leaky = tmp_path / "test_leaky.py"
    leaky.write_text(
        "import os\n"
        "from tests import leaks\n"
        "from tests.conftest import no_leaks\n"
        "leaks.PATIENCE_S = 0.0\n"  # this one will not go
        "def test_leaky(no_leaks):\n"
        "    os.pipe()\n"
    )
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
    root = Path(__file__).parents[1]
    done = subprocess.run(
        [*command, "-c", os.devnull, str(leaky)], cwd=root, capture_output=True, text=True
    )
    assert "left behind:\n  descriptor" in done.stdout, done.stdout


@pytest.mark.parametrize("name", ["penstock-io", "another"])
def test_a_thread_of_ours_that_outlives_a_module_is_seen(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leaks, "PATIENCE_S", 0.05)
    before, end = own_threads(), threading.Event()
    thread = threading.Thread(target=end.wait, name=name)
    thread.start()
    try:
        found = threads_since(before)
    finally:
        end.set()
        thread.join()
    assert found == (["thread penstock-io"] if name == "penstock-io" else [])
    assert threads_since(before) == []
