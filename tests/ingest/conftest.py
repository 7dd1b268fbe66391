"""Builds are looked at whole: what they leave in memory and on disk."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path: Path) -> Iterator[None]:
    """Fails a test after which a temporary file is still open, or still there.

    Not `no_leaks`: the threads of Arrow, DuckDB and polars are started when they are first needed,
    and stay for as long as the process.
    """
    yield
    gc.collect()  # an error that was looked at has kept what was mapped
    left = [path for path in tmp_path.rglob("*") if ".build" in path.name]
    held = []
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            held.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    assert not left
    assert not [path for path in held if ".build/" in path]
