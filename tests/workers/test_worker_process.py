"""A worker as a process: what it weighs, what it shows, and how it ends."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from penstock.graph import Graph
from penstock.wire.messages import Begun, Done
from penstock.workers.exits import EXIT_ORPHANED
from tests.processes import until
from tests.sampling.graphs import web
from tests.workers.benches import FEED, PATIENCE_S, ROOT, SPEC, Bench, bench

pytestmark = pytest.mark.usefixtures("no_leaks")

# What no worker needs before its first batch; each costs every start.
UNWANTED = (
    *(
        "torch",
        "pyarrow",
        "ray",
        "duckdb",
        "asyncio",
        "multiprocessing",
        "rich",
        "click",
        "scipy",
        "pandas",
    ),
    *("logging", "traceback", "argparse", "email", "http", "unittest", "concurrent", "ssl"),
    *("penstock.client", "penstock.hub", "penstock.workers.pool", "penstock.workers.faults"),
)


@pytest.fixture(scope="module")
def graph() -> Graph:
    return web()


def test_a_worker_that_is_asked_to_go_answers_for_what_it_has(graph: Graph) -> None:
    with bench(graph) as worker:
        worker.open(SPEC, FEED)
        asked = [worker.ask(index) for index in range(5)]
        assert worker.retire() == 0
        said = worker.last_words()
        assert [message.batch for message in said if isinstance(message, Done)] == asked


def test_a_worker_whose_hub_hangs_up_ends(graph: Graph) -> None:
    """CONTRACT 29: nobody outlives the hub."""
    with bench(graph) as worker:
        worker.stream.close()
        assert worker.ended() == EXIT_ORPHANED


def test_a_worker_whose_hub_hangs_up_ends_in_the_middle_of_a_batch(graph: Graph) -> None:
    """CONTRACT 29: nobody outlives the hub, whatever it is doing."""
    with bench(graph, faults=[{"stage": "sampling", "action": "hang"}]) as worker:
        worker.open(SPEC, FEED)
        worker.ask(0)
        worker.next(Begun)
        worker.stream.close()
        assert worker.ended() == EXIT_ORPHANED


def test_a_worker_that_keeps_the_lock_dies_with_its_parent() -> None:
    """CONTRACT 29: also one whose threads cannot run; the kernel sees to it."""
    script = (
        "import sys\n"
        "from tests.sampling.graphs import web\n"
        "from tests.workers.benches import FEED, SPEC, bench\n"
        "faults = [{'stage': 'sampling', 'action': 'hang-native'}]\n"
        "with bench(web(), faults=faults) as worker:\n"
        "    worker.open(SPEC, FEED)\n"
        "    worker.ask(0)\n"
        "    worker.hear()\n"
        "    print(worker.process.pid, flush=True)\n"
        "    sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as parent:
        assert parent.stdout is not None
        worker = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
        assert psutil.wait_procs([worker], timeout=PATIENCE_S)[1] == []


def test_one_whose_parent_is_gone_before_it_starts_does_not_stay() -> None:
    """CONTRACT 29: the kernel tells of deaths that come later; this one is looked for."""
    # The other end is held open, by a process that is not the parent: no end of file will come.
    script = (
        "import socket, subprocess, sys\n"
        "ours = socket.socket(fileno=int(sys.argv[1]))\n"
        "command = [sys.executable, '-m', 'penstock.workers.worker', '--socket', sys.argv[1]]\n"
        "sys.exit(subprocess.run(command, pass_fds=[ours.fileno()]).returncode)\n"
    )
    ours, theirs = socket.socketpair()
    with ours, theirs:
        child = subprocess.run(
            [sys.executable, "-c", script, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            timeout=PATIENCE_S,
        )
    assert child.returncode == EXIT_ORPHANED


def test_an_interrupt_at_the_terminal_is_not_the_workers_affair(graph: Graph) -> None:
    with bench(graph) as worker:
        worker.open(SPEC, FEED)
        worker.process.send_signal(signal.SIGINT)
        worker.ask(0)
        worker.done()


def test_a_worker_shows_the_stacks_of_all_its_threads_when_asked(graph: Graph) -> None:
    """CONTRACT 51: stacks dumped, also of one that keeps the interpreter's lock."""
    with bench(graph, faults=[{"stage": "sampling", "action": "hang-native"}]) as worker:
        worker.open(SPEC, FEED)
        worker.ask(0)
        worker.next(Begun)
        while "_hang_with_the_lock" not in (shown := stacks(worker)):
            pass  # begun, and not there yet
        assert "heartbeat.py" in shown
        assert worker.process.poll() is None


