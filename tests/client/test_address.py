"""A hub's address: nobody else gets it while it lives, and what is said there is for the hub."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

import pytest

from penstock.client.hub.hub_process import HubProcess
from penstock.client.hub.joined import connect
from penstock.errors import HubGone, PenstockError
from penstock.wire.transport.unix import UnixListener, socket_address
from penstock.workers.recipe import fetch_graph
from tests.client.graphs import SPEC, TERMS, backend_of, digests, expected, rest, small_graph
from tests.processes import strike, until
from tests.users import NOBODY, as_nobody, only_root

pytestmark = pytest.mark.usefixtures("no_leaks")


class Thief(threading.Thread):
    """Tries without a pause to bind an address, as somebody would who waits for a hub to die."""

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self._name_of_socket = socket_address(address)
        self.tries = 0
        self.has_it = False
        self.over = False

    def run(self) -> None:
        while not (self.over or self.has_it):
            with socket.socket(socket.AF_UNIX) as mine, suppress(OSError):
                self.tries += 1
                mine.bind(self._name_of_socket)
                self.has_it = True


def test_the_address_of_a_hub_cannot_be_taken_while_it_is_started_again() -> None:
    """CONTRACT 22: the rank goes on, with the same bytes."""
    with small_graph() as graph, HubProcess(graph, 1) as hub:
        thief = Thief(hub.address)
        thief.start()
        try:
            with backend_of(hub, SPEC) as backend:
                backend.register_input("a", "train", **TERMS)
                for epoch in range(3):
                    backend.start_new_epoch_sampling("a", epoch)
                    assert strike(hub.pid)
                    assert digests(rest(backend, "a")) == expected(graph, epoch)
            tries = thief.tries
            until(lambda: thief.tries > tries, "it is still at it")
        finally:
            thief.over = True
            thief.join()
        assert not thief.has_it


def test_who_joins_while_the_hub_is_being_started_waits_for_it() -> None:
    """CONTRACT 22"""
    with small_graph() as graph, HubProcess(graph, 1) as hub:
        assert strike(hub.pid)
        with connect(hub.address) as joined:
            assert joined.statistics()["hub"]["channels"] == 0


def test_after_the_owner_has_closed_it_the_address_is_free() -> None:
    with small_graph() as graph, HubProcess(graph, 1) as hub:
        address = hub.address
    UnixListener(address).close()
    with pytest.raises(HubGone, match="no hub answers"):
        connect(address)


@only_root
def test_neither_ranks_nor_replays_speak_to_another_user_s_hub() -> None:
    """They would tell it all input ids, and take whatever it says for batches."""
    with small_graph() as graph, HubProcess(graph, 1) as hub:
        address = hub.address
    taken: list[UnixListener] = []
    as_nobody(lambda: taken.append(UnixListener(address)))
    try:
        with pytest.raises(HubGone, match=f"user {NOBODY} listens at .*not your hub"):
            connect(address)
        with pytest.raises((PenstockError, OSError), match="not your hub"):
            fetch_graph(address)
    finally:
        taken[0].close()
