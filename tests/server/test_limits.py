"""What a server has no room for is refused in words that name the setting."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.client.remote.dist_server import RemoteDistServer
from penstock.errors import Overloaded
from penstock.graph import Graph
from penstock.options import Limits
from penstock.rpc.endpoint import Endpoint
from penstock.rpc.server import RemoteServer
from penstock.sampling.spec import CustomSpec, Feed
from penstock.server.serving import Server, serve
from penstock.wire.messages import Call, Refused, Register, Unregister
from penstock.wire.payload import pack
from penstock.wire.requests import SamplerInput
from tests.client.graphs import SPEC, backend_of, digests, expected, rest
from tests.processes import until
from tests.server.ranks import BareRank
from tests.server.stores import backend, channel
from tests.wishes import register

Ranks = Callable[..., BareRank]
SMALL = Limits(
    max_sessions=4,
    max_channels=2,
    max_input_bytes=1000,
    max_inputs_bytes=1500,
    max_batch_bytes=1 << 20,
    max_arena_bytes=512 << 20,
    max_calls=2,
    max_call_bytes=1000,
    max_answer_bytes=1000,
)
SAMPLER = "tests.client.samplers:Stars"


@pytest.fixture(scope="module")
def server(graph: Graph, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A small one."""
    folder = tmp_path_factory.mktemp("seeds")
    np.save(folder / "few.npy", np.arange(20))
    np.save(folder / "many.npy", np.arange(200))
    np.save(folder / "floats.npy", np.zeros(4))
    (folder / "text.npy").write_text("no array")
    (folder / "way_out.npy").symlink_to(Path(__file__))
    (folder / "way_round.npy").symlink_to(folder / "few.npy")
    with serve(graph, num_workers=1, limits=SMALL, files=[folder], samplers=[SAMPLER]) as served:
        yield served


def refused(rank: BareRank, setting: str) -> None:
    with pytest.raises(Overloaded, match=f"setting: {setting}"):
        raise rank.refusal()


def test_one_session_too_many_is_refused_and_the_others_stay(rank: Ranks) -> None:
    there = [rank() for _ in range(4)]
    last = rank(greeted=False)
    last.hello()
    refused(last, "max_sessions")
    assert last.waits_for_end() == []
    assert [one.call("ping") for one in there] == [(None, {})] * 4
    there[0].goodbye()
    until(lambda: _gets_in(rank(greeted=False)), "there is room again")


def _gets_in(visitor: BareRank) -> bool:
    visitor.hello()
    return not isinstance(visitor.hear_any()[0], Refused)


def test_one_channel_too_many_is_refused_until_another_goes(rank: Ranks, server: Server) -> None:
    first, second, third = rank(), rank(), rank()
    first.register(split="train")
    second.register(split="train")
    third.ask_to_register(split="train")
    refused(third, "max_channels")
    first.say(Unregister(channel=first.channel))
    until(lambda: server.statistics().channels == 1, "one has gone")
    third.register(split="train", request=2)


def test_channels_by_calls_and_those_of_loaders_count_together(
    rank: Ranks, server: Server, key: str
) -> None:
    """CONTRACT 53: a rank has no more by one way than by the other."""
    reader, other = rank(), rank()
    reader.register(split="train")
    with closing(RemoteServer(Endpoint(server.address))) as store:
        calls = RemoteDistServer(store)
        made = backend(calls, key)
        number = channel(calls, made)
        assert server.statistics().channels == 2
        with pytest.raises(Overloaded, match="setting: max_channels"):
            channel(calls, made)
        other.ask_to_register(split="train")
        refused(other, "max_channels")
        calls.destroy_sampling_input(number)
        other.register(split="train", request=2)
        with pytest.raises(Overloaded, match="setting: max_channels"):
            channel(calls, backend(calls, key))
    other.goodbye()
    until(lambda: server.statistics().channels == 1, "one has gone")


def test_a_channel_that_could_not_be_opened_does_not_count(server: Server, key: str) -> None:
    """CONTRACT 32: nor do its inputs."""
    with closing(RemoteServer(Endpoint(server.address))) as store:
        calls = RemoteDistServer(store)
        made = backend(calls, key)
        for _ in range(3):
            with pytest.raises(ValueError, match="batch_size"):
                channel(
                    calls, made, SamplerInput(ids=np.arange(100)), channel_options={"batch_size": 0}
                )
        assert server.statistics().channels == 0
        assert server.statistics().input_bytes == 0


@pytest.mark.parametrize(
    ("wish", "setting"),
    [
        ({"buffer_size": "64GB"}, "max_batch_bytes"),
        ({"channel_options": {"batch_size": 16, "max_batch_bytes": "2MB"}}, "max_batch_bytes"),
        ({"buffer_size": "900MB", "buffer_capacity": 1000}, "max_arena_bytes"),
    ],
)
def test_memory_for_batches_is_bounded_also_for_calls(
    server: Server, key: str, wish: dict[str, Any], setting: str
) -> None:
    """CONTRACT 53: one batch, and the slots of all channels together."""
    with closing(RemoteServer(Endpoint(server.address))) as store:
        calls = RemoteDistServer(store)
        with pytest.raises(Overloaded, match=f"setting: {setting}"):
            channel(calls, backend(calls, key), **wish)


