"""A `DistServer` that several call at once: who waits, who wins, and what is left."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.client.hub.hub_process import HubProcess
from penstock.client.remote.dist_server import RemoteDistServer
from penstock.errors import ChannelClosed, PenstockError, SamplingError
from penstock.graph import Graph
from penstock.rpc.endpoint import Endpoint
from penstock.rpc.server import RemoteServer
from penstock.sampling.spec import CustomSpec
from penstock.server.dist import dist_server
from penstock.server.dist.dist_server import DistServer
from penstock.server.dist.rpc import farewell
from penstock.server.serving import Server, serve
from tests.client.graphs import STEPS, backend_of, expected, small_graph
from tests.processes import PATIENCE_S, strike, until
from tests.server.stores import WAYS, AnyServer, AsBytes, backend, channel, digests, messages

SAMPLER = "tests.server.samplers:Gated"


@pytest.fixture(scope="module")
def graph() -> Iterator[Graph]:
    with small_graph() as found:
        yield found


@pytest.fixture(scope="module")
def pool(graph: Graph) -> Iterator[HubProcess]:
    """Of one worker, who is there before any test looks who is."""
    with HubProcess(graph, 1) as hub, backend_of(hub):
        yield hub


@pytest.fixture
def itself(graph: Graph, pool: HubProcess, no_leaks: None) -> Iterator[DistServer]:
    """A server of that pool."""
    with DistServer(graph, pool, samplers=(SAMPLER,)) as server:
        yield server


@pytest.fixture(scope="module")
def door(graph: Graph) -> Iterator[Server]:
    """One with a door, which keeps its threads: what is left of a test, its own books tell."""
    with serve(graph, num_workers=1, samplers=(SAMPLER,)) as served:
        yield served


@pytest.fixture(params=WAYS)
def both(request: pytest.FixtureRequest) -> Iterator[tuple[AnyServer, DistServer]]:
    """A way to a server, and the server."""
    if request.param != "over the wire":
        itself = request.getfixturevalue("itself")
        yield (
            (itself if request.param == "in process" else RemoteDistServer(AsBytes(itself))),
            itself,
        )
        return
    door: Server = request.getfixturevalue("door")
    with closing(RemoteServer(Endpoint(door.address))) as store:
        yield RemoteDistServer(store), door.store
    until(lambda: not door.store.statistics()["backends"], "what the test made has gone")
    assert door.store.statistics()["channels"] == {}


@pytest.fixture
def server(both: tuple[AnyServer, DistServer]) -> AnyServer:
    return both[0]


@pytest.fixture
def behind(both: tuple[AnyServer, DistServer]) -> DistServer:
    """The server that is reached."""
    return both[1]


class Gate:
    """Keeps a batch in the making, until it is opened."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "gate").touch()

    @property
    def spec(self) -> CustomSpec:
        return CustomSpec(sampler=SAMPLER, options={"folder": str(self._folder)})

    def wait_for_a_batch(self) -> None:
        until((self._folder / "begun").exists, "a worker is at it")

    def open(self) -> None:
        (self._folder / "gate").unlink()


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path)


