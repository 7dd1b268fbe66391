"""A `penstock serve` process of one part, as its parent has it.

The server ends when its standard input does, so it never outlives its parent, however that ends.
Its certificate, key and token are files in memory that it inherits: nothing secret is on a disk.
This module must not import Ray, and neither does the process.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import IO, Any, Final

from penstock.cluster.credentials import SERVER_NAME, Credentials
from penstock.cluster.plan import StorePlan
from penstock.errors import PenstockError
from penstock.store.memory_file import MemoryFile
from penstock.wire.transport import tcp

# Lines of its standard error that are kept to say why it ended.
_TAIL: Final = 12
_KILLED_S: Final = 10.0


def listen_at(host: str, port: int) -> socket.socket:
    """Return a socket that listens at a port of this host; at any, if that one is taken."""
    try:
        return tcp.listen(tcp.Address(tcp.ENCRYPTED, host, port))
    except OSError:
        if port == 0:
            raise
        return tcp.listen(tcp.Address(tcp.ENCRYPTED, host, 0))


def run_as_its_host() -> int:
    """Have what this thread starts run at the priority of Ray itself on this host.

    Ray has its workers give way to everything else, and a server would do so, too. Without the
    right to change that, they do.

    Returns:
        The niceness of what this thread starts from now on: 0, unless Ray was started with another.
    """
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, os.getppid()))
    return os.getpriority(os.PRIO_PROCESS, 0)


class ServerProcess:
    """A server that was started. Its parent's threads may use it.

    Args:
        plan: The store.
        part: The part that it serves.
        credentials: Those of the store.
        listening: The socket it is to listen at; it is closed here.
        store: The addresses of the servers of the store, this one's among them.
    """

    def __init__(
        self,
        plan: StorePlan,
        part: int,
        credentials: Credentials,
        listening: socket.socket,
        store: Sequence[str],
    ) -> None:
        files = {
            "--certificate": MemoryFile(credentials.certificate),
            "--key": MemoryFile(credentials.key),
            "--store-ca": MemoryFile(credentials.ca),
            "--tokens": MemoryFile(credentials.tokens),
        }
        host, port = listening.getsockname()[:2]
        command = [sys.executable, "-P", "-m", "penstock", "serve", plan.part_folder(part)]
        command += ["--bind", str(tcp.Address(tcp.ENCRYPTED, host, port))]
        command += ["--listen-fd", str(listening.fileno()), "--store", ",".join(store)]
        command += ["--store-server-name", SERVER_NAME, "--workers", str(plan.num_workers)]
        for option, file in files.items():
            command += [option, f"/proc/self/fd/{file.fd}"]
        command += ["--until-eof", "--json", *plan.serve_options]
        self._tail: deque[str] = deque(maxlen=_TAIL)
        with listening:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,  # which ends with this process, however that ends
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=[listening.fileno(), *(file.fd for file in files.values())],
                process_group=0,
                text=True,
            )
        for file in files.values():
            file.close()
        assert self._process.stderr is not None
        self._reading = threading.Thread(
            target=self._read, args=(self._process.stderr,), name="penstock-stderr", daemon=True
        )
        self._reading.start()

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    def wait_until_ready(self) -> dict[str, Any]:
        """Return where it is; `PenstockError`, with the reason, if it ends instead."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise PenstockError(self.wait())
        try:
            where: dict[str, Any] = json.loads(line)
        except ValueError:  # of `--help`, for example
            raise PenstockError(f"the server says {line.strip()!r}, not where it is") from None
        return where

    def wait(self) -> str:
        """Wait for its end, and return how it ended, in words."""
        code = self._process.wait()
        self._reading.join(timeout=1.0)  # a child of its own may hold the pipe for longer
        ended = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
        told = " ".join(line for line in self._tail if line)
        return f"the server {ended}" + (f": {told}" if told else "")

    def end(self, grace: float) -> None:
        """End it: ask it first, and kill it after `grace` seconds."""
        for number, seconds in ((signal.SIGTERM, grace), (signal.SIGKILL, _KILLED_S)):
            self._process.send_signal(number)
            try:
                self._process.wait(seconds)
                return
            except subprocess.TimeoutExpired:
                continue

    def close(self) -> None:
        """Close the pipes, which ends it if it still runs."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def _read(self, stderr: IO[str]) -> None:
        """Pass its standard error on to our own, which Ray keeps, and keep its end."""
        with stderr:
            for line in stderr:
                self._tail.append(line.strip())
                sys.stderr.write(line)
                sys.stderr.flush()
