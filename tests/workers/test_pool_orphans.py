"""Nobody outlives the hub, however it dies and whatever its workers are doing."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.workers.pools import ROOT, wait_for_the_end

pytestmark = pytest.mark.usefixtures("no_leaks")

FACES = [
    "starting",
    "stopped at birth",
    "idle",
    "sampling",
    "holding the lock",
    "stopped",
    "stopped while sampling",
]


@contextmanager
def hub(*faces: str) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """A hub in a process of its own, and the pids of its workers."""
    arguments = [sys.executable, "-m", "tests.workers.short_lived_hub", *faces]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        try:
            yield process, [int(pid) for pid in process.stdout.readline().split()]
        finally:
            process.kill()


@pytest.mark.parametrize("face", FACES)
def test_a_worker_ends_when_its_hub_is_killed_while_it_is(face: str) -> None:
    """CONTRACT 29: no process is left, also when the parent is SIGKILLed."""
    with hub(face) as (process, [worker]):
        process.kill()
        process.wait()
        assert wait_for_the_end(worker)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGSEGV], ids=lambda n: n.name)
def test_workers_end_with_a_hub_that_dies_of_something_else(number: signal.Signals) -> None:
    """CONTRACT 29: however the hub dies."""
    with hub("idle", "stopped") as (process, workers):
        process.send_signal(number)
        assert process.wait() == -number
        assert all(wait_for_the_end(worker) for worker in workers)
