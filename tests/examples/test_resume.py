"""A trainer that is killed, and goes on: the batches and the weights of one that never was."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from penstock import Graph
from tests.examples.running import PATIENCE_S, citations, command, run, run_here

pytestmark = pytest.mark.usefixtures("no_leaks")

EPOCHS = 9  # 18 batches each
# The pipe holds no more than this many bytes, and the trainer waits when it is full: a trainer
# whose first words are read one by one cannot be near its end.
PIPE_BYTES = 4096


def kill_after(line_start: str, line: list[str]) -> None:
    """Starts a trainer, and kills it when it has printed such a line, or soon after."""
    with subprocess.Popen(line, stdout=subprocess.PIPE, bufsize=0, pipesize=PIPE_BYTES) as trainer:
        assert trainer.stdout is not None
        while not (said := trainer.stdout.readline()).startswith(line_start.encode()):
            assert said, "the trainer ended too early"
        trainer.kill()
        trainer.stdout.close()
        assert trainer.wait(PATIENCE_S) == -signal.SIGKILL


def test_a_run_that_is_killed_ends_as_one_that_is_not(tmp_path: Path) -> None:
    unbroken = run_here(
        "resume", "--checkpoint", tmp_path / "unbroken.pt", "--epochs", EPOCHS, "--workers", 1
    )
    # In the second epoch, and not where it was saved.
    checkpoint = tmp_path / "broken.pt"
    Graph.from_pyg(citations()).save(tmp_path / "graph")
    line = command("resume", "--checkpoint", checkpoint, "--epochs", EPOCHS, "--every", 7)
    line += ["--graph", str(tmp_path / "graph")]
    kill_after("batch 24:", line)
    resumed = run([*line, "--workers", "0"])
    assert len(unbroken) == 18 * EPOCHS + 1
    first, *rest = resumed
    done = int(first.removeprefix("going on after ").removesuffix(" batches"))
    assert done >= 21
    # Line by line, with losses and digests; the last has the digest of all, and of the weights.
    assert rest == unbroken[done:]
