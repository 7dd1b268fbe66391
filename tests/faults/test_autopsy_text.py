"""What a rank is told when a batch cost its worker, and the command that makes the batch again."""

from __future__ import annotations

import json
import re
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock import Graph, SharedDistSamplingBackend, WorkerDied
from penstock.sampling.digest import batch_digest
from tests.faults.houses import errors_of, house, moody, outcomes
from tests.faults.orders import Order, arm
from tests.faults.processes import numbers
from tests.faults.twins import PATIENCE_S, SPEC, Twins, small_graph, twins
from tests.processes import until

pytestmark = pytest.mark.usefixtures("no_leaks")


def replay(error: Exception, *more: str) -> subprocess.CompletedProcess[str]:
    """Runs the command that the error ends with, as the user would."""
    command = shlex.split(str(error).splitlines()[-1])
    assert command[:2] == ["penstock", "replay"]
    return subprocess.run(
        [sys.executable, "-m", *command, *more], capture_output=True, text=True, timeout=PATIENCE_S
    )


def digest_of(replayed: subprocess.CompletedProcess[str]) -> str:
    assert replayed.returncode == 0, replayed.stderr
    return str(json.loads(replayed.stdout)["digest"])


def killed_at_batch_3(pair: Twins) -> tuple[WorkerDied, str]:
    """Reads to the batch that is killed each time; its error, and its digest had it come."""
    pair.start("one", 0)
    for _ in range(3):
        assert pair.next("one") is not None
    with pytest.raises(WorkerDied) as caught:
        pair.backend.next_batch("one", PATIENCE_S)
    expected = pair.inline.next_batch("one")
    assert expected is not None
    assert pair.finish("one") == 12
    return caught.value, batch_digest(expected.arrays)


def kill_batch_3(monkeypatch: pytest.MonkeyPatch) -> None:
    arm(monkeypatch, Order("sampling", "signal:SIGKILL", {"index": 3}))


def test_the_error_tells_the_whole_story() -> None:
    """CONTRACT 49: all that is known of a worker that crashed, and of its batch."""
    with house() as pair, moody(pair, (3, "crashes")) as backend:
        until(lambda: all(w["private"] for w in numbers(backend)["pool"]["workers"]), "all beat")
        seen = numbers(backend)["pool"]["workers"]
        failed = errors_of(outcomes(backend, job="friday's run", seed=7))
    story = str(failed[3])
    told = {
        "job": "friday's run",
        "channel, epoch, batch": r"channel \d+, epoch 0, batch 3",
        "seeds": r"seeds +12, 13, 14, 15 \(4 in all\)",
        "worker and pid": "|".join(f"worker {w['worker']} \\(pid {w['pid']}\\)" for w in seen),
        "signal by name": "SIGSEGV",
        "last memory reading": r"memory +[\d.]+ MiB of its own [\d.]+ s before its end",
        "tail of stderr": r"stderr +about to touch what is not there",
        "Python stack": r'samplers\.py", line \d+ in crashes',
        "native modules": r"native +.*_native.*\.so",
        "verdict": "SIGSEGV: it touched memory that is not its own",
        "kernel's counters": r"killed for lack of memory: its control group",
        "host": rf"host +{re.escape(socket.gethostname())}",
        "command": r"To sample this batch again, in the foreground:\n  penstock replay \S+$",
    }
    assert {what: re.search(words, story) is not None for what, words in told.items()} == (
        dict.fromkeys(told, True)
    ), story


def test_the_command_makes_the_very_batch_again(
    monkeypatch: pytest.MonkeyPatch, recipes: Path
) -> None:
    """CONTRACT 5, 50: from the graph in the memory of the hub that runs."""
    kill_batch_3(monkeypatch)
    with twins(workers=1) as pair:
        pair.register("one", max_attempts=2)
        error, digest = killed_at_batch_3(pair)
        assert "SIGKILL, no sign of memory pressure" in str(error)
        assert digest_of(replay(error, "--json")) == digest
        assert len(list(recipes.iterdir())) == 1


def test_the_command_shows_what_a_sampler_does_to_its_process() -> None:
    """CONTRACT 50: what killed the worker kills the replay, in sight."""
    with house() as pair, moody(pair, (1, "crashes"), (2, "raises")) as backend:
        failed = errors_of(outcomes(backend))
        crashed, raised = (replay(failed[index]) for index in (1, 2))
    assert crashed.returncode == -signal.SIGSEGV
    assert "in crashes" in crashed.stderr
    assert raised.returncode == 3
    assert "the moon is in the wrong quarter" in raised.stderr


def test_the_command_works_after_the_hub_where_the_graph_was_saved(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """CONTRACT 50: a graph of files is found by them; another one can be named."""
    kill_batch_3(monkeypatch)
    with small_graph() as graph:
        graph.save(tmp_path / "graph")
    with Graph.open(tmp_path / "graph") as graph:
        backend = SharedDistSamplingBackend(graph, SPEC, num_workers=1)
        with backend, Twins(backend) as pair:
            pair.register("one", max_attempts=1)
            error, digest = killed_at_batch_3(pair)
    assert digest_of(replay(error, "--json")) == digest
    assert digest_of(replay(error, "--json", "--graph", str(tmp_path / "graph"))) == digest


def test_inputs_that_were_given_are_in_the_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    """CONTRACT 50: the memory they were in is gone by then."""
    kill_batch_3(monkeypatch)
    ids = np.random.default_rng(1).permutation(200)[:40]
    channel_options: dict[str, Any] = {"batch_size": 4, "shuffle": True, "max_attempts": 1}
    with twins(workers=1) as pair:
        for backend in (pair.backend, pair.inline):
            backend.register_input("one", ids, **channel_options)
        pair.start("one", 2)
        for _ in range(3):
            pair.next("one")
        with pytest.raises(WorkerDied) as caught:
            pair.backend.next_batch("one", PATIENCE_S)
        expected = pair.inline.next_batch("one")
        assert expected is not None
        pair.backend.unregister_input("one")
        assert digest_of(replay(caught.value, "--json")) == batch_digest(expected.arrays)
