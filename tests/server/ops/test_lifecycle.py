"""The server of a process, from its beginning to its end."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import IO, Any

import numpy as np
import pytest

from penstock.client.remote.dist_server import RemoteDistServer
from penstock.errors import Overloaded, PenstockError
from penstock.options import Limits
from penstock.rpc.endpoint import Endpoint
from penstock.rpc.server import RemoteServer
from penstock.server.ops.lifecycle import (
    CLEAN,
    LEFT_BEHIND,
    NEVER_ASKED,
    get_server,
    init_server,
    wait_and_shutdown_server,
)
from penstock.wire.requests import SamplerInput
from tests.client.graphs import STEPS, small_graph
from tests.processes import PATIENCE_S, until
from tests.server.stores import AsBytes, backend, channel, messages

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.fixture
def started() -> Iterator[None]:
    """The server of this process, which samples in this process."""
    with small_graph() as graph:
        init_server(graph, num_workers=0)
        yield
        wait_and_shutdown_server(0, grace=0)


def test_without_a_server_there_is_none_to_get_or_to_end() -> None:
    """CONTRACT 39."""
    with pytest.raises(RuntimeError, match="init_server"):
        get_server()
    assert wait_and_shutdown_server() == CLEAN


@pytest.mark.usefixtures("started")
def test_a_process_has_one_server_at_a_time() -> None:
    """CONTRACT 39: found by all of the process; another one must wait for its end."""
    server = get_server()
    with pytest.raises(RuntimeError, match="has a server"):
        init_server(server.dataset.graph, num_workers=0)
    server.exit()
    assert wait_and_shutdown_server() == CLEAN
    assert init_server(server.dataset.graph, num_workers=0) is get_server()


@pytest.mark.usefixtures("started")
def test_loaders_leave_then_ranks_then_the_server_ends() -> None:
    """CONTRACT 39, 62: three phases, no barrier; the status says that nothing was left."""
    server = get_server()
    ended: list[int] = []
    waiting = threading.Thread(target=lambda: ended.append(wait_and_shutdown_server()))
    waiting.start()
    number = channel(server, backend(server))
    assert len(messages(server, number)) == STEPS
    server.destroy_sampling_input(number)
    assert not server.wait_for_exit(0)
    assert server.exit()
    assert server.wait_for_exit(0)
    waiting.join(PATIENCE_S)
    assert ended == [CLEAN]


@pytest.mark.usefixtures("started")
def test_a_rank_that_is_still_at_it_has_a_moment() -> None:
    """CONTRACT 39: `exit` of one does not cut off another who is about to leave."""
    server = get_server()
    number = channel(server, backend(server))
    server.exit()
    ended: list[int] = []
    waiting = threading.Thread(
        target=lambda: ended.append(wait_and_shutdown_server(grace=PATIENCE_S))
    )
    waiting.start()
    assert len(messages(server, number)) == STEPS
    server.destroy_sampling_input(number)
    waiting.join(PATIENCE_S)
    assert ended == [CLEAN]


@pytest.mark.usefixtures("started")
def test_what_clients_left_behind_is_told_by_the_status(caplog: pytest.LogCaptureFixture) -> None:
    """CONTRACT 39: it ends all the same, and says so."""
    server = get_server()
    channel(server, backend(server), worker_key="crashed")
    server.exit()
    with caplog.at_level(logging.WARNING):
        assert wait_and_shutdown_server(grace=0.01) == LEFT_BEHIND
    assert "crashed" in caplog.text


@pytest.mark.usefixtures("started")
def test_a_server_that_nobody_ends_can_be_ended_all_the_same() -> None:
    """CONTRACT 39: never a wait without a bound, where one is given."""
    assert wait_and_shutdown_server(timeout=0.01) == NEVER_ASKED


@pytest.mark.usefixtures("started")
def test_ranks_may_be_kept_from_ending_it() -> None:
    """CONTRACT 62: `exit` over a wire, where the server does not want that."""
    server = get_server()
    server.exit_by_ranks = False
    with pytest.raises(PenstockError, match="exit_by_ranks"):
        RemoteDistServer(AsBytes(server)).exit()
    assert not server.wait_for_exit(0)


def test_with_an_address_a_server_has_the_same_options() -> None:
    """CONTRACT 53, 62: those of `DistServer`, to the last."""
    options: dict[str, Any] = {"max_backends": 1, "limits": Limits(max_inputs_bytes=1000)}
    with small_graph() as graph:
        server = init_server(graph, "tcp://127.0.0.1:0", num_workers=1, **options)
        try:
            made = backend(server)
            with pytest.raises(Overloaded, match="setting: max_backends"):
                backend(server, "another")
            with pytest.raises(Overloaded, match="setting: max_inputs_bytes"):
                channel(server, made, SamplerInput(ids=np.arange(200)))
        finally:
            wait_and_shutdown_server(0, grace=0)


# --- processes -------------------------------------------------------------------------------


@contextmanager
def run(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process, and the first line it says."""
    command = [sys.executable, "-m", "tests.server.processes", *arguments]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process, _line(process.stdout)
        finally:
            process.kill()


def _line(stream: IO[str] | None) -> str:
    assert stream is not None
    return stream.readline().strip()


@contextmanager
def asked(address: str) -> Iterator[RemoteDistServer]:
    """A server elsewhere."""
    store = RemoteServer(Endpoint(address))
    try:
        yield RemoteDistServer(store)
    finally:
        store.close()


def test_a_server_elsewhere_is_ended_by_a_rank() -> None:
    """CONTRACT 39, 62: `exit` over the wire; status 0."""
    with run("serve", "60") as (process, address):
        with asked(address) as server:
            number = channel(server, backend(server))
            assert len(messages(server, number)) == STEPS
            server.destroy_sampling_input(number)
            assert server.exit()
        assert process.wait(PATIENCE_S) == CLEAN


def test_a_rank_that_was_killed_has_left_nothing_when_it_is_missed() -> None:
    """CONTRACT 39, 40: its connection ends with it, its channel with its connection."""
    with ExitStack() as stack:
        process, address = stack.enter_context(run("serve", "60"))
        visitor, number = stack.enter_context(run("visit", address))
        visitor.kill()
        with asked(address) as server:
            until(lambda: number not in server.statistics()["channels"], "its channel has gone")
            assert server.exit()
        assert process.wait(PATIENCE_S) == CLEAN


def test_a_rank_that_hangs_holds_nobody_up() -> None:
    """CONTRACT 39: its channel is still there when the server ends; the status tells."""
    with ExitStack() as stack:
        process, address = stack.enter_context(run("serve", "0.05"))
        visitor, number = stack.enter_context(run("visit", address))
        visitor.send_signal(signal.SIGSTOP)
        with asked(address) as server:
            assert number in server.statistics()["channels"]
            assert server.exit()
        assert process.wait(PATIENCE_S) == LEFT_BEHIND
        assert process.stderr is not None
        assert "doomed" in process.stderr.read()
