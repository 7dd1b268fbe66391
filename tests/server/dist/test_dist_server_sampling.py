"""Backends and channels of a `DistServer`: in process and over a wire, the same."""

from __future__ import annotations

import logging
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from penstock.graph import Graph
from penstock.sampling.spec import NeighborSpec
from penstock.server.dist.dist_server import DistServer
from penstock.wire.requests import SamplerInput
from tests.client.graphs import NODES, STEPS, TERMS, TRAIN, expected
from tests.processes import until
from tests.server.stores import AnyServer, backend, channel, digests, messages


@pytest.fixture
def server(both: tuple[AnyServer, DistServer]) -> AnyServer:
    """A server that other tests have used, and will."""
    return both[0]


# --- what a channel gives --------------------------------------------------------------------


def test_messages_are_those_of_an_embedded_backend(
    server: AnyServer, key: str, graph: Graph
) -> None:
    """CONTRACT 5, 32, 34: byte for byte, every batch of the epoch once, then (None, True)."""
    number = channel(server, backend(server, key))
    assert digests(messages(server, number)) == expected(graph)
    assert server.fetch_one_sampled_message(number) == (None, True)
    assert digests(messages(server, number, 3)) == expected(graph, 3)
    server.destroy_sampling_input(number)


def test_an_epoch_that_is_not_newer_is_ignored(server: AnyServer, key: str, graph: Graph) -> None:
    """CONTRACT 10: the epoch goes on where it was."""
    number = channel(server, backend(server, key))
    server.start_new_epoch_sampling(number, 1)
    first, _ = server.fetch_one_sampled_message(number)
    server.start_new_epoch_sampling(number, 1)
    server.start_new_epoch_sampling(number, 0)
    second, _ = server.fetch_one_sampled_message(number)
    assert first is not None
    assert second is not None
    assert digests([first, second]) == expected(graph, 1)[:2]
    server.destroy_sampling_input(number)


def test_an_epoch_may_begin_in_its_middle(server: AnyServer, key: str, graph: Graph) -> None:
    """CONTRACT 6: as a rank does that resumes."""
    number = channel(server, backend(server, key))
    server.start_new_epoch_sampling(number, 0, first_step=STEPS - 1)
    message, _ = server.fetch_one_sampled_message(number)
    assert message is not None
    assert digests([message]) == expected(graph)[-1:]
    server.destroy_sampling_input(number)


def test_an_epoch_is_done_when_all_its_batches_have_come(server: AnyServer, key: str) -> None:
    """CONTRACT 26, 34: false for one never started."""
    number = channel(server, backend(server, key))
    assert not server.is_channel_epoch_done(number, 0)
    messages(server, number)
    assert server.is_channel_epoch_done(number, 0)
    assert not server.is_channel_epoch_done(number, 1)
    server.destroy_sampling_input(number)


def test_a_fetch_before_any_epoch_is_an_error(server: AnyServer, key: str) -> None:
    """CONTRACT 34: not the end of an epoch that never began."""
    number = channel(server, backend(server, key))
    with pytest.raises(ValueError, match="no epoch: start one first"):
        server.fetch_one_sampled_message(number)
    server.destroy_sampling_input(number)


# --- 30, 31 ----------------------------------------------------------------------------------


def test_the_same_key_is_the_same_backend(server: AnyServer, key: str) -> None:
    """CONTRACT 30: one id; another key is another backend."""
    first = backend(server, key)
    assert backend(server, key) == first
    other = backend(server, key + "'")
    assert other > first
    for number in (first, other):
        server.destroy_sampling_input(channel(server, number))


def test_the_same_key_with_another_config_is_refused(server: AnyServer, key: str) -> None:
    """CONTRACT 25, 30: who shares a key shares the way of sampling."""
    number = backend(server, key)
    with pytest.raises(ValueError, match="that of backend 'key"):
        backend(server, key, NeighborSpec(num_neighbors=(1,)))
    server.destroy_sampling_input(channel(server, number))


def test_callers_of_one_key_at_once_get_one_backend(
    both: tuple[AnyServer, DistServer], key: str
) -> None:
    """CONTRACT 30: the first makes it, the others wait for it."""
    server, _ = both
    with ThreadPoolExecutor(8) as threads:
        numbers = set(threads.map(lambda _: backend(server, key), range(8)))
    assert len(numbers) == 1
    server.destroy_sampling_input(channel(server, numbers.pop()))


def test_a_backend_that_cannot_be_made_may_be_tried_again(server: AnyServer, key: str) -> None:
    """CONTRACT 30: the error is the caller's, and the key is free."""
    with pytest.raises(ValueError, match="weight_attr"):
        backend(server, key, NeighborSpec(num_neighbors=(2,), weight_attr="nothing"))
    server.destroy_sampling_input(channel(server, backend(server, key)))