class Making:
    """Stands in the way of whoever makes a backend, until told how it ends."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.error: Exception | None = None
        self.times = 0
        self._really = dist_server.backend_for
        monkeypatch.setattr(dist_server, "backend_for", self._make)

    def _make(self, *args: Any) -> Any:
        self.times += 1
        self.begun.set()
        assert self.go_on.wait(PATIENCE_S)
        if self.error is not None:
            raise self.error
        return self._really(*args)


@pytest.fixture
def making(monkeypatch: pytest.MonkeyPatch) -> Making:
    return Making(monkeypatch)


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as found:
        yield found


def wait_for_a_fetch(server: DistServer, number: int) -> None:
    channel = server._channels.find(number)
    assert channel is not None
    until(channel._turn.locked, "a fetch waits")


def wait_for_waiters(server: DistServer, number: int) -> None:
    waiters = server._backends._changed._waiters  # type: ignore[attr-defined]
    until(lambda: len(waiters) == number, f"{number} wait for the first")


# --- 30 --------------------------------------------------------------------------------------


def test_others_wait_for_the_first_and_get_its_number(
    server: AnyServer, behind: DistServer, making: Making, threads: ThreadPoolExecutor
) -> None:
    """CONTRACT 30: it is made once."""
    first = threads.submit(backend, server)
    assert making.begun.wait(PATIENCE_S)
    others = [threads.submit(backend, server) for _ in range(3)]
    wait_for_waiters(behind, 3)
    making.go_on.set()
    assert {each.result() for each in (first, *others)} == {first.result()}
    assert making.times == 1


def test_if_the_first_fails_the_others_get_an_error_of_that_cause(
    server: AnyServer, behind: DistServer, making: Making, threads: ThreadPoolExecutor
) -> None:
    """CONTRACT 30: the first its own error, the others one whose cause it is; then try again."""
    making.error = ValueError("there is no such fan-out")
    first = threads.submit(backend, server)
    assert making.begun.wait(PATIENCE_S)
    others = [threads.submit(backend, server) for _ in range(2)]
    wait_for_waiters(behind, 2)
    making.go_on.set()
    with pytest.raises(ValueError, match="no such fan-out"):
        first.result()
    for other in others:
        with pytest.raises(PenstockError, match="'k' could not be made: there is no") as raised:
            other.result()
        assert isinstance(raised.value.__cause__, ValueError)
        assert str(raised.value.__cause__) == "there is no such fan-out"
    making.error = None
    assert backend(server) > 0


def test_another_key_does_not_wait(
    server: AnyServer, making: Making, threads: ThreadPoolExecutor
) -> None:
    """CONTRACT 30: only those of the same key do."""
    first = threads.submit(backend, server, "slow")
    assert making.begun.wait(PATIENCE_S)
    making.begun.clear()
    second = threads.submit(backend, server, "other")
    assert making.begun.wait(PATIENCE_S)  # it is being made as well
    making.go_on.set()
    assert first.result() != second.result()


def test_while_it_is_torn_down_its_key_is_an_error(
    server: AnyServer,
    behind: DistServer,
    threads: ThreadPoolExecutor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """CONTRACT 30: an error; after it, a new number."""
    made = backend(server)
    number = channel(server, made)
    (there,) = behind._backends.all()
    begun, go_on, really = threading.Event(), threading.Event(), there.up.shutdown

    def slow() -> None:
        begun.set()
        assert go_on.wait(PATIENCE_S)
        really()

    monkeypatch.setattr(there.up, "shutdown", slow)
    ending = threads.submit(server.destroy_sampling_input, number)
    assert begun.wait(PATIENCE_S)
    with pytest.raises(PenstockError, match="'k' is being torn down"):
        backend(server)
    with pytest.raises(KeyError, match="torn down with its last channel"):
        channel(server, made)
    go_on.set()
    ending.result()
    assert backend(server) > made


def test_a_channel_that_is_being_opened_keeps_the_backend(
    server: AnyServer, behind: DistServer
) -> None:
    """CONTRACT 33: the last one destroyed is not the last, if another one is on its way."""
    made = backend(server)
    number = channel(server, made)
    entering = behind._backends.enter(made)
    server.destroy_sampling_input(number)
    assert backend(server) == made
    behind._backends.leave(entering, None)  # it could not be opened after all
    with pytest.raises(KeyError, match="torn down"):
        channel(server, made)


# --- 33, 34 ----------------------------------------------------------------------------------


def test_a_destroy_wins_over_a_fetch_that_waits(
    server: AnyServer, behind: DistServer, gate: Gate, threads: ThreadPoolExecutor
) -> None:
    """CONTRACT 33, 34: the fetch is told that there are no more; the destroy does not wait."""
    number = channel(server, backend(server, spec=gate.spec))
    server.start_new_epoch_sampling(number, 0)
    gate.wait_for_a_batch()
    waiting = [threads.submit(server.fetch_one_sampled_message, number) for _ in range(3)]
    wait_for_a_fetch(behind, number)
    server.destroy_sampling_input(number)
    assert [each.result(PATIENCE_S) for each in waiting] == [(None, True)] * 3
    gate.open()


def test_a_destroy_wins_over_a_start_that_waits(
    server: AnyServer, behind: DistServer, gate: Gate, threads: ThreadPoolExecutor
) -> None:
    """CONTRACT 33: behind a fetch that waits; nothing is started."""
    number = channel(server, backend(server, spec=gate.spec))
    server.start_new_epoch_sampling(number, 0)
    gate.wait_for_a_batch()
    fetch = threads.submit(server.fetch_one_sampled_message, number)
    wait_for_a_fetch(behind, number)
    start = threads.submit(server.start_new_epoch_sampling, number, 1)
    server.destroy_sampling_input(number)
    assert fetch.result(PATIENCE_S) == (None, True)
    assert start.result(PATIENCE_S) is None
    gate.open()


def test_nobody_else_waits_for_a_fetch_that_waits(
    server: AnyServer, behind: DistServer, gate: Gate, threads: ThreadPoolExecutor
) -> None:
    """CONTRACT 38: questions are answered meanwhile, and other channels are opened and read."""
    number = channel(server, backend(server, spec=gate.spec))
    server.start_new_epoch_sampling(number, 0)
    gate.wait_for_a_batch()
    waiting = threads.submit(server.fetch_one_sampled_message, number)
    wait_for_a_fetch(behind, number)
    assert server.get_node_types() is None
    assert not server.is_channel_epoch_done(number, 0)
    assert len(messages(server, channel(server, backend(server, "other")))) == STEPS
    assert not waiting.done()
    gate.open()
    assert waiting.result(PATIENCE_S)[0] is not None


def test_an_interrupt_in_a_fetch_leaves_all_others_as_they_are(
    door: Server, gate: Gate, threads: ThreadPoolExecutor
) -> None:
    """CONTRACT 34: other channels of the connection go on. Of the interrupted one a batch may be
    lost, which is told."""
    with closing(RemoteServer(Endpoint(door.address))) as store:
        server = RemoteDistServer(store)
        made = backend(server, spec=gate.spec)
        mine, other = (channel(server, made) for _ in range(2))
        for number in (mine, other):
            server.start_new_epoch_sampling(number, 0)
        gate.wait_for_a_batch()
        waiting = threads.submit(server.fetch_one_sampled_message, other)
        wait_for_a_fetch(door.store, other)
        arrival = interrupts_us_when(lambda: wait_for_a_fetch(door.store, mine))
        with arrival, pytest.raises(KeyboardInterrupt):
            server.fetch_one_sampled_message(mine)
        gate.open()
        assert waiting.result(PATIENCE_S)[0] is not None
        with pytest.raises(ChannelClosed, match=f"fetch of channel {mine} was interrupted"):
            server.fetch_one_sampled_message(mine)
        server.destroy_sampling_input(mine)
        assert server.fetch_one_sampled_message(mine) == (None, True)
        assert server.fetch_one_sampled_message(other)[0] is not None


@contextmanager
def interrupts_us_when(wait: Callable[[], None]) -> Iterator[None]:
    """What Ctrl-C does to this thread, by a signal that is nobody else's."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    def strike_us() -> None:
        wait()
        signal.pthread_kill(us, signal.SIGUSR1)

    us, before = threading.get_ident(), signal.signal(signal.SIGUSR1, interrupt)
    striker = threading.Thread(target=strike_us)
    striker.start()
    try:
        yield
    finally:
        striker.join()
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("round", range(5))
def test_a_fetch_beside_a_destroy_gives_a_real_message_or_none(
    server: AnyServer, graph: Graph, threads: ThreadPoolExecutor, round: int
) -> None:
    """CONTRACT 34: never garbage, whenever it lands."""
    number, wanted = channel(server, backend(server)), expected(graph)
    server.start_new_epoch_sampling(number, 0)
    enough = threading.Event()

    def fetch_all() -> list[Any]:
        found: list[Any] = []
        while (message := server.fetch_one_sampled_message(number)[0]) is not None:
            found.append(message)
            if len(found) == round:
                enough.set()
        return found

    fetching: Future[list[Any]] = threads.submit(fetch_all)
    if round:
        assert enough.wait(PATIENCE_S)
    server.destroy_sampling_input(number)
    found = digests(fetching.result(PATIENCE_S))
    assert found == wanted[: len(found)]
    assert round <= len(found) <= STEPS


