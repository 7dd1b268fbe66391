"""Named shared memory: chosen when memfd is missing, swept when its creator is dead."""

from __future__ import annotations

import os
import secrets
import signal
import stat
from pathlib import Path

import pytest

from penstock.graph.memfd import memfd_works
from penstock.graph.shared import MemfdHandle, NamedHandle, Segment, sweep
from tests.graph.shared_children import heard_from, kill, named_segments, run_child, start_child

pytestmark = pytest.mark.usefixtures("no_leaks")

CREATE_AND_WAIT = """
segment = Segment.create(64, kind="named")
say(segment.handle.path)
wait_for_the_end()
"""

# Python tells its audit hooks of a lock before it asks for it: between the making of a file and
# the locking of it there is room for another process to act, and here one does.
ON_THE_FIRST_LOCK = """
def on_the_first_lock(act):
    waiting = [act]
    def hook(event, arguments):
        if event == "fcntl.flock" and waiting:
            waiting.pop()()
    sys.addaudithook(hook)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of its own for names, so that only this test's segments are in it."""
    monkeypatch.setenv("PENSTOCK_SHARED_MEMORY_DIR", str(tmp_path))
    return tmp_path


def leftover(folder: Path, pid: int) -> Path:
    """A file as a killed process leaves it."""
    path = folder / f"penstock-{pid}-{secrets.token_hex(8)}"
    path.touch(0o600)
    return path


# --- which kind -----------------------------------------------------------------------------


def test_memfd_is_chosen_where_it_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PENSTOCK_SHARED_MEMORY", raising=False)
    assert memfd_works()
    with Segment.create(64) as segment:
        assert isinstance(segment.handle, MemfdHandle)


