"""A real memory control group for a test to be cruel in, where the machine lets us make one."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from penstock.workers import cgroups

LIMIT = 128 << 20


@contextmanager
def small_group() -> Iterator[Path]:
    """Its folder, below our own group's. All its processes must be gone by the end."""
    ours = cgroups.find("memory")
    if ours is None:
        pytest.skip("this machine has no memory control groups")
    folder = ours.folder / f"penstock-test-{uuid.uuid4().hex}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"this machine lets us make no control group: {error}")
    try:
        _limit(folder, ours.version)
        yield folder
    finally:
        folder.rmdir()


def _limit(folder: Path, version: int) -> None:
    names = (
        ("memory.max", "memory.swap.max", "0")
        if version == 2
        else ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", str(LIMIT))
    )
    try:
        (folder / names[0]).write_text(str(LIMIT))
    except OSError as error:
        pytest.skip(f"this machine lets us limit no control group: {error}")
    if not os.access(folder / "cgroup.procs", os.W_OK):
        pytest.skip("this machine lets us put nobody into a control group")
    with suppress(OSError):  # a machine without swap has no limit on it
        (folder / names[1]).write_text(names[2])
