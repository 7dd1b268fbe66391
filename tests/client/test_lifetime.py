"""Nothing outlives its user: however channels, backends, ranks and hubs end."""

from __future__ import annotations

import gc
import os
import pickle
import random
import resource
import signal
import threading
from pathlib import Path
from traceback import walk_stack
from types import FrameType
from typing import Any

import psutil
import pytest

from penstock.client.backend import SharedDistSamplingBackend
from penstock.client.channel.batch import Batch
from penstock.client.hub import child
from penstock.client.hub.hub_process import HubProcess
from penstock.errors import ChannelClosed, HubGone
from tests.client.graphs import (
    PATIENCE_S,
    SPEC,
    TERMS,
    backend_of,
    channel_of,
    digests,
    expected,
    hub_of,
    pids_of_workers,
    read,
    rest,
    small_graph,
)
from tests.client.ranks import ROOT, rank
from tests.processes import stop, stopped, strike, until, wait_until_gone

pytestmark = pytest.mark.usefixtures("no_leaks")

both = pytest.mark.parametrize("workers", [0, 1])
# Where our own code lies.
OURS = str(Path(child.__file__).parents[1]) + os.sep

UP = """
graph = small_graph()
backend = ps.SharedDistSamplingBackend(graph, SPEC, num_workers=2)
backend.init_backend()
backend.register_input("a", "train", **TERMS)
backend.start_new_epoch_sampling("a", 0)
batch = backend.next_batch("a", timeout=PATIENCE_S)
say([backend.hub.pid, *pids_of_workers(backend)])
"""


# --- the rank --------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_rank_that_is_killed_takes_its_hub_and_workers_along(how: int) -> None:
    """CONTRACT 29: no process and no shared memory is left, also after SIGKILL."""
    with rank(UP + "input()") as started:
        pids = started.hear()
        assert len(pids) == 3
        started.process.send_signal(how)
        assert started.end() == -how
        wait_until_gone(pids)


def test_a_rank_killed_while_it_has_a_fork_takes_its_hub_along() -> None:
    """CONTRACT 29: the fork holds copies of all sockets, so their end does not tell."""
    program = """
child = os.fork()
if child == 0:
    signal.pause()
say(child)
input()
"""
    with rank(UP + program) as started:
        pids, fork = started.hear(), started.hear()
        try:
            started.process.kill()
            assert started.end() == -signal.SIGKILL
            wait_until_gone(pids)
        finally:
            strike(fork)


@pytest.mark.parametrize("ending", ["", "sys.exit(3)", "raise SystemExit(3)", "os._exit(3)"])
def test_a_rank_that_ends_without_closing_leaves_nothing(ending: str) -> None:
    """CONTRACT 29: with batches in its hands."""
    with rank(UP + ending) as started:
        pids = started.hear()
        assert started.end() == (3 if ending else 0)
        wait_until_gone(pids)


def test_a_rank_that_is_interrupted_ends_by_it() -> None:
    with rank(UP + "backend.next_batch('a'); say('read'); signal.pause()") as started:
        pids = started.hear()
        assert started.hear() == "read"
        started.process.send_signal(signal.SIGINT)
        assert started.end() in (-signal.SIGINT, 1)
        wait_until_gone(pids)


