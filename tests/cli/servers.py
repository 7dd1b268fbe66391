"""A server as people start one: the command, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from penstock import Graph

COMMAND = Path(sys.executable).with_name("penstock")
WAIT_S = 60


@dataclass(frozen=True)
class Running:
    """A server, and where it says it is."""

    process: subprocess.Popen[str]
    where: dict[str, Any]

    @property
    def address(self) -> str:
        return str(self.where["address"])

    def end(self, signal: int) -> tuple[int, str]:
        """Its exit status and last words."""
        self.process.send_signal(signal)
        _, told = self.process.communicate(timeout=WAIT_S)
        return self.process.returncode, told


def save_small(path: Path) -> Path:
    """A graph that is quickly served."""
    rng = np.random.default_rng(0)
    with Graph.from_coo(
        rng.integers(0, 200, (2, 2000)),
        200,
        x=rng.random((200, 4), dtype=np.float32),
        y=rng.integers(0, 3, 200),
        train=np.arange(0, 200, 2),
    ) as graph:
        graph.save(path)
    return path


@contextmanager
def serving(graph: Path, *options: object, port: int = 0) -> Iterator[Running]:
    """A server that has said where it is."""
    command = [COMMAND, "serve", graph, "--json", "--bind", f"tcp://127.0.0.1:{port}", *options]
    process = subprocess.Popen(
        [*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise AssertionError(process.communicate()[1])
        yield Running(process, json.loads(line))
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    """A command, to its end."""
    return subprocess.run(
        [COMMAND, *map(str, arguments)], capture_output=True, text=True, timeout=WAIT_S, check=False
    )