def test_the_names_of_arrays_count_too(rank: Ranks, server: Server) -> None:
    """CONTRACT 53, CONTRACT 73: of arrays without a byte there may be thousands."""
    layouts = pack({f"{'name' * 40}{number}": np.empty(0) for number in range(1000)}).arrays
    wordy = rank()
    wordy.say(Call(request=1, verb="get_node_label", arrays=layouts))
    with pytest.raises(Overloaded, match="setting: max_call_bytes"):
        raise wordy.refusal()


def test_slots_of_loaders_are_bounded_too(rank: Ranks) -> None:
    """CONTRACT 53"""
    reader = rank()
    reader.say(_register(slots=1000, buffer_size=1000 << 20, split="train"))
    refused(reader, "max_arena_bytes")


@pytest.mark.parametrize("nbytes", [1001, 1 << 60])
def test_inputs_are_refused_before_memory_is_reserved(
    rank: Ranks, server: Server, nbytes: int
) -> None:
    reader = rank()
    reader.announce(_register(), nbytes)
    refused(reader, "max_input_bytes")
    assert server.statistics().input_bytes == 0


def test_inputs_that_were_refused_are_skipped_and_others_may_follow(
    rank: Ranks, graph: Graph
) -> None:
    reader = rank()
    reader.ask_to_register(arrays={"ids": np.arange(200)})
    refused(reader, "max_input_bytes")
    reader.register(arrays={"ids": np.arange(100)}, request=2)
    reader.start()
    assert reader.read() == expected(graph, inputs=np.arange(100))


def test_inputs_of_all_channels_together_are_bounded(rank: Ranks, server: Server) -> None:
    first, second = rank(), rank()
    first.register(arrays={"ids": np.arange(120)})
    assert server.statistics().input_bytes == 960
    second.ask_to_register(arrays={"ids": np.arange(120)})
    refused(second, "max_inputs_bytes")
    first.goodbye()
    until(lambda: server.statistics().input_bytes == 0, "they are let go of")
    second.register(arrays={"ids": np.arange(120)}, request=2)


def test_a_batch_larger_than_allowed_is_not_promised(rank: Ranks) -> None:
    reader = rank()
    reader.say(_register(max_batch_bytes=1 << 30, split="train"))
    refused(reader, "max_batch_bytes")


def test_calls_are_bounded_in_number(rank: Ranks) -> None:
    waits = rank()
    for request in (1, 2):  # they are not answered for a while
        waits.say(Call(request=request, verb="wait_for_exit", arguments={"timeout": 50.0}))
    waits.say(Call(request=3, verb="get_node_types"))
    refused(waits, "max_calls")
    assert waits.call("ping") == (None, {})


def test_arguments_of_calls_are_bounded(rank: Ranks) -> None:
    """What was refused is skipped; the next call is answered."""
    asks = rank()
    packed = pack({"ids": np.arange(200)})
    asks.say(Call(request=1, verb="get_node_types", arrays=packed.arrays), packed.views)
    refused(asks, "max_call_bytes")
    assert asks.call("get_node_types") == (None, {})


def test_arguments_that_are_no_arrays_count_as_what_they_take_once_they_are_read(
    rank: Ranks,
) -> None:
    """CONTRACT 73: a byte of a message may become an empty list."""
    asks = rank()
    asks.say(Call(request=1, verb="get_node_types", arguments={"x": [[]] * 5000}))
    refused(asks, "max_call_bytes")
    assert asks.call("get_node_types") == (None, {})


def test_an_answer_larger_than_allowed_is_refused(rank: Ranks) -> None:
    with pytest.raises(ValueError, match="max_answer_bytes"):
        rank().call("get_node_ids", split="train")


# --- files and samplers -------------------------------------------------------------------------


@pytest.mark.parametrize("file", ["few.npy", "way_round.npy"])
def test_a_file_the_server_may_read_gives_the_inputs(
    rank: Ranks, server: Server, graph: Graph, file: str
) -> None:
    """CONTRACT 58"""
    reader = rank()
    reader.register(file=file)
    assert server.statistics().input_bytes == 160
    reader.start()
    assert reader.read() == expected(graph, inputs=np.arange(20))


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("many.npy", "max_input_bytes"),
        ("floats.npy", "integers"),
        ("text.npy", "text.npy"),
        ("way_out.npy", "in none of"),
        ("../few.npy", "in none of"),
        ("/etc/passwd", "in none of"),
        ("there is none.npy", "in none of"),
        ("nul\0.npy", "in none of"),
    ],
)
def test_other_files_are_not(rank: Ranks, file: str, words: str) -> None:
    """CONTRACT 58"""
    reader = rank()
    reader.ask_to_register(file=file)
    with pytest.raises((ValueError, Overloaded), match=words):
        raise reader.refusal()


def test_a_users_sampler_runs_if_the_server_was_started_with_it(rank: Ranks, graph: Graph) -> None:
    """CONTRACT 64"""
    spec = CustomSpec(sampler=SAMPLER)
    reader = rank()
    reader.register(spec=spec, split="train", workers=1)
    reader.start()
    with backend_of(graph, spec, num_workers=0) as backend:
        backend.register_input("own", "train", batch_size=16, shuffle=True, seed=7)
        backend.start_new_epoch_sampling("own", 0)
        assert reader.read() == digests(rest(backend, "own"))


def test_a_limit_that_is_none_is_refused() -> None:
    for name in Limits.__struct_fields__:
        with pytest.raises(ValueError, match=f"{name} is 0"):
            Limits(**{name: 0})


def _register(**fields: Any) -> Register:
    return register(request=1, spec=SPEC, feed=Feed(num_inputs=0, batch_size=16), **fields)