def test_the_environment_chooses(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_SHARED_MEMORY", "named")
    with Segment.create(64) as segment:
        assert isinstance(segment.handle, NamedHandle)


def test_the_argument_overrules_the_environment(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_SHARED_MEMORY", "memfd")
    with Segment.create(64, kind="named") as segment:
        assert isinstance(segment.handle, NamedHandle)


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="kind is 'sysv': use one of auto, memfd, named"):
        Segment.create(64, kind="sysv")


def test_an_unknown_kind_in_the_environment_is_refused_with_the_variables_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PENSTOCK_SHARED_MEMORY", "sysv")
    with pytest.raises(ValueError, match="PENSTOCK_SHARED_MEMORY is 'sysv'"):
        Segment.create(64)


def test_names_are_used_where_memfd_is_missing(folder: Path) -> None:
    program = """
del os.memfd_create
say(type(Segment.create(64, kind="auto").handle).__name__)
"""
    assert run_child(program) == "NamedHandle"


def test_memfd_is_refused_where_it_is_missing() -> None:
    program = """
del os.memfd_create
try:
    Segment.create(64, kind="memfd")
except ValueError as error:
    say(str(error))
"""
    assert run_child(program) == "kind is 'memfd', which does not work on this system"


def test_the_fallback_works_without_anything_posix(folder: Path) -> None:
    # The nearest this system comes to Windows: that branch of every module, without fcntl.
    program = """
del os.memfd_create
sys.platform, sys.modules["fcntl"] = "win32", None
for name in [name for name in sys.modules if name.startswith("penstock.")]:
    del sys.modules[name]
from penstock.graph.shared import SharedArray
shared = SharedArray.from_array(np.arange(3))
other = SharedArray.attach(shared.handle)
say([type(shared.segment.handle).__name__, other.array.tolist(), other.writable])
"""
    assert run_child(program) == ["NamedHandle", [0, 1, 2], False]
    assert named_segments(folder) == []


# --- names ----------------------------------------------------------------------------------


def test_names_are_made_in_memory() -> None:
    with Segment.create(64, kind="named") as segment:
        assert isinstance(segment.handle, NamedHandle)
        assert segment.handle.path in named_segments("/dev/shm")


def test_a_name_tells_people_whose_it_is(folder: Path) -> None:
    with Segment.create(64, kind="named"):
        assert [path.name.split("-")[1] for path in folder.iterdir()] == [str(os.getpid())]


def test_other_users_may_not_read_a_named_segment(folder: Path) -> None:
    with Segment.create(64, kind="named"):
        assert [stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()] == [0o600]


def test_a_full_folder_is_an_error_that_names_the_file_and_the_need() -> None:
    free = os.statvfs("/dev/shm")
    nbytes = (free.f_blocks + 1) * free.f_frsize
    with pytest.raises(OSError, match=f"no room for {nbytes} bytes.*/dev/shm/penstock-"):
        Segment.create(nbytes, kind="named")


# --- sweeping -------------------------------------------------------------------------------


def test_what_a_killed_process_left_is_removed(folder: Path) -> None:
    with start_child(CREATE_AND_WAIT) as creator:
        path = heard_from(creator)
        kill(creator)
    assert sweep() == [path]
    assert named_segments(folder) == []


def test_a_frozen_segment_of_a_killed_process_is_removed(folder: Path) -> None:
    program = CREATE_AND_WAIT.replace("say", "segment.freeze()\nsay")
    with start_child(program) as creator:
        path = heard_from(creator)
        kill(creator)
    assert sweep() == [path]


def test_a_segment_of_a_living_process_is_kept(folder: Path) -> None:
    with start_child(CREATE_AND_WAIT) as creator:
        path = heard_from(creator)
        assert sweep() == []
        assert named_segments(folder) == [path]


def test_a_segment_of_a_stopped_process_is_kept(folder: Path) -> None:
    with start_child(CREATE_AND_WAIT) as creator:
        path = heard_from(creator)
        creator.send_signal(signal.SIGSTOP)
        assert sweep() == []
        assert named_segments(folder) == [path]
        creator.send_signal(signal.SIGCONT)


def test_a_segment_of_this_process_is_kept(folder: Path) -> None:
    with Segment.create(64, kind="named"):
        assert sweep() == []


def test_a_leftover_is_removed_though_its_process_id_is_in_use_again(folder: Path) -> None:
    path = leftover(folder, os.getpid())
    assert sweep() == [str(path)]


def test_the_first_named_segment_of_a_process_sweeps(folder: Path) -> None:
    path = leftover(folder, 1)
    with Segment.create(64, kind="named"):
        assert not path.exists()


def test_later_segments_of_a_process_do_not_sweep_again(folder: Path) -> None:
    with Segment.create(64, kind="named"):
        path = leftover(folder, 1)
    with Segment.create(64, kind="named"):
        assert sweep() == [str(path)]


def test_a_name_swept_away_before_it_was_locked_is_made_again(folder: Path) -> None:
    program = f"""
{ON_THE_FIRST_LOCK}
swept = []
on_the_first_lock(lambda: swept.extend(sweep()))
with Segment.create(64, kind="named") as segment:
    say([len(swept), os.path.exists(segment.handle.path)])
"""
    assert run_child(program) == [1, True]


def test_a_name_that_is_being_swept_is_given_up_for_another(folder: Path) -> None:
    program = f"""
{ON_THE_FIRST_LOCK}
import fcntl
from penstock.graph.named import memory_folder
sweeping = []
def lock_it():
    [entry] = os.scandir(memory_folder())
    sweeping.append(open(entry))
    fcntl.flock(sweeping[0], fcntl.LOCK_EX)
on_the_first_lock(lock_it)
with Segment.create(64, kind="named") as segment:
    say(segment.handle.path != sweeping[0].name)
os.unlink(sweeping[0].name)
sweeping[0].close()
"""
    assert run_child(program) is True


@pytest.mark.parametrize(
    "name", ["penstock", "penstock-1", "penstock-1-notours", "other-1-0123456789abcdef"]
)
def test_a_foreign_file_is_kept(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    assert sweep(str(tmp_path)) == []
    assert (tmp_path / name).exists()


def test_what_looks_like_a_segment_but_is_no_file_is_kept(tmp_path: Path) -> None:
    name = "penstock-1-0123456789abcde"
    (tmp_path / f"{name}0").mkdir()
    (tmp_path / f"{name}1").symlink_to(leftover(tmp_path / f"{name}0", 1))
    os.mkfifo(tmp_path / f"{name}2")
    assert sweep(str(tmp_path)) == []
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_a_segment_of_another_user_is_kept(tmp_path: Path) -> None:
    path = leftover(tmp_path, 1)
    os.chown(path, 12345, 12345)
    assert sweep(str(tmp_path)) == []
    assert path.exists()
