"""The store of a demonstration: its graph in parts, each at a server in a process of its own.

Every part has one server, and the part whose server is to be killed has two: the other one answers
from then on. Servers are those that people start (`penstock serve`), on ports that are free.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import msgspec

from penstock.demo.plan import Plan
from penstock.errors import PenstockError
from penstock.graph import Graph
from penstock.graph.partition.partition import Parts
from penstock.store.graph import StoreGraph
from penstock.store.remote import graph_at
from penstock.store.servers import StoreServers

_MODULE: Final = "penstock.demo.server"
_KILLED_S: Final = 10.0
# Servers on this host, whose workers sample nothing: batches are put together by the ranks' hub.
_OPTIONS: Final = ("--bind", "tcp://127.0.0.1:0", "--workers", "1", "--json")


class ServerDied(PenstockError):
    """A server could not be started."""


@dataclass(eq=False)
class ServerProcess:
    """One server. Its log goes to a file, for the error if it cannot be started."""

    part: int
    process: subprocess.Popen[bytes]
    printed: Path
    address: str = ""  # once it is up

    @classmethod
    def start(cls, part: int, folder: Path, printed: Path) -> Self:
        """Start a fresh interpreter that serves a part."""
        with printed.open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", _MODULE, str(os.getpid()), str(folder), *_OPTIONS],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                process_group=0,
            )
        return cls(part, process, printed)

    def wait_until_up(self) -> None:
        """Wait until it says where it listens; `ServerDied` if it ends instead."""
        assert self.process.stdout is not None
        if line := self.process.stdout.readline():
            self.address = msgspec.json.decode(line)["address"]
            return
        code = self.process.wait(_KILLED_S)
        last = self.printed.read_text(errors="replace").strip().splitlines()[-1:]
        why = "".join(f": {words}" for words in last)
        raise ServerDied(f"the server of part {self.part} ended with exit code {code}{why}")

    @property
    def pid(self) -> int:
        """The process id."""
        return self.process.pid

    @property
    def is_alive(self) -> bool:
        """Return whether it runs."""
        return self.process.poll() is None

    def kill(self) -> None:
        """Kill it by SIGKILL; its hub ends with it."""
        self.process.kill()
        self.process.wait(_KILLED_S)


class StoreProcesses:
    """All servers of a store. Leaving the `with` ends them, whatever they are doing.

    Args:
        graph: The graph, which is cut into parts.
        plan: How many parts there are, and which of them has two servers.
        scratch: Where parts and logs are written.
    """

    def __init__(self, graph: Graph, plan: Plan, scratch: Path) -> None:
        self._plan = plan
        self._scratch = scratch
        self.parts: Parts = graph.partition(plan.servers, scratch / "parts")
        self.servers: list[ServerProcess] = []

    @property
    def edges_cut(self) -> int:
        """How many edges lead from one part to another."""
        return sum(self.parts.edges_cut.values())

    @property
    def addresses(self) -> list[str]:
        """Where the servers are."""
        return [server.address for server in self.servers]

    @property
    def victim(self) -> ServerProcess:
        """The server that is to be killed."""
        return self.servers[self._plan.killed_part]

    def __enter__(self) -> Self:
        try:
            for number, part in enumerate((*range(self._plan.servers), self._plan.killed_part)):
                printed = self._scratch / f"server-{number}.txt"
                self.servers.append(ServerProcess.start(part, self.parts[part], printed))
            for server in self.servers:
                server.wait_until_up()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for server in self.servers:
            if server.is_alive:
                server.process.kill()
        for server in self.servers:
            server.process.wait(_KILLED_S)
            if server.process.stdout is not None:
                server.process.stdout.close()

    @contextmanager
    def opened(self) -> Iterator[StoreGraph]:
        """The graph that all servers have together."""
        servers = StoreServers.find(self.addresses, name="demo")
        try:
            with graph_at(servers) as graph:
                yield graph
        finally:
            servers.close()
