"""A store as somebody sees it who does not read from it: all servers, also those that are gone."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from penstock.client.remote.store_observer import StoreLook, StoreObserver
from penstock.errors import ServerGone
from penstock.server.serving import Server, serve
from tests.client.graphs import small_graph
from tests.processes import until

pytestmark = pytest.mark.usefixtures("no_leaks")

NOBODY = "tcp://127.0.0.1:9"


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    with small_graph() as graph:
        return list(graph.partition(2, tmp_path_factory.mktemp("store") / "parts"))


def free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return f"tcp://127.0.0.1:{taken.getsockname()[1]}"


@contextmanager
def store(*folders: Path) -> Iterator[list[Server]]:
    """Servers that have heard of each other."""
    first = free_address()
    with ExitStack() as ends:
        servers = [ends.enter_context(serve(folders[0], first, num_workers=1, store=[first]))]
        for folder in folders[1:]:
            servers.append(ends.enter_context(serve(folder, num_workers=1, store=[first])))
        yield servers


def whole(observer: StoreObserver, count: int) -> StoreLook:
    """A look after so many servers have heard of each other."""
    until(lambda: len(observer.look().servers) == count, f"{count} servers know of each other")
    return observer.look()


def test_any_address_shows_all_servers_by_their_parts(parts: list[Path]) -> None:
    with store(parts[1], parts[0], parts[1]) as servers:
        for server in servers:
            with StoreObserver([server.address]) as observer:
                look = whole(observer, 3)
            assert look.num_parts == 2
            assert look.missing == ()
            assert [(each.part, each.replica, each.replicas) for each in look.servers] == [
                (0, 0, 1),
                (1, 0, 2),
                (1, 1, 2),
            ]
            assert look.servers[0].address == servers[1].address
            assert {each.state for each in look.servers} == {"serving"}
            assert all(each.statistics is not None for each in look.servers)


def test_a_server_that_is_gone_stays_in_the_list(parts: list[Path]) -> None:
    with store(*parts) as (first, second), StoreObserver([first.address]) as observer:
        whole(observer, 2)
        second.close()
        look = observer.look()
        (gone,) = (each for each in look.servers if each.state != "serving")
        assert (gone.address, gone.part, gone.state) == (second.address, 1, "no answer")
        assert gone.trouble
        assert gone.statistics is None
        assert look.missing == (1,)
        # Who looks for the first time knows where it was, and not what it had.
        with StoreObserver([first.address]) as other:
            (gone,) = (each for each in other.look().servers if each.state != "serving")
        assert (gone.part, gone.state, gone.replicas) == (None, "no answer", 1)
        assert "refused" in gone.trouble


def test_a_server_that_comes_back_is_seen_again(parts: list[Path]) -> None:
    with store(*parts) as (first, second), StoreObserver([first.address]) as observer:
        whole(observer, 2)
        second.close()
        assert observer.look().missing == (1,)
        with serve(parts[1], second.address, num_workers=1, store=[first.address]):
            assert observer.look().missing == ()


def test_a_replica_that_is_added_is_found(parts: list[Path]) -> None:
    with store(*parts) as (first, _), StoreObserver([first.address]) as observer:
        whole(observer, 2)
        with serve(parts[0], num_workers=1, store=[first.address]) as added:
            look = whole(observer, 3)
            assert added.address in [each.address for each in look.servers if each.part == 0]


def test_one_address_that_answers_suffices(parts: list[Path]) -> None:
    with serve(parts[0], num_workers=1) as server:
        with StoreObserver([NOBODY, server.address]) as observer:
            look = observer.look()
    assert [(each.address, each.state) for each in look.servers] == [
        (server.address, "serving"),
        (NOBODY, "no answer"),
    ]


def test_a_server_by_two_names_is_one(parts: list[Path]) -> None:
    with serve(parts[0], num_workers=1) as server:
        other = server.address.replace("127.0.0.1", "localhost")
        with StoreObserver([server.address, other]) as observer:
            assert [each.address for each in observer.look().servers] == [server.address]


def test_a_server_of_another_store_is_shown_as_such(parts: list[Path], tmp_path: Path) -> None:
    with small_graph() as graph:
        others = graph.partition(3, tmp_path / "parts")
    with serve(parts[0], num_workers=1) as one, serve(others[1], num_workers=1) as other:
        with StoreObserver([one.address, other.address]) as observer:
            look = observer.look()
    assert [each.state for each in look.servers] == ["serving", "another store"]
    assert look.servers[1].trouble.startswith("it has part 1 of 3 of version")
    assert look.missing == (1,)


def test_a_server_that_wants_a_token_is_shown_as_such(parts: list[Path]) -> None:
    with (
        serve(parts[0], num_workers=1) as open_,
        serve(parts[1], num_workers=1, tokens={"us": "secret"}) as closed,
        StoreObserver([open_.address, closed.address]) as observer,
    ):
        look = observer.look()
    assert [each.state for each in look.servers] == ["serving", "refused"]
    assert look.servers[1].trouble


def test_nobody_at_any_address_is_an_error_that_names_them() -> None:
    with StoreObserver([NOBODY, "tcp://127.0.0.1:1"], timeout=1.0) as observer:
        with pytest.raises(ServerGone, match=r"no server answers: tcp://127.0.0.1:9 \(.*:1 \("):
            observer.look()
