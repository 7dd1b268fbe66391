"""A server in a process of its own, which can be killed, and started again where it was.

python -m tests.loader.server_process FOLDER PORT [LEASE]
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.server.serving import serve
from tests.processes import strike, wait_until_gone


class ServerProcess:
    """Killed as often as one likes."""

    def __init__(self, folder: Path, lease: float = 5.0) -> None:
        self.address = ""
        self._lease = lease
        self._child: subprocess.Popen[str] | None = None
        self.start(folder)

    @property
    def pid(self) -> int:
        assert self._child is not None
        return self._child.pid

    def start(self, folder: Path) -> None:
        """Returns when ranks can come, at the address it had before."""
        port = self.address.rpartition(":")[2] or "0"
        command = [sys.executable, "-m", "tests.loader.server_process"]
        self._child = subprocess.Popen(
            [*command, str(folder), port, str(self._lease)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._child.stdout is not None
        self.address = self._child.stdout.readline().strip()
        assert self.address, "the server has not started"

    def kill(self) -> None:
        """Without a warning."""
        assert self._child is not None
        strike(self._child.pid)
        self._let_go()

    def close(self) -> None:
        if self._child is not None and self._child.stdin is not None:
            self._child.stdin.close()  # which is what it waits for
            self._let_go()

    def _let_go(self) -> None:
        child, self._child = self._child, None
        assert child is not None
        child.wait()
        wait_until_gone([child.pid])
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                pipe.close()


@contextmanager
def server_of(folder: Path, lease: float = 5.0) -> Iterator[ServerProcess]:
    server = ServerProcess(folder, lease)
    try:
        yield server
    finally:
        server.close()


if __name__ == "__main__":
    folder, port, lease = sys.argv[1:]
    with serve(folder, f"tcp://127.0.0.1:{port}", num_workers=1, lease=float(lease)) as running:
        print(running.address, flush=True)
        sys.stdin.read()
