"""The servers of a store, each a process of its own: killed, stopped and started again.

python -m tests.store.servers '{"folder": …, "port": …, "store": […]}'
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from tests.client.ranks import ROOT
from tests.processes import PATIENCE_S, stop, strike, wait_until_gone

# Ports that were given out here: two servers of one test must not get the same.
_taken: set[int] = set()


def free_port() -> int:
    """One that is free, and that nobody gets who asks the kernel for any: so it stays free."""
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.SystemRandom().randrange(lowest // 2, lowest)
        if port in _taken:
            continue
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            _taken.add(port)
            return port


class PartServer:
    """A server of one part. It ends when its standard input does, so also with the test."""

    def __init__(self, folder: Path | str, store: Sequence[str], port: int, **options: Any) -> None:
        self.folder, self.store, self.port = str(folder), tuple(store), port
        self.options = options
        self._child: subprocess.Popen[str] | None = None

    @property
    def address(self) -> str:
        scheme = "tls" if "certificate" in self.options else "tcp"
        host = "localhost" if scheme == "tls" else "127.0.0.1"
        return f"{scheme}://{host}:{self.port}"

    @property
    def pid(self) -> int:
        assert self._child is not None
        return self._child.pid

    @property
    def is_up(self) -> bool:
        """Whether it was started and neither killed nor ended."""
        return self._child is not None

    def begin(self, folder: Path | str | None = None) -> Self:
        """Starts it, at its address, without waiting for it."""
        assert self._child is None
        self.folder = self.folder if folder is None else str(folder)
        plan = {"folder": self.folder, "port": self.port, "store": self.store, **self.options}
        self._child = subprocess.Popen(
            [sys.executable, "-m", "tests.store.servers", json.dumps(plan)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            text=True,
        )
        return self

    def wait_until_up(self) -> Self:
        """Until ranks can come."""
        assert self._child is not None
        assert self._child.stdout is not None
        line = self._child.stdout.readline().strip()
        assert line == "serving", line or f"it ended with {self._child.wait(PATIENCE_S)}"
        return self

    def start(self, folder: Path | str | None = None) -> Self:
        return self.begin(folder).wait_until_up()

    def kill(self) -> None:
        """Without a warning; its hub goes as well."""
        strike(self.pid)
        self._let_go()

    def stop(self) -> None:
        """SIGSTOP: it hears and says nothing, and its connections stay."""
        stop(self.pid)

    def go_on(self) -> None:
        strike(self.pid, signal.SIGCONT)

    def wake(self) -> None:
        """Up, whatever was done to it."""
        if self._child is None:
            self.start()
        else:
            self.go_on()

    def leave(self) -> None:
        """As an administrator ends it: ranks are told."""
        self.ask_to_end()
        self._let_go()

    def ask_to_end(self) -> None:
        if self._child is not None:
            self.go_on()
            assert self._child.stdin is not None
            self._child.stdin.close()

    def close(self) -> None:
        if self._child is not None:
            self.leave()

    def _let_go(self) -> None:
        child, self._child = self._child, None
        assert child is not None
        child.wait(PATIENCE_S)
        wait_until_gone([child.pid])
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                pipe.close()


class StoreProcesses:
    """All servers of a store: of each part one, or several."""

    def __init__(self, parts: Sequence[Path | str], replicas: int = 1, **options: Any) -> None:
        ports = [free_port() for _ in range(len(parts) * replicas)]
        folders = [folder for folder in parts for _ in range(replicas)]
        self.servers = [
            PartServer(folder, (), port, **options)
            for folder, port in zip(folders, ports, strict=True)
        ]
        self.replicas = replicas
        for server in self.servers:
            server.store = tuple(self.addresses)

    @property
    def addresses(self) -> list[str]:
        return [server.address for server in self.servers]

    def of(self, part: int) -> list[PartServer]:
        """The servers that have a part."""
        return self.servers[part * self.replicas : (part + 1) * self.replicas]

    def restore(self) -> None:
        """All are up, and go on."""
        for server in self.servers:
            server.wake()

    def __enter__(self) -> Self:
        try:
            for server in self.servers:
                server.begin()
            for server in self.servers:
                server.wait_until_up()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for server in self.servers:
            server.ask_to_end()
        for server in self.servers:
            server.close()


def main() -> None:
    """Serves until standard input ends."""
    from penstock.server.serving import serve
    from penstock.server.transport import threads

    plan = json.loads(sys.argv[1])
    folder, port = plan.pop("folder"), plan.pop("port")
    threads.LOOKING_UP = plan.pop("threads", threads.LOOKING_UP)
    host = "localhost" if "certificate" in plan else "127.0.0.1"
    with serve(folder, f"tcp://{host}:{port}", num_workers=1, **plan):
        print("serving", flush=True)
        os.read(0, 1)


if __name__ == "__main__":
    main()