def test_hub_and_workers_look_for_modules_where_their_rank_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CONTRACT 24: fresh interpreters, with those of its options that decide about that."""
    (tmp_path / "msgspec.py").write_text("raise ImportError('not this one')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with rank(UP + "backend.shutdown()", flags=["-E"]) as started:
        assert len(started.hear()) == 3
        assert started.end() == 0


# --- garbage ---------------------------------------------------------------------------------


def test_a_backend_that_is_dropped_leaves_nothing_running() -> None:
    """CONTRACT 29: without `shutdown`, in the middle of an epoch."""
    with small_graph() as graph:
        backend = SharedDistSamplingBackend(graph, SPEC, num_workers=1)
        backend.init_backend()
        backend.register_input("a", "train", **TERMS)
        backend.start_new_epoch_sampling("a", 0)
        pids = [hub_of(backend).pid or 0, *pids_of_workers(backend)]
        del backend
        gc.collect()
        wait_until_gone(pids)


def test_a_batch_outlives_everything_it_came_from() -> None:
    """CONTRACT 23."""
    with small_graph() as graph:
        with backend_of(graph, num_workers=1) as backend:
            backend.register_input("a", "train", **TERMS)
            backend.start_new_epoch_sampling("a", 0)
            batch = backend.next_batch("a", timeout=PATIENCE_S)
        del backend
        assert batch is not None
        assert digests([batch]) == expected(graph)[:1]


def test_a_hub_that_was_closed_cannot_be_used() -> None:
    with small_graph() as graph:
        hub = HubProcess(graph, 1)
        with pytest.raises(HubGone, match="not started"):
            hub.statistics()
        hub.start()
        hub.start()
        hub.close()
        hub.close()
        with pytest.raises(HubGone, match="closed"):
            hub.statistics()
        with pytest.raises(HubGone, match="closed"):
            hub.start()


# --- closing ---------------------------------------------------------------------------------


@both
def test_a_channel_that_was_closed_says_so(workers: int) -> None:
    with small_graph() as graph, backend_of(graph, num_workers=workers) as backend:
        backend.register_input("a", "train", **TERMS)
        backend.start_new_epoch_sampling("a", 0)
        channel = channel_of(backend, "a")
        channel.close()
        channel.close()
        with pytest.raises(ChannelClosed, match="'a'"):
            channel.next()
        with pytest.raises(ChannelClosed):
            channel.start(1)


def test_closing_wakes_a_reader_that_waits() -> None:
    """From another thread; the one that waits gets an error, and lets go of the socket."""
    with small_graph() as graph, backend_of(graph, num_workers=1) as backend:
        backend.register_input("a", "train", **TERMS)
        channel = channel_of(backend, "a")
        with stopped(hub_of(backend).pid):
            channel.start(0)
            said: list[str] = []
            waiting = threading.Thread(target=lambda: said.append(what_next_raises(channel)))
            waiting.start()
            until(lambda: channel._occupied, "the channel is being read")
            channel.close()
            waiting.join(PATIENCE_S)
            assert said == ["ChannelClosed"]
            assert channel.fileno() == -1


def what_next_raises(channel: Any) -> str:
    try:
        channel.next(timeout=PATIENCE_S)
    except Exception as error:
        return type(error).__name__
    return "nothing"


@both
def test_a_channel_cannot_be_pickled(workers: int) -> None:
    with small_graph() as graph, backend_of(graph, num_workers=workers) as backend:
        backend.register_input("a", "train", **TERMS)
        with pytest.raises(TypeError, match=r"penstock\.connect"):
            pickle.dumps(channel_of(backend, "a"))
        if workers:
            with pytest.raises(TypeError, match=r"penstock\.connect"):
                pickle.dumps(backend.hub)


# --- forks -----------------------------------------------------------------------------------


def test_a_fork_cannot_use_what_its_parent_opened_and_does_no_harm() -> None:
    """It drops batches, channels, everything; the parent goes on reading."""
    program = """
fork = os.fork()
if fork == 0:
    advice = []
    for use in (
        lambda: backend.next_batch("a"),
        lambda: backend.register_input("b", "train", **TERMS),
        lambda: backend._channels["a"].next(),
        lambda: backend.hub.statistics(),
    ):
        try:
            use()
        except RuntimeError as error:
            advice.append("fork" in str(error) and "penstock.connect" in str(error))
    backend.shutdown()
    del batch, backend, graph
    gc.collect()
    os._exit(0 if advice == [True] * 4 else 1)
status = os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1])
if (fork := os.fork()) == 0:
    sys.exit(0)  # by way of all that is done at exit
os.waitpid(fork, 0)
found = digests([batch, *rest(backend, "a")])
backend.shutdown()
say([status, found == expected(graph)])
"""
    with rank(UP + program) as started:
        pids = started.hear()
        assert started.hear() == [0, True]
        assert started.end() == 0
        wait_until_gone(pids)


# --- a hub that hangs ------------------------------------------------------------------------


def test_shutdown_ends_a_hub_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """CONTRACT 29: ask, wait, terminate, kill."""
    monkeypatch.setattr(child, "_ASKED_S", 0.1)
    monkeypatch.setattr(child, "_TOLD_S", 0.1)
    with small_graph() as graph, backend_of(graph, num_workers=1) as backend:
        pids = [hub_of(backend).pid or 0, *pids_of_workers(backend)]
        stop(pids[0])
        backend.shutdown()
        assert not psutil.pid_exists(pids[0])
        wait_until_gone(pids)


def test_a_hub_that_does_not_come_up_in_time_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """CONTRACT 24: within a bound; the error names the setting."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr(child, "_MODULE", "tests.client.sleeper")
    with small_graph() as graph:
        backend = SharedDistSamplingBackend(graph, SPEC, num_workers=1, start_timeout=0.5)
        with pytest.raises(HubGone, match="start_timeout"):
            backend.init_backend()
        backend.shutdown()


def test_a_hub_that_ends_at_once_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """CONTRACT 24: one that has never been up will not come up the next time either."""
    monkeypatch.setattr(child, "_MODULE", "tests.client.no_such_module")
    with small_graph() as graph:
        backend = SharedDistSamplingBackend(graph, SPEC, num_workers=1)
        with pytest.raises(HubGone, match="exit code 1 before it was up"):
            backend.init_backend()
        backend.shutdown()


