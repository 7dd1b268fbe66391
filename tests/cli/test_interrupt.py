"""Ctrl-C: a command ends at once, in one line, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT"),
    pytest.mark.usefixtures("no_leaks", "children_can_be_interrupted"),
]


@pytest.fixture
def children_can_be_interrupted() -> Iterator[None]:
    """A shell starts what runs in the background with SIGINT ignored, and children inherit that."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def start(*arguments: object, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "penstock", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


def interrupt(child: subprocess.Popen[str]) -> tuple[int, str]:
    """The exit status, and what was written to standard error."""
    child.send_signal(signal.SIGINT)
    stderr = child.communicate(timeout=60)[1]
    return child.returncode, stderr


def test_an_interrupted_demo_says_so_and_removes_its_graph(tmp_path: Path) -> None:
    pytest.importorskip("torch_geometric")
    # More epochs than anybody waits for: it cannot end by itself meanwhile.
    options = ("--nodes", 2000, "--epochs", 1_000_000)
    with start("demo", *options, TMPDIR=str(tmp_path)) as child:
        assert child.stdout is not None
        assert child.stdout.readline().startswith("2,000 nodes")
        assert [folder.name for folder in tmp_path.glob("penstock-demo-*/*")] == ["sbm.graph"]
        assert interrupt(child) == (130, "Interrupted\n")
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_inspect_says_so(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "manifest.json")
    with start("inspect", tmp_path) as child:
        # Opening a pipe waits for its reader: from here on the command waits for a manifest.
        with (tmp_path / "manifest.json").open("wb"):
            assert interrupt(child) == (130, "Interrupted\n")