def test_a_batch_that_fails_is_told_and_the_next_one_comes(server: AnyServer) -> None:
    """CONTRACT 20, 34: the error with its words and details, then the rest of the epoch."""
    spec = CustomSpec(sampler=SAMPLER, options={"fails": [1]})
    channel_options = {"batch_size": 80}
    number = channel(server, backend(server, spec=spec), channel_options=channel_options)
    server.start_new_epoch_sampling(number, 0)
    assert server.fetch_one_sampled_message(number)[0] is not None
    with pytest.raises(SamplingError, match="there is no batch 1") as raised:
        server.fetch_one_sampled_message(number)
    assert raised.value.details["attempts"] == 1
    assert server.fetch_one_sampled_message(number)[0] is not None
    assert server.fetch_one_sampled_message(number) == (None, True)


@pytest.mark.usefixtures("no_leaks")
def test_a_fetch_waits_no_longer_than_it_may(graph: Graph, pool: HubProcess, gate: Gate) -> None:
    """CONTRACT 62: `request_timeout`; the batch comes by another fetch."""
    options: dict[str, Any] = {"samplers": (SAMPLER,), "request_timeout": 0.05}
    with DistServer(graph, pool, **options) as server:
        number = channel(server, backend(server, spec=gate.spec))
        server.start_new_epoch_sampling(number, 0)
        with pytest.raises(TimeoutError, match="setting: request_timeout"):
            server.fetch_one_sampled_message(number)
        gate.open()
        server.request_timeout = PATIENCE_S
        message, _ = server.fetch_one_sampled_message(number)
        assert message is not None
        assert message.index == 0


