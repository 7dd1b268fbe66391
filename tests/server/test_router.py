"""The server's socket, with nobody else of the server there."""

from __future__ import annotations

import subprocess
import sys

from tests.client.ranks import ROOT
from tests.processes import PATIENCE_S

# More has come than was heard when the connection is reset, and heartbeats are due: one of the
# server's own, and the answer to one that is among what was not heard.
PROGRAM = """
import socket, struct, time
from penstock.server.admission import LoopbackOnly
from penstock.server.router import Router
from tests.server.strangers import COMMAND, Stranger, frame

LEASE, WORDS = 0.4, 1000
router = Router("tcp://127.0.0.1:0", LoopbackOnly(), LEASE)
stranger = Stranger.greeted(router.address)
ping = frame(b"\\x04PING" + struct.pack(">H", 0), COMMAND)
stranger.send((frame(bytes(100)) * 10 + ping) * (WORDS // 10))
time.sleep(LEASE / 4)
stranger.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
stranger.close()
time.sleep(2 * LEASE)
heard = 0
while router.receive() is not None:
    heard += 1
time.sleep(2 * LEASE)
print("heard", heard)
router.close()
"""


def test_a_connection_that_is_reset_with_much_unheard_does_not_end_the_server() -> None:
    """CONTRACT 53: ZeroMQ ends the process where it has a limit to what it keeps unheard."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert (done.returncode, done.stdout) == (0, "heard 1000\n"), done.stderr
