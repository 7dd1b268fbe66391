"""What tests of shared memory have in common: its kinds, and fresh interpreters to share with."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
import pytest

from penstock.graph.shared import Segment

# The fallback is for other systems, but its tests run on this one.
kinds = pytest.mark.parametrize("kind", ["memfd", "named"])

# What a child knows from the start. Arguments are a handle in JSON, then descriptors.
PREAMBLE = """
import os, socket, sys, msgspec, numpy as np
from penstock.graph.shared import ArrayHandle, Segment, SharedArray, sweep
from tests.graph.shared_children import open_descriptors

def given_handle():
    return msgspec.json.decode(sys.argv[1], type=ArrayHandle)

def given_fd():
    return int(sys.argv[2]) if len(sys.argv) > 2 else None

def say(value):
    print(msgspec.json.encode(value).decode(), flush=True)

def wait_for_the_end():
    sys.stdin.read()
"""


def start_child(
    program: str, *arguments: object, pass_fds: Iterable[int] = (), **environment: str
) -> subprocess.Popen[str]:
    """Starts a fresh interpreter on `program`."""
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", PREAMBLE + program, *map(_as_text, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        pass_fds=tuple(pass_fds),
        cwd=Path(__file__).parents[2],
        env={**os.environ, **environment},
    )


def run_child(
    program: str, *arguments: object, pass_fds: Iterable[int] = (), **environment: str
) -> object:
    """Runs `program` in a fresh interpreter to its end, a good one, and returns what it said."""
    with start_child(program, *arguments, pass_fds=pass_fds, **environment) as child:
        output, _ = child.communicate()
    assert child.returncode == 0
    return msgspec.json.decode(output)


def heard_from(child: subprocess.Popen[str]) -> object:
    """The next thing `child` says."""
    assert child.stdout is not None
    return msgspec.json.decode(child.stdout.readline())


def kill(*children: subprocess.Popen[str]) -> None:
    """Ends children as the kernel does when memory runs out: without a word."""
    for child in children:
        child.kill()
    for child in children:
        child.communicate()


def attached(segment: Segment, *, writable: bool = False) -> Segment:
    """A second mapping of `segment`, as another process would have it."""
    return Segment.attach(segment.handle, duplicate(segment), writable=writable)


def duplicate(segment: Segment) -> int | None:
    """A descriptor of `segment` to give away, where it has one."""
    return os.dup(segment.fileno()) if segment.descriptors else None


def open_descriptors() -> set[int]:
    """The descriptors this process has open."""
    listed = [int(name) for name in os.listdir("/proc/self/fd")]
    return {fd for fd in listed if _is_open(fd)}  # one of them was for the listing itself


def named_segments(folder: str | Path = "/dev/shm") -> Sequence[str]:
    """The files of named segments."""
    return sorted(map(str, Path(folder).glob("penstock-*")))


def segments_made_by(pid: int) -> Sequence[str]:
    """The files of named segments of one process, in the folder that all share with others."""
    return [path for path in named_segments() if f"/penstock-{pid}-" in path]


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def _as_text(argument: object) -> str:
    if isinstance(argument, msgspec.Struct):
        return msgspec.json.encode(argument).decode()
    return str(argument)
