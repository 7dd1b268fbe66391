"""Types that several threads decode first: msgspec may not learn about one in two at once."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.usefixtures("no_leaks")

# A crash takes the process along, so it is not this one.
PROGRAM = """
import sys, threading
from typing import Any, Literal
import msgspec
from penstock.wire.values import unpack

sys.setswitchinterval(1e-6)
for round in range(40):
    fields = [("a", int), ("b", str | None), ("c", list[dict[str, Any]]), ("d", Literal["x"])]
    kinds = [msgspec.defstruct(f"K{n}", fields, tag=f"t{n}") for n in range(8)]
    some = kinds[0] | kinds[1] | kinds[2]
    one = msgspec.defstruct("One", [("of", some), ("all", list[kinds[3]])])
    said = {"of": {"type": "t1", "a": 1, "b": None, "c": [], "d": "x"}, "all": []}
    together, found = threading.Barrier(4), []

    def decode():
        together.wait()
        found.append(unpack(said, {}, one))

    threads = [threading.Thread(target=decode) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
print("well")
"""


def test_a_type_may_be_decoded_by_several_threads_that_have_never_seen_it() -> None:
    """CONTRACT 73: the first calls of several ranks arrive together, and the server lives."""
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout) == (0, "well\n"), ended.stderr
