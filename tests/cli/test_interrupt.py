"""Ctrl-C: a command ends at once, in one line, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
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


def interrupt(child: subprocess.Popen[str], times: int = 1) -> tuple[int, str]:
    """The exit status, and what was written to standard error."""
    for _ in range(times):
        child.send_signal(signal.SIGINT)
    stderr = child.communicate(timeout=60)[1]
    return child.returncode, stderr


# Looked for, not imported: that would start threads under the eyes of the watch for leaks.
@pytest.mark.skipif(find_spec("torch_geometric") is None, reason="the demo trains with PyG")
@pytest.mark.parametrize("when", ["edges: generated", "all ranks train"])
def test_an_interrupted_demo_says_so_and_leaves_nothing(tmp_path: Path, when: str) -> None:
    """Whether its ranks are just starting, or train; however often people press the keys."""
    # More epochs than anybody waits for: it cannot end by itself meanwhile.
    options = ("--nodes", 2000, "--ranks", 2, "--epochs", 1_000_000, "--output", tmp_path / "out")
    with start("demo", *options, TMPDIR=str(tmp_path)) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        assert any(when in line for line in child.stdout), child.stderr.read()
        assert interrupt(child, times=3) == (130, "Interrupted\n")
    # Not "nothing at all": torch and PyG leave files of their own there.
    assert list(tmp_path.glob("penstock-*")) == []


def test_an_import_interrupted_while_it_runs_a_string_ends_like_any_other(tmp_path: Path) -> None:
    (tmp_path / "numpy.py").write_text("exec('raise KeyboardInterrupt')\n")
    with start("inspect", tmp_path, PYTHONPATH=str(tmp_path)) as child:
        stderr = child.communicate(timeout=60)[1]
    assert (child.returncode, stderr) == (130, "Interrupted\n")


def test_an_interrupted_doctor_says_so() -> None:
    """It tells in a terminal only how far it is. Without torch, which takes long to import."""
    script = (
        "import sys; sys.modules['torch'] = None;"
        "from penstock.cli import main; main(['doctor', '--seconds', '600'])"
    )
    terminal, stderr = os.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=stderr,
        env={**os.environ, "TERM": "xterm"},
    ) as child:
        os.close(stderr)
        told = b""
        while b"generating a graph" not in told:
            told += os.read(terminal, 4096)
        child.send_signal(signal.SIGINT)
        while b"Interrupted" not in told:
            told += os.read(terminal, 4096)
        assert child.communicate(timeout=60)[0] == b""
    os.close(terminal)
    assert child.returncode == 130


def test_an_interrupted_inspect_says_so(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "manifest.json")
    with start("inspect", tmp_path) as child:
        # Opening a pipe waits for its reader: from here on the command waits for a manifest.
        with (tmp_path / "manifest.json").open("wb"):
            assert interrupt(child) == (130, "Interrupted\n")