@pytest.mark.usefixtures("no_leaks")
def test_the_hubs_death_is_not_noticed(graph: Graph) -> None:
    """CONTRACT 22, 34: another one is started, and the messages are those that were due."""
    with DistServer(graph, num_workers=1) as server:
        number = channel(server, backend(server))
        server.start_new_epoch_sampling(number, 0)
        found = [server.fetch_one_sampled_message(number)[0] for _ in range(3)]
        assert isinstance(server.hub, HubProcess)
        assert strike(server.hub.pid)
        while (message := server.fetch_one_sampled_message(number)[0]) is not None:
            found.append(message)
        assert digests([each for each in found if each is not None]) == expected(graph)


# --- sessions --------------------------------------------------------------------------------


def test_what_a_session_made_goes_with_it(itself: DistServer) -> None:
    """CONTRACT 40: channels of the rank that vanished, and the backend that only it used."""
    mine, other = (RemoteDistServer(AsBytes(itself, caller)) for caller in (1, 2))
    number = channel(mine, backend(mine))
    neighbour = channel(other, backend(other))
    mine.start_new_epoch_sampling(number, 0)
    farewell(itself, 1)
    with pytest.raises(ChannelClosed, match="when the connection of its rank ended"):
        mine.fetch_one_sampled_message(number)  # this is not the end of the epoch
    assert len(messages(other, neighbour)) == STEPS
    farewell(itself, 2)
    assert itself.statistics()["backends"] == {}


def test_a_channel_is_nobody_elses(itself: DistServer) -> None:
    """Its number is no secret."""
    mine, other = (RemoteDistServer(AsBytes(itself, caller)) for caller in (1, 2))
    number = channel(mine, backend(mine))
    for meddle in (
        lambda: other.start_new_epoch_sampling(number, 5),
        lambda: other.fetch_one_sampled_message(number),
        lambda: other.is_channel_epoch_done(number, 0),
        lambda: other.destroy_sampling_input(number),
    ):
        with pytest.raises(PenstockError, match=f"channel {number} was not opened by this conn"):
            meddle()
    mine.start_new_epoch_sampling(number, 0)
    assert len(messages(mine, number)) == STEPS
    mine.destroy_sampling_input(number)
    other.destroy_sampling_input(number)  # it has gone, for everybody
    farewell(itself, 1)


def test_a_backend_without_channels_goes_with_the_last_who_asked_for_it(
    itself: DistServer,
) -> None:
    """CONTRACT 40: a rank may vanish between its backend and its channel."""
    ranks = [RemoteDistServer(AsBytes(itself, caller)) for caller in (1, 2)]
    made = {backend(rank) for rank in ranks}
    assert len(made) == 1
    farewell(itself, 1)
    assert len(itself.statistics()["backends"]) == 1
    farewell(itself, 2)
    assert itself.statistics()["backends"] == {}


def test_a_server_that_ends_lets_go_of_who_is_waiting(
    itself: DistServer, gate: Gate, threads: ThreadPoolExecutor
) -> None:
    """CONTRACT 39: it waits for no client; they are told, and it says what they had."""
    number = channel(itself, backend(itself, spec=gate.spec), worker_key="rank 3")
    itself.start_new_epoch_sampling(number, 0)
    gate.wait_for_a_batch()
    waiting = threads.submit(itself.fetch_one_sampled_message, number)
    left = itself.close()
    assert (left.backends, left.channels) == (("k",), ("rank 3",))
    assert waiting.result(PATIENCE_S) == (None, True)
    assert itself.close() == left
    for ask in (lambda: backend(itself), lambda: channel(itself, 1)):
        with pytest.raises(ChannelClosed, match="the server has ended"):
            ask()
    gate.open()


def test_a_server_that_ends_while_a_backend_is_made_lets_go_of_that_too(
    itself: DistServer, making: Making, threads: ThreadPoolExecutor
) -> None:
    """CONTRACT 29, 39: whoever makes it is told."""
    first = threads.submit(backend, itself)
    assert making.begun.wait(PATIENCE_S)
    itself.close()
    making.go_on.set()
    with pytest.raises(ChannelClosed, match="the server has ended"):
        first.result(PATIENCE_S)
    assert itself.statistics()["backends"] == {}
