"""Out of memory or not: only the kernel's counters decide, and each kill explains one death."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.workers import cgroups
from penstock.workers.autopsy import examine
from penstock.workers.oom import WINDOW, OomWatch
from tests.workers.groups import small_group
from tests.workers.pools import rehearsal

pytestmark = pytest.mark.usefixtures("no_leaks")


class Counted:
    """A control group's folder and /proc, as files that a test can write."""

    def __init__(self, folder: Path) -> None:
        self.group = folder / "group"
        self.proc = folder / "proc"
        self.group.mkdir()
        self.proc.mkdir()
        self.killed(0)

    def killed(self, group: int, machine: int | None = None) -> None:
        (self.group / "memory.events").write_text(f"low 0\noom 9\noom_kill {group}\n")
        text = f"nr_free_pages 7\noom_kill {group if machine is None else machine}\n"
        (self.proc / "vmstat").write_text(text)

    def watch(self) -> OomWatch:
        return OomWatch(self.group, self.proc)


@pytest.fixture
def counted(tmp_path: Path) -> Counted:
    return Counted(tmp_path)


def test_a_counter_that_moved_while_a_worker_lived_explains_its_death(counted: Counted) -> None:
    watch = counted.watch()
    watch.look(0.0)
    counted.killed(1)
    kills = watch.kills(5.0, since=0.0, claim=True)
    assert kills.moved
    assert "0 → 1" in kills.describe()


def test_counters_that_stand_still_explain_nothing(counted: Counted) -> None:
    counted.killed(3)
    watch = counted.watch()
    watch.look(0.0)
    kills = watch.kills(5.0, since=0.0, claim=True)
    assert not kills.moved
    assert "3 (unchanged)" in kills.describe()


def test_one_kill_explains_one_death_only(counted: Counted) -> None:
    watch = counted.watch()
    watch.look(0.0)
    counted.killed(1)
    claims = [watch.kills(at, since=0.0, claim=True).moved for at in (5.0, 5.1)]
    assert claims == [True, False]


def test_two_kills_explain_two_deaths(counted: Counted) -> None:
    watch = counted.watch()
    watch.look(0.0)
    counted.killed(2)
    claims = [watch.kills(at, since=0.0, claim=True).moved for at in (5.0, 5.1, 5.2)]
    assert claims == [True, True, False]


def test_a_kill_right_after_one_that_was_explained_is_found(counted: Counted) -> None:
    watch = counted.watch()
    watch.look(0.0)
    counted.killed(1)
    assert watch.kills(5.0, since=0.0, claim=True).moved
    counted.killed(2)
    assert watch.kills(5.0 + WINDOW, since=0.0, claim=True).moved


def test_a_death_that_has_another_explanation_uses_up_no_kill(counted: Counted) -> None:
    watch = counted.watch()
    watch.look(0.0)
    counted.killed(1)
    watch.kills(5.0, since=0.0, claim=False)
    assert watch.kills(5.1, since=0.0, claim=True).moved


def test_a_kill_of_long_ago_explains_nothing(counted: Counted) -> None:
    watch = counted.watch()
    watch.look(0.0)
    counted.killed(1)
    watch.look(2.0)
    assert not watch.kills(2.0 + WINDOW, since=0.0, claim=True).moved


def test_a_kill_before_the_worker_started_explains_nothing(counted: Counted) -> None:
    watch = counted.watch()
    watch.look(0.0)
    counted.killed(1)
    watch.look(2.0)
    assert not watch.kills(5.0, since=2.0, claim=True).moved


def test_where_the_group_is_counted_the_rest_of_the_machine_does_not_matter(
    counted: Counted,
) -> None:
    watch = counted.watch()
    watch.look(0.0)
    counted.killed(0, machine=4)
    kills = watch.kills(5.0, since=0.0, claim=True)
    assert not kills.moved
    assert "machine 0 → 4" in kills.describe()


def test_without_a_group_the_machine_decides(counted: Counted) -> None:
    watch = OomWatch(None, counted.proc)
    watch.look(0.0)
    counted.killed(0, machine=4)
    kills = watch.kills(5.0, since=0.0, claim=True)
    assert kills.moved
    assert "/proc/vmstat" in kills.source


def test_version_1_counts_in_another_file(tmp_path: Path) -> None:
    (tmp_path / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 5\n")
    assert cgroups.oom_kills(tmp_path) == 5


def test_no_counter_at_all_is_no_sign(tmp_path: Path) -> None:
    watch = OomWatch(tmp_path, tmp_path)
    watch.look(0.0)
    kills = watch.kills(1.0, since=0.0, claim=True)
    assert not kills.moved
    assert "unknown" in kills.describe()


def test_a_process_that_the_kernel_kills_for_memory_moves_the_counter() -> None:
    """In a real control group, whose real limit is met."""
    with small_group() as group:
        watch = OomWatch(group)
        watch.look(0.0)
        program = "import sys; sys.stdin.read(1); print(len(bytearray(256 << 20)))"
        with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE) as child:
            (group / "cgroup.procs").write_text(str(child.pid))
            child.communicate(b"x")
        assert child.returncode == -9
        assert watch.kills(1.0, since=0.0, claim=True).moved


def test_a_worker_that_the_kernel_kills_for_memory_is_said_to_have_run_out_of_it() -> None:
    """CONTRACT 49: the kernel's own counter, in a real control group, tells it from any SIGKILL."""
    with small_group() as group, rehearsal("fill_memory", oom=OomWatch(group)) as stage:
        worker = stage.start_ready(1)
        (group / "cgroup.procs").write_text(str(worker.pid))
        stage.pool.retire(1)  # its cue
        autopsy = examine(stage.until_ended(1))
    assert autopsy.out_of_memory
    assert "the kernel killed it" in autopsy.verdict


def test_a_worker_killed_by_hand_in_the_same_group_is_not() -> None:
    """CONTRACT 49: SIGKILL alone is no sign of memory pressure."""
    with small_group() as group, rehearsal("serve", oom=OomWatch(group)) as stage:
        worker = stage.start_ready(1)
        (group / "cgroup.procs").write_text(str(worker.pid))
        worker.process.kill()
        autopsy = examine(stage.until_ended(1))
    assert autopsy.cause == "SIGKILL, no sign of memory pressure"
