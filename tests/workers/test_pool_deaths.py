"""Deaths in the pool: each is told once, after all that was said, with all that is known of it."""

from __future__ import annotations

import os
import signal

import pytest

from penstock.wire.messages import Begun, Done, Heartbeat, Ready
from penstock.workers import child
from penstock.workers.autopsy import examine
from penstock.workers.ended import Breach
from penstock.workers.stderr import KEEP
from tests.workers.pools import PATIENCE_S, rehearsal, wait_for_the_end

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.fixture(autouse=True)
def _time_to_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is: whoever has closed its connection is given the time to end."""
    monkeypatch.setattr(child, "DEAF_FOR", PATIENCE_S)


SIGNALS = [
    signal.SIGKILL,
    signal.SIGSEGV,
    signal.SIGBUS,
    signal.SIGABRT,
    signal.SIGILL,
    signal.SIGFPE,
    signal.SIGTERM,
    signal.SIGHUP,
]


def test_what_a_worker_said_before_it_was_killed_is_heard_with_its_end_at_the_latest() -> None:
    """CONTRACT 18: a batch whose message is complete counts, also if the end is noticed first."""
    with rehearsal("die_with_all_said") as stage:
        worker = stage.pool.start(1)
        os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOWAIT)
        news = stage.pool.attend(worker, worker.process.pidfd)
    assert [type(message) for message, _ in news.messages] == [Ready, Begun, Done]
    assert news.ended is not None


def test_an_end_is_not_told_before_the_process_is_reaped() -> None:
    """CONTRACT 18: nothing of it can write into a slot any more."""
    with rehearsal("die_with_all_said") as stage:
        worker = stage.pool.start(1)
        os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOWAIT)
        assert stage.pool.attend(worker, worker.stream.fileno()).ended is None
        assert stage.until_ended(1).exit.signal == signal.SIGKILL
        with pytest.raises(ChildProcessError):
            os.waitpid(worker.pid, os.WNOHANG)


def test_half_a_message_counts_for_nothing() -> None:
    """CONTRACT 18: the batch was begun, and not done."""
    with rehearsal("die_with_half_a_message") as stage:
        stage.pool.start(1)
        stage.until_ended(1)
        assert isinstance(stage.messages[-1], Begun)


@pytest.mark.parametrize("pidfds", [True, False])
def test_much_that_was_said_is_heard_to_the_last_word(pidfds: bool) -> None:
    with rehearsal("talk_much_and_die", pidfds=pidfds) as stage:
        stage.pool.start(1)
        stage.until_ended(1)
        beats = [message.batches for message in stage.messages if isinstance(message, Heartbeat)]
        assert beats == list(range(20_000))


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_a_signal_is_told_by_name(number: signal.Signals) -> None:
    """CONTRACT 49: the signal by name."""
    with rehearsal("kill_itself", environment={"UNDERSTUDY_SIGNAL": str(int(number))}) as stage:
        stage.pool.start(1)
        ended = stage.until_ended(1)
    assert (ended.exit.signal, ended.exit.words) == (number, number.name)
    assert number.name in examine(ended).verdict


def test_an_exit_code_is_told_with_the_last_memory_reading() -> None:
    """CONTRACT 49: the exit code, and the last memory reading."""
    with rehearsal("beat_and_exit") as stage:
        stage.pool.start(1)
        ended = stage.until_ended(1)
    assert (ended.exit.code, ended.exit.signal) == (3, None)
    assert ended.last_beat is not None
    assert "48.0 MiB of its own" in examine(ended).text()


def test_leaving_without_being_asked_is_a_death() -> None:
    """CONTRACT 49: exit code 0 is no excuse."""
    with rehearsal("exit_0") as stage:
        stage.pool.start(1)
        ended = stage.until_ended(1)
    assert not ended.as_asked
    assert examine(ended).cause == "exit code 0 without being asked"


def test_an_error_at_the_start_is_told_in_its_own_words() -> None:
    """CONTRACT 53: the cause of a death before ready is named."""
    with rehearsal("fail_at_import") as stage:
        stage.pool.start(1)
        ended = stage.until_ended(1)
    assert not ended.was_ready
    assert examine(ended).verdict == (
        "exit code 1 before it was ready: ModuleNotFoundError: No module named 'samplers_of_mine'"
    )


def test_a_crash_in_native_code_shows_the_python_stack() -> None:
    """CONTRACT 49: the Python stack, and the native modules."""
    with rehearsal("crash") as stage:
        stage.pool.start(1)
        autopsy = examine(stage.until_ended(1))
    assert autopsy.stacks is not None
    assert "in crash" in autopsy.stacks.stacks[0].frames[0]
    assert "numpy._core._multiarray_umath" in autopsy.text()


def test_libraries_are_known_from_the_time_it_was_ready() -> None:
    """CONTRACT 49: the native modules it had loaded."""
    with rehearsal("serve") as stage:
        stage.start_ready(1).process.kill()
        ended = stage.until_ended(1)
    assert any("_multiarray_umath" in path for path in ended.libraries)


def test_a_worker_that_meets_its_own_limit_ran_out_of_memory() -> None:
    """CONTRACT 49: our own limit struck."""
    with rehearsal("meet_the_limit") as stage:
        stage.pool.start(1)
        autopsy = examine(stage.until_ended(1))
    assert autopsy.out_of_memory
    assert "256.0 MiB" in autopsy.verdict


def test_a_worker_that_talks_nonsense_is_killed() -> None:
    with rehearsal("talk_nonsense") as stage:
        stage.pool.start(1)
        ended = stage.until_ended(1)
    assert (ended.killed, ended.exit.signal) == (Breach.GARBLED, signal.SIGKILL)
    assert "no message" in examine(ended).verdict


@pytest.mark.parametrize("pidfds", [True, False])
def test_a_worker_that_hangs_up_and_stays_is_killed(
    pidfds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "DEAF_FOR", 0.1)
    with rehearsal("hang_up", pidfds=pidfds) as stage:
        stage.pool.start(1)
        ended = stage.until_ended(1)
    assert (ended.killed, ended.exit.signal) == (Breach.DEAF, signal.SIGKILL)


def test_of_megabytes_of_output_the_end_is_kept() -> None:
    """CONTRACT 49: the tail of its stderr."""
    with rehearsal("print_megabytes") as stage:
        stage.pool.start(1)
        ended = stage.until_ended(1)
    assert ended.printed.endswith("line 00199999 of very many\n")
    assert len(ended.printed) <= KEEP
    assert ended.dropped > 1 << 20


def test_a_worker_without_output_is_watched_as_any_other() -> None:
    with rehearsal("close_its_output") as stage:
        worker = stage.start_ready(1)
        stage.until(lambda: worker.output.ended)
        assert stage.selector.select(0) == []
        stage.pool.retire(1)
        assert stage.until_ended(1).as_asked


def test_what_a_worker_started_dies_with_it() -> None:
    """CONTRACT 29: no process is left, not even one that holds the worker's line open."""
    with rehearsal("leave_a_child") as stage:
        stage.pool.start(1)
        stage.until_ended(1)
        assert wait_for_the_end(stage.until_heard(Heartbeat).private)


def test_an_end_that_was_told_is_not_told_again_in_the_same_turn() -> None:
    with rehearsal("exit_0") as stage:
        worker = stage.pool.start(1)
        descriptors = worker.stream.fileno(), worker.output.fd, worker.process.pidfd
        stage.until_ended(1)
        assert all(stage.pool.attend(worker, fd).ended is None for fd in descriptors)


def test_without_pidfds_an_end_is_noticed_by_the_silence_of_the_line() -> None:
    with rehearsal("exit_0", pidfds=False) as stage:
        stage.pool.start(1)
        assert stage.until_ended(1).exit.code == 0


def test_an_end_somebody_else_reaped_is_an_end_all_the_same() -> None:
    with rehearsal("serve") as stage:
        worker = stage.start_ready(1)
        worker.process.kill()
        os.waitpid(worker.pid, 0)
        ended = stage.until_ended(1)
    assert ended.exit.words == "exit status unknown"