def test_a_worker_shows_its_stacks_whatever_signals_its_parent_has_blocked(graph: Graph) -> None:
    """CONTRACT 51: a process begins with the signals blocked that its parent had blocked."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    try:
        with bench(graph) as worker:
            status = Path(f"/proc/{worker.process.pid}/status").read_text()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    assert int(re.findall(r"^SigBlk:\s*(\w+)$", status, re.MULTILINE)[0], 16) == 0


def test_a_crash_leaves_its_stack_behind(graph: Graph) -> None:
    """CONTRACT 49: the Python stack, if there is one."""
    with bench(graph, faults=[{"stage": "writing", "action": "segfault"}]) as worker:
        worker.open(SPEC, FEED)
        worker.ask(0)
        assert worker.ended() == -signal.SIGSEGV
        assert "Fatal Python error: Segmentation fault" in worker.printed()
        assert "collate.py" in worker.printed()


def test_heartbeats_may_be_as_far_apart_as_anyone_likes(graph: Graph) -> None:
    """CONTRACT 29: the hub's end is noticed at once all the same, in the middle of a batch."""
    hang = {"stage": "sampling", "action": "hang"}
    with bench(graph, beat_every=1e9, faults=[hang]) as worker:
        worker.open(SPEC, FEED)
        worker.ask(0)
        worker.next(Begun)
        worker.stream.close()
        assert worker.ended() == EXIT_ORPHANED


def test_heartbeats_tell_of_progress_memory_and_time(graph: Graph) -> None:
    """CONTRACT 49: the last memory reading there is comes from these."""
    with bench(graph) as worker:
        worker.open(SPEC, FEED)
        for index in range(4):
            worker.ask(index)
            worker.done()
        beat = worker.until_beat(4)
        process = psutil.Process(worker.process.pid)
        assert beat.batch is None
        assert 0 < beat.cpu <= sum(process.cpu_times()[:2]) + 0.1
        assert beat.private < 64 << 20


def test_a_heartbeat_in_the_middle_of_a_batch_names_it(graph: Graph) -> None:
    with bench(graph, faults=[{"stage": "sampling", "action": "hang"}]) as worker:
        worker.open(SPEC, FEED)
        batch = worker.ask(3)
        worker.next(Begun)
        worker.until_beat()
        assert worker.until_beat().batch == batch


def test_a_fresh_worker_imports_little_and_weighs_little(graph: Graph) -> None:
    script = (
        "import sys, penstock.workers.worker\n"
        f"print([name for name in {UNWANTED!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
    with bench(graph) as worker:
        assert worker.until_beat().private < 48 << 20


def test_a_worker_keeps_no_descriptor_of_what_it_maps(graph: Graph) -> None:
    """CONTRACT 23: one descriptor per worker, however much is mapped.

    For a heartbeat it opens what the kernel tells of it, and closes it again.
    """
    with bench(graph, beat_every=300.0) as worker:
        worker.open(SPEC, FEED)
        worker.ask(0)
        worker.done()
        process = psutil.Process(worker.process.pid)
        until(lambda: process.num_fds() == 4, "it has 0 to 2 and the socket")


def test_without_its_socket_a_worker_says_how_it_is_started() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "penstock.workers.worker"], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert done.stderr == "usage: python -m penstock.workers.worker --socket FD\n"


def stacks(worker: Bench) -> str:
    """Asks for the stacks of all threads; returns when the outermost call is printed."""
    before, deadline = len(worker.printed()), time.monotonic() + PATIENCE_S
    worker.process.send_signal(signal.SIGUSR1)
    while "in _run_module_as_main" not in (shown := worker.printed()[before:]):
        assert time.monotonic() < deadline, shown
        os.sched_yield()
    return shown