def test_after_its_end_a_key_has_a_new_number(server: AnyServer, key: str) -> None:
    """CONTRACT 30, 31, 33: the last channel takes the backend along; ids are not used again."""
    first = backend(server, key)
    numbers = [channel(server, first) for _ in range(2)]
    server.destroy_sampling_input(numbers[0])
    assert backend(server, key) == first
    server.destroy_sampling_input(numbers[1])
    with pytest.raises(KeyError, match="torn down with its last channel"):
        channel(server, first)
    second = backend(server, key)
    assert second > first
    third = channel(server, second)
    assert third > max(numbers)
    server.destroy_sampling_input(third)


def test_an_id_from_before_a_restart_is_recognised(
    server: AnyServer, key: str, graph: Graph
) -> None:
    """CONTRACT 31: in its own words, for backends and channels."""
    with DistServer(graph, num_workers=0) as before:
        old = backend(before, key)
        old_channel = channel(before, old)
    for ask in (
        lambda: channel(server, old),
        lambda: server.fetch_one_sampled_message(old_channel),
        lambda: server.start_new_epoch_sampling(old_channel, 0),
    ):
        with pytest.raises(KeyError, match="from before the server was started again"):
            ask()
    server.destroy_sampling_input(old_channel)  # which is no mistake


# --- 32 --------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [0, 5, -3, 1 << 62])
def test_an_unknown_backend_is_a_key_error(server: AnyServer, number: int) -> None:
    """CONTRACT 32."""
    with pytest.raises(KeyError, match=str(number)):
        channel(server, number)


def test_the_number_of_a_channel_is_not_taken_for_a_backends(server: AnyServer, key: str) -> None:
    """CONTRACT 31, 32: nor the other way round."""
    made = backend(server, key)
    number = channel(server, made)
    with pytest.raises(KeyError, match="no backend"):
        channel(server, number)
    with pytest.raises(KeyError, match="no channel"):
        server.fetch_one_sampled_message(made)
    server.destroy_sampling_input(number)


def test_empty_inputs_cost_no_memory(both: tuple[AnyServer, DistServer], key: str) -> None:
    """CONTRACT 11, 32: no page of its slots is touched; every epoch is over at once."""
    server, itself = both
    until(lambda: _hub(itself)["channels"] == 0, "the channels of other tests are gone")
    made = backend(server, key)
    before = _hub(itself)["arena_resident"]
    number = channel(server, made, SamplerInput(ids=np.array([], np.int64)))
    assert _hub(itself)["arena_resident"] == before
    assert messages(server, number) == []
    assert server.is_channel_epoch_done(number, 0)
    server.destroy_sampling_input(number)


@pytest.mark.parametrize(
    ("given", "fields", "words"),
    [
        (SamplerInput(ids=np.array([3, NODES])), {}, f"is {NODES}; expected 0 <= id"),
        (SamplerInput(split="val"), {}, "no split called 'val'"),
        (SamplerInput(ids=np.arange(3), split="train"), {}, "ids and split: give only one of them"),
        (SamplerInput(node_type="user"), {}, "this graph has no types"),
        (None, {"channel_options": {"batch_size": 0}}, "batch_size"),
        (None, {"buffer_size": "64 stones"}, "buffer_size is '64 stones'"),
        (None, {"sampling_config": NeighborSpec(num_neighbors=(9,))}, "this backend's is"),
    ],
)
def test_a_failed_registration_leaves_nothing_behind(
    both: tuple[AnyServer, DistServer], key: str, given: Any, fields: dict[str, Any], words: str
) -> None:
    """CONTRACT 25, 32: the backend is as it was, with no channel more."""
    server, itself = both
    made = backend(server, key)
    with pytest.raises(ValueError, match=words):
        channel(server, made, given, **fields)
    assert itself.statistics()["backends"][str(made)]["channels"] == 0
    until(lambda: _hub(itself)["channels"] == 0, "the hub has no channel")
    assert backend(server, key) == made
    server.destroy_sampling_input(channel(server, made))


def test_sizes_are_bytes_or_text(server: AnyServer, key: str, graph: Graph) -> None:
    """CONTRACT 62: `buffer_capacity`, `buffer_size` as "4MB", `worker_key`."""
    made = backend(server, key)
    number = channel(server, made, buffer_capacity=2, buffer_size="4MB", worker_key="trainer 3")
    assert digests(messages(server, number)) == expected(graph)
    assert server.statistics()["channels"][str(number)]["worker_key"] == "trainer 3"
    server.destroy_sampling_input(number)