def test_a_hub_that_no_descriptors_are_left_for_is_an_error_that_says_so() -> None:
    """CONTRACT 24: tried again a few times, and by the next call."""
    with small_graph() as graph:
        backend = SharedDistSamplingBackend(graph, SPEC, num_workers=1)
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        highest = max(int(name) for name in os.listdir("/proc/self/fd"))
        fillers = [os.dup(0) for _ in range(highest + 1 - len(os.listdir("/proc/self/fd")))]
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 4, before[1]))
        try:
            with pytest.raises(HubGone, match=r"could not be (.*) Too many open files"):
                backend.init_backend()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
            for filler in fillers:
                os.close(filler)
        with backend:
            backend.register_input("a", "train", **TERMS)
            assert digests(read(backend, "a", 0)) == expected(graph)


def test_a_signal_handler_may_shut_down_what_is_starting() -> None:
    """CONTRACT 29: in the thread that starts it; nothing hangs, and nothing is left."""
    with small_graph() as graph:
        backend = SharedDistSamplingBackend(graph, SPEC, num_workers=1)

        def hub_is_there(*_: object) -> None:
            if psutil.Process().children():
                backend.shutdown()
            else:
                signal.setitimer(signal.ITIMER_REAL, 1e-3)

        before = signal.signal(signal.SIGALRM, hub_is_there)
        try:
            signal.setitimer(signal.ITIMER_REAL, 1e-3)
            with pytest.raises((HubGone, ChannelClosed), match=r"closed|shut down"):
                backend.init_backend()
        finally:
            signal.signal(signal.SIGALRM, before)
        with pytest.raises(ChannelClosed):
            backend.init_backend()
        assert psutil.Process().children() == []


# --- interrupts ------------------------------------------------------------------------------


class Striking:
    """Raises KeyboardInterrupt at a random moment, but only while our own code is running.

    Not in a finalizer: there Python prints what is raised, whoever raised it, and goes on.
    """

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self.armed = False
        self.struck = 0

    def __call__(self, _: int, frame: FrameType | None) -> None:
        if not self.armed:  # one that was on its way when the clock was stopped: not to start it
            return
        files = [each.f_code.co_filename for each, _ in walk_stack(frame)]
        ours = files[0].startswith(OURS) and not any(name.endswith("weakref.py") for name in files)
        if ours:
            self.armed = False
            self.struck += 1
            raise KeyboardInterrupt
        signal.setitimer(signal.ITIMER_REAL, 20e-6)

    def arm(self) -> None:
        self.armed = True
        signal.setitimer(signal.ITIMER_REAL, self._dice.uniform(10e-6, 400e-6))


@pytest.mark.parametrize("seed", range(2))
@both
def test_interrupts_at_any_moment_lose_no_batch_and_give_none_twice(
    seed: int, workers: int
) -> None:
    """Wherever in a read Ctrl-C strikes, the following call goes on with the batch that was due."""
    striking = Striking(seed)
    before = signal.signal(signal.SIGALRM, striking)
    try:
        with small_graph() as graph, backend_of(graph, num_workers=workers) as backend:
            backend.register_input("a", "train", **TERMS)
            epoch = 0
            while epoch < 6 or striking.struck <= 20:  # where all is fast, few of them strike
                assert epoch < 200
                backend.start_new_epoch_sampling("a", epoch)
                found = digests(interrupted(backend, striking))
                assert found == expected(graph, epoch)
                epoch += 1
    finally:
        signal.signal(signal.SIGALRM, before)


def interrupted(backend: SharedDistSamplingBackend, striking: Striking) -> list[Batch]:
    """The rest of an epoch, each batch of which is interrupted once, if it lasts long enough."""
    channel, found = channel_of(backend, "a"), []
    while True:
        striking.arm()
        try:
            batch = channel.next(PATIENCE_S)
        except KeyboardInterrupt:
            batch = channel.next(PATIENCE_S)
        striking.armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        if batch is None:
            return found
        found.append(batch)


def test_an_interrupt_while_waiting_leaves_the_channel_usable() -> None:
    """Ctrl-C in `next`: the following call goes on with the batch that was due."""
    with small_graph() as graph, backend_of(graph, num_workers=1) as backend:
        backend.register_input("a", "train", **TERMS)
        channel, main = channel_of(backend, "a"), threading.get_ident()

        def interrupt() -> None:
            until(lambda: channel._occupied, "the channel is being read")
            threading.Event().wait(0.1)  # until it sleeps; any moment from here on is in `next`
            signal.pthread_kill(main, signal.SIGINT)

        with stopped(hub_of(backend).pid):
            backend.start_new_epoch_sampling("a", 0)
            striking = threading.Thread(target=interrupt)
            striking.start()
            with pytest.raises(KeyboardInterrupt):
                backend.next_batch("a", timeout=PATIENCE_S)
            striking.join()
        assert digests(rest(backend, "a")) == expected(graph)
        assert backend.statistics().channels["a"].recoveries == 0
