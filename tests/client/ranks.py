"""Ranks in processes of their own, for tests that kill them or join them to a hub."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]

PRELUDE = """
import gc, json, os, signal, sys, threading
import penstock as ps
from tests.client.graphs import *

def say(value):
    print(json.dumps(value), flush=True)
"""


class Rank:
    """A Python process that prints lines of JSON, and reads lines to be told when to go on."""

    def __init__(self, program: str, *arguments: str, flags: Sequence[str] = ()) -> None:
        self.process = subprocess.Popen(
            [sys.executable, *flags, "-c", PRELUDE + program, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            text=True,
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    def hear(self) -> Any:
        """The next thing it says."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the rank ended, with {self.process.wait()}"
        return json.loads(line)

    def go_on(self) -> None:
        """Lets it pass its next `input()`."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self) -> int:
        """Waits for it to end; its exit status."""
        return self.process.wait(60)


@contextmanager
def rank(program: str, *arguments: str, flags: Sequence[str] = ()) -> Iterator[Rank]:
    """A rank, which does not outlive the test."""
    started = Rank(program, *arguments, flags=flags)
    try:
        yield started
    finally:
        started.process.kill()
        started.process.wait()
        for pipe in (started.process.stdin, started.process.stdout):
            assert pipe is not None
            pipe.close()