# --- 33 --------------------------------------------------------------------------------------


def test_destroying_is_idempotent(server: AnyServer, key: str) -> None:
    """CONTRACT 33: again, and for numbers nobody has: nothing."""
    number = channel(server, backend(server, key))
    for each in (number, number, 3, 1 << 61):
        server.destroy_sampling_input(each)


def test_a_destroyed_channel_has_no_more_messages(server: AnyServer, key: str) -> None:
    """CONTRACT 10, 33, 34: in the middle of its epoch; starting it again does nothing."""
    number = channel(server, backend(server, key))
    server.start_new_epoch_sampling(number, 0)
    server.fetch_one_sampled_message(number)
    server.destroy_sampling_input(number)
    assert server.fetch_one_sampled_message(number) == (None, True)
    server.start_new_epoch_sampling(number, 1)
    assert server.fetch_one_sampled_message(number) == (None, True)
    assert server.is_channel_epoch_done(number, 0)


def test_destroying_one_channel_leaves_its_neighbour_alone(
    server: AnyServer, key: str, graph: Graph
) -> None:
    """CONTRACT 33."""
    made = backend(server, key)
    mine, other = channel(server, made), channel(server, made)
    server.start_new_epoch_sampling(mine, 0)
    server.start_new_epoch_sampling(other, 0)
    server.destroy_sampling_input(other)
    assert digests(messages(server, mine)) == expected(graph)
    server.destroy_sampling_input(mine)


# --- 34 --------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [0, 7, -1, 1 << 62])
def test_a_number_never_given_is_an_error(server: AnyServer, number: int) -> None:
    """CONTRACT 34: a fetch is not told that an epoch is over that never was."""
    with pytest.raises(KeyError, match=str(number)):
        server.fetch_one_sampled_message(number)
    with pytest.raises(KeyError, match=str(number)):
        server.is_channel_epoch_done(number, 0)


def test_several_threads_may_fetch_from_one_channel(
    both: tuple[AnyServer, DistServer], key: str, graph: Graph
) -> None:
    """CONTRACT 34: every message goes to one of them."""
    server, _ = both
    number = channel(server, backend(server, key))
    server.start_new_epoch_sampling(number, 0)
    found: list[Any] = []

    def fetch_all() -> None:
        while (message := server.fetch_one_sampled_message(number)[0]) is not None:
            found.append(message)

    threads = [threading.Thread(target=fetch_all) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(digests(found)) == expected(graph)
    server.destroy_sampling_input(number)


# --- seeing ----------------------------------------------------------------------------------


def test_what_it_does_is_told_in_numbers_and_in_a_line(server: AnyServer, key: str) -> None:
    """CONTRACT 54, 57: backends, channels, fetches; the scheduler's line with it."""
    number = channel(server, backend(server, key))
    messages(server, number)
    told = server.statistics()["channels"][str(number)]
    assert (told["epoch"], told["messages"], told["fetching"]["count"]) == (0, STEPS, STEPS)
    assert "1 backends, 1 channels" in server.describe()
    assert "registered" in server.describe()
    until(lambda: _hub(server)["channels"] == 1, "the hub has one channel")
    server.destroy_sampling_input(number)


def test_fetches_are_reported_every_n(
    graph: Graph, key: str, caplog: pytest.LogCaptureFixture
) -> None:
    """CONTRACT 56, 62: `log_every_n`; each line is about the last n, with the worker's key."""
    with DistServer(graph, num_workers=0, log_every_n=5) as server, caplog.at_level(logging.INFO):
        number = channel(server, backend(server, key), worker_key="trainer 3")
        messages(server, number)
        told = server.statistics()["channels"][str(number)]
    lines = [each for each in caplog.messages if "fetches, " in each]
    assert len(lines) == TRAIN // TERMS["batch_size"] // 5
    words = (
        rf"channel {number}, worker_key 'trainer 3': 5 fetches, .* on average, .* at most, 0 slow"
    )
    assert all(re.fullmatch(words, line) for line in lines), lines
    assert (told["worker_key"], told["fetching"]["window"]["count"]) == ("trainer 3", 5)


def test_nothing_is_left_of_it_all(both: tuple[AnyServer, DistServer]) -> None:
    """CONTRACT 32, 33: after all that, the server has no channel, and its hub neither."""
    _, itself = both
    assert itself.statistics()["channels"] == {}
    until(lambda: _hub(itself)["channels"] == 0, "the hub has no channel")


def _hub(server: AnyServer) -> dict[str, Any]:
    """What the hub counts: a channel destroyed in mid-epoch until its worker has answered."""
    found: dict[str, Any] = server.hub_statistics()["hub"]
    return found
