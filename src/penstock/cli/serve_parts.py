"""`penstock serve parts/`: a server for each part of a folder, which begin and end together.

Each server is a process of its own, as if it had been started by `penstock serve parts/part-N`.
This process listens for all of them first, so that each knows where the others are, and then waits.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from penstock.cli.asked import Asked
from penstock.cli.words import counted
from penstock.errors import PenstockError
from penstock.wire.transport import tcp

_CLEAN: Final = 0
_FAILED: Final = 1
_LEFT_BEHIND: Final = 3  # as in `server.ops.lifecycle`, which need not be imported for it
# Options that each server gets from here, or that are not for servers of parts.
_OWN: Final = frozenset({"bind", "store", "http", "listen_fd", "until_eof", "as_json", "unix"})


class _Child:
    """The server of one part."""

    def __init__(self, part: Path, command: Sequence[str], listening: int) -> None:
        self.part = part
        # It has its own process group, so that Ctrl-C in a terminal reaches this process alone.
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,  # which ends with this process, however that ends
            stdout=subprocess.PIPE,
            pass_fds=(listening,),
            process_group=0,
        )

    def wait_until_ready(self) -> dict[str, Any]:
        """Return where it is; `PenstockError` if it ends instead."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise PenstockError(f"the server of {self.part} has not started")
        where: dict[str, Any] = json.loads(line)
        return where

    def tell(self, number: signal.Signals) -> None:
        """Send it a signal, unless it has ended."""
        self._process.send_signal(number)

    def wait(self) -> int:
        """Wait for its end, and return its exit status."""
        return self._process.wait()

    def end(self) -> None:
        """End it at once, if it still runs."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


class _Children:
    """All servers, and the exit status of each that has ended."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._all: list[_Child] = []
        self._waiting: list[threading.Thread] = []
        self.statuses: dict[_Child, int] = {}

    def add(self, child: _Child) -> None:
        self._all.append(child)

    def wait_until_ready(self) -> list[dict[str, Any]]:
        """Return where each of them is; from then on, the end of any asks for the end of all."""
        where = [child.wait_until_ready() for child in self._all]
        for child in self._all:
            self._waiting.append(threading.Thread(target=self._wait_for, args=(child,)))
            self._waiting[-1].start()
        return where

    def _wait_for(self, child: _Child) -> None:
        self.statuses[child] = child.wait()
        self._asked.ask(f"the server of {child.part} has ended")

    @property
    def have_ended(self) -> bool:
        return len(self.statuses) == len(self._all)

    def tell(self, number: signal.Signals) -> None:
        """Send a signal to all that run."""
        for child in self._all:
            child.tell(number)

    def end(self) -> None:
        """End those that are left, at once."""
        for child in self._all:
            child.end()
        for thread in self._waiting:
            thread.join()


def serve_parts(context: click.Context, folder: Path, parts: Sequence[Path], asked: Asked) -> int:
    """Serve each of the parts in a process of its own, until one ends or all are asked to.

    Args:
        context: The command, with its options.
        folder: The folder of the parts.
        parts: The folders of each part.
        asked: Who asks for the end.

    Returns:
        The exit status: 0; 3 if ranks had left channels behind; 1 if a server has failed.
    """
    given = context.params
    if given["unix"] is not None:
        raise ValueError("unix is given, but each part has a server: give it to the server of one")
    children = _Children(asked)
    try:
        for child in _started(context, parts):
            children.add(child)
        servers = children.wait_until_ready()
        asked.reloads = lambda: children.tell(signal.SIGHUP)
        _announce(folder, servers, as_json=given["as_json"])
        return _wait(children, asked, float(given["grace"]))
    finally:
        children.end()


def _started(context: click.Context, parts: Sequence[Path]) -> Iterator[_Child]:
    """Listen for all servers, and yield each, started with the addresses of all of them."""
    given = context.params
    first = tcp.Address.parse(given["bind"], listening=True)
    sockets = [tcp.listen(each) for each in _next_ports(first, len(parts))]
    try:
        ports = [each.getsockname()[1] for each in sockets]
        reached = os.uname().nodename if first.host in tcp.ANYWHERE else first.host
        store = [str(tcp.Address(first.scheme, reached, port)) for port in ports]
        for number, part in enumerate(parts):
            bind = str(tcp.Address(first.scheme, first.host, ports[number]))
            own = ["--bind", bind, "--listen-fd", str(sockets[number].fileno())]
            own += ["--store", ",".join([*store, *given["store"]]), "--until-eof", "--json"]
            if given["http"] is not None:
                own += ["--http", _later_port(given["http"], number)]
            command = [sys.executable, "-P", "-m", "penstock", "serve", str(part), *own]
            yield _Child(part, [*command, *_passed_on(context)], sockets[number].fileno())
    finally:
        for each in sockets:
            each.close()


def _next_ports(first: tcp.Address, count: int) -> list[tcp.Address]:
    """Return addresses whose ports follow each other; if the first is 0, all are."""
    return [
        tcp.Address(first.scheme, first.host, first.port and first.port + number)
        for number in range(count)
    ]


def _later_port(address: str, number: int) -> str:
    """Return HOST:PORT with a later port; port 0, which is any, stays."""
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) + number}" if port.isdigit() and int(port) else address


def _passed_on(context: click.Context) -> Iterator[str]:
    """Yield the options that were given, as they are typed."""
    for each in context.command.params:
        value = context.params[each.name or ""]
        if not isinstance(each, click.Option) or each.name in _OWN or value is None:
            continue
        if each.is_flag:
            yield from [each.opts[0]] if value else []
            continue
        for one in value if each.multiple else [value]:
            yield from (each.opts[0], str(one))


def _announce(folder: Path, servers: Sequence[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        told = {"address": servers[0]["address"], "pid": os.getpid(), "graph": str(folder)}
        click.echo(msgspec.json.encode({**told, "servers": servers}))
        return
    for each in servers:
        pages = f"; pages at {each['http']}/" if each["http"] else ""
        click.echo(f"serving {each['graph']} at {each['address']}{pages}")
    click.echo(f"all {counted(len(servers), 'part')} are served; Ctrl-C ends them")


def _wait(children: _Children, asked: Asked, grace: float) -> int:
    """Wait until somebody wants the servers to end, and until they have; return the status."""
    while not asked.wait(None):
        pass
    click.echo(f"leaving ({asked.why}); ranks have {grace:g} s", err=True)
    children.tell(signal.SIGTERM)
    while not children.have_ended:
        signals = asked.signals
        asked.wait(None)
        if asked.signals > signals:  # a second one ends them at once
            children.tell(signal.SIGTERM)
    return _status(children.statuses.values())


def _status(statuses: Iterable[int]) -> int:
    found = set(statuses)
    if found <= {_CLEAN, _LEFT_BEHIND}:
        return max(found, default=_CLEAN)
    return _FAILED
