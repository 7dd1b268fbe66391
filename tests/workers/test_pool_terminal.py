"""A terminal's Ctrl-C is for the rank: workers do not even get it."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

from tests.workers.pools import ROOT

pytestmark = pytest.mark.usefixtures("no_leaks")

# The leader of a session gets the first terminal it opens, and stands in the foreground there.
# The understudy does nothing about SIGINT: if it came, it would be the end of it.
HUB = """
import os, select, signal, sys
from tests.workers.pools import rehearsal

told, tell = os.pipe()
os.set_blocking(tell, False)
signal.set_wakeup_fd(tell)
signal.signal(signal.SIGINT, lambda *_: None)
terminal = os.open(sys.argv[1], os.O_RDWR)
with rehearsal("serve") as stage:
    stage.start_ready(1)
    print("ready", flush=True)
    select.select([told], [], [])
    stage.pool.retire(1)
    print(stage.until_ended(1).as_asked, flush=True)
"""


def test_a_ctrl_c_in_the_terminal_does_not_reach_workers() -> None:
    ours, theirs = pty.openpty()
    try:
        arguments = [sys.executable, "-c", HUB, os.ttyname(theirs)]
        with subprocess.Popen(
            arguments, stdout=subprocess.PIPE, text=True, cwd=ROOT, start_new_session=True
        ) as hub:
            assert hub.stdout is not None
            assert hub.stdout.readline() == "ready\n"
            os.write(ours, b"\x03")
            assert hub.stdout.readline() == "True\n"
    finally:
        os.close(ours)
        os.close(theirs)
