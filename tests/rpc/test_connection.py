"""The rank's end of a connection: what it says, hears, and makes of a server that misbehaves."""

from __future__ import annotations

import gc
import os
import select
import socket
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from penstock.errors import Overloaded, ProtocolError
from penstock.rpc import link
from penstock.rpc.buffer_pool import BufferPool
from penstock.rpc.connection import RemoteConnection
from penstock.rpc.deadline import Deadline
from penstock.rpc.endpoint import Endpoint
from penstock.wire.framing import CHUNK, HEADER, PREAMBLE, encode, head
from penstock.wire.messages import (
    EpochDone,
    Goodbye,
    Heartbeat,
    Hello,
    Leaving,
    Message,
    Refused,
    Register,
    Registered,
    Report,
    ReturnSlot,
    StartEpoch,
)
from penstock.wire.payload import NOTHING, pack
from tests.processes import until
from tests.rpc.puppets import (
    CHANNEL,
    LARGE,
    MOST_BYTES,
    PATIENCE_S,
    REGISTER,
    Puppet,
    a_channel,
    chunk,
    frames,
    greeted,
    opened,
    ready,
    registered,
    soon,
)


def batches_of(connection: RemoteConnection, count: int = 1) -> list[tuple[Any, bytes]]:
    """The next batches, and their bytes."""
    found: list[tuple[Any, bytes]] = []
    while len(found) < count:
        connection.wait(soon())
        found += [(message, bytes(memory)) for message, memory in connection.receive()]
    assert len(found) == count
    return found


def batch_of(connection: RemoteConnection) -> tuple[Any, bytes]:
    """The next batch, and its bytes."""
    (found,) = batches_of(connection)
    return found


# --- the first messages --------------------------------------------------------------------------


def answered(server: Puppet, threads: ThreadPoolExecutor, answer: Message) -> Future[Any]:
    """What opening a connection comes to, if the server answers so."""
    opening = threads.submit(RemoteConnection.open, server.endpoint, soon())
    server.hear(Hello)
    server.say(answer)
    return opening


def test_a_welcome_tells_of_the_graph(server: Puppet) -> None:
    with greeted(server) as connection:
        assert connection.welcome.boot == "first"
        assert connection.welcome.outline is not None
        assert connection.welcome.outline.schema.nodes[0].num_nodes == 400


def test_another_protocol_is_refused(server: Puppet, threads: ThreadPoolExecutor) -> None:
    opening = answered(server, threads, server.welcome(protocol=99))
    with pytest.raises(ProtocolError, match="speaks protocol 99"):
        opening.result(PATIENCE_S)


def test_a_refusal_is_raised_as_what_it_says(server: Puppet, threads: ThreadPoolExecutor) -> None:
    report = Report(kind="Overloaded", message="there are 3 sessions (setting: max_sessions)")
    opening = answered(server, threads, Refused(request=0, report=report))
    with pytest.raises(Overloaded, match="max_sessions"):
        opening.result(PATIENCE_S)


def test_a_server_that_does_not_answer_is_not_waited_for_for_ever(server: Puppet) -> None:
    with pytest.raises(TimeoutError):
        RemoteConnection.open(server.endpoint, Deadline(0.1))


def test_nobody_there_is_told_at_once_with_the_reason() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        endpoint = Endpoint(f"tcp://127.0.0.1:{free.getsockname()[1]}")
        with pytest.raises(ConnectionError, match="refused"):
            RemoteConnection.open(endpoint, soon())


def test_a_host_that_nobody_knows_is_told_at_once() -> None:
    with pytest.raises(ConnectionError, match=r"'nowhere\.invalid' is not known"):
        RemoteConnection.open(Endpoint("tcp://nowhere.invalid:5555"), soon())


@pytest.mark.parametrize(
    "address", ["tcp://", "tcp://host", "host:5", "tcp://host:0", 5, "tcp://a:b"]
)
def test_what_is_no_address_is_refused(address: Any) -> None:
    with pytest.raises(ValueError, match="expected 'tcp://host:port'"):
        Endpoint(address)


def test_who_answers_and_is_no_server_of_ours_is_told_from_one(
    server: Puppet, threads: ThreadPoolExecutor
) -> None:
    opening = threads.submit(RemoteConnection.open, server.endpoint, soon())
    server.hear(Hello)
    server.say_raw(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    with pytest.raises(ProtocolError, match="no connection of Penstock's"):
        opening.result(PATIENCE_S)


@pytest.mark.parametrize("lease", [0.0, -1.0, float("nan")])
def test_a_lease_that_makes_no_sense_is_refused(
    server: Puppet, threads: ThreadPoolExecutor, lease: float
) -> None:
    opening = answered(server, threads, server.welcome(lease=lease))
    with pytest.raises(ProtocolError, match="lease"):
        opening.result(PATIENCE_S).close()


# --- batches -------------------------------------------------------------------------------------


def test_a_batch_comes_with_its_bytes(server: Puppet) -> None:
    with registered(server) as connection:
        server.say(ready(10), b"0123456789")
        assert batch_of(connection) == (ready(10), b"0123456789")


def test_a_batch_of_many_chunks_comes_as_one(server: Puppet) -> None:
    data = os.urandom(3 * CHUNK + 1)
    with registered(server) as connection:
        server.say(ready(len(data)), data)
        assert batch_of(connection) == (ready(len(data)), data)


def test_a_batch_that_comes_byte_by_byte_is_put_together(server: Puppet) -> None:
    with registered(server) as connection:
        for byte in b"".join(frames(ready(10), b"0123456789")):
            server.say_raw(bytes((byte,)))
        assert batch_of(connection) == (ready(10), b"0123456789")


def test_batches_that_come_in_one_go_are_told_apart(server: Puppet) -> None:
    steps = [ready(step, step=step) for step in range(20)]
    with registered(server) as connection:
        server.say_raw(
            b"".join(frame for said in steps for frame in frames(said, b"x" * said.nbytes))
        )
        assert batches_of(connection, 20) == [(said, b"x" * said.nbytes) for said in steps]


def test_chunks_of_two_lanes_may_alternate(server: Puppet) -> None:
    """The one that is complete first is there first."""
    long, short = os.urandom(3 * CHUNK), os.urandom(2 * CHUNK)
    first, second = ready(len(long)), ready(len(short), step=1, slot=1)
    a, b = list(frames(first, long, lane=0)), list(frames(second, short, lane=5))
    with registered(server) as connection:
        for frame in (a[0], b[0], a[1], b[1], a[2]):
            server.say_raw(frame)
        assert batches_of(connection, 2) == [(second, short), (first, long)]


def test_a_small_message_overtakes_a_batch_in_another_lane(server: Puppet) -> None:
    data = os.urandom(2 * CHUNK)
    begin, rest = frames(ready(len(data)), data, lane=1)
    with registered(server) as connection:
        server.say_raw(begin)
        server.say(ready(0, step=1, slot=1))
        assert batch_of(connection)[0].batch.step == 1
        server.say_raw(rest)
        assert batch_of(connection) == (ready(len(data)), data)


def test_a_batch_without_bytes_needs_no_payload(server: Puppet) -> None:
    with registered(server) as connection:
        server.say(ready(0))
        assert batch_of(connection) == (ready(0), b"")


def test_what_has_come_can_be_waited_for_until_it_is_taken(server: Puppet) -> None:
    """The descriptor stays readable, however the reader takes its turns."""
    with registered(server) as connection:

        def is_readable(patience: float = 0.0) -> bool:
            return bool(select.select([connection], [], [], patience)[0])

        for step in range(3):
            server.say(ready(0, step=step))
            assert is_readable(PATIENCE_S)
            connection.wait(soon())
            assert is_readable()
        assert [message.batch.step for message, _ in batches_of(connection, 3)] == [0, 1, 2]
        until(lambda: connection.receive() == [] and not is_readable(), "there is no news")


def test_memory_is_used_again_when_a_batch_has_gone(server: Puppet) -> None:
    """And never while somebody looks at it."""
    with registered(server) as connection:

        def memory_of_the_next() -> Any:
            server.say(ready(1000), bytes(1000))
            connection.wait(soon())
            ((_, memory),) = connection.receive()
            return memory

        first, second = memory_of_the_next(), memory_of_the_next()
        places = {first.ctypes.data, second.ctypes.data}
        assert len(places) == 2
        del first, second
        pool = connection._link._batches
        assert pool is not None
        until(lambda: len(pool._kept) == 2, "both are back")
        assert memory_of_the_next().ctypes.data in places


# --- what makes no sense -------------------------------------------------------------------------


def said_in_vain(server: Puppet, connection: RemoteConnection, *frames: bytes) -> ProtocolError:
    """What the reader is told; nothing of it has come."""
    server.say_raw(b"".join(frames))
    with pytest.raises(ProtocolError) as caught:
        batch_of(connection)
    return caught.value


def test_a_batch_larger_than_was_agreed_reserves_no_memory(
    server: Puppet, monkeypatch: pytest.MonkeyPatch
) -> None:
    lent: list[int] = []
    monkeypatch.setattr(BufferPool, "lend", lambda _, nbytes: lent.append(nbytes))
    with registered(server) as connection:
        body = encode(ready(MOST_BYTES + 1))
        error = said_in_vain(server, connection, head(body, 0, 0, MOST_BYTES + 1))
        assert f"of {MOST_BYTES}" in str(error)
        assert not lent


@pytest.mark.parametrize(("said", "came"), [(10, 9), (10, 11), (10, 0), (0, 10)])
def test_a_payload_of_another_size_than_its_message_says_ends_the_connection(
    server: Puppet, said: int, came: int
) -> None:
    with registered(server) as connection:
        error = said_in_vain(server, connection, *frames(ready(said), bytes(came)))
        assert f"has {said} bytes" in str(error)
        assert f"{came} came" in str(error)


@pytest.mark.parametrize(
    "said",
    [
        EpochDone(channel=CHANNEL, epoch=0, delivered=0, failed=0, cancelled=0),
        Heartbeat(),
        Leaving(reason="it was told to", grace=1.0),
    ],
    ids=lambda said: type(said).__name__,
)
def test_a_payload_beside_what_cannot_have_one_ends_the_connection(
    server: Puppet, said: Message
) -> None:
    with registered(server) as connection:
        error = said_in_vain(server, connection, *frames(said, b"x"))
        assert f"{type(said).__name__} came with a payload" in str(error)


BEGUN = next(frames(ready(CHUNK + 10), bytes(CHUNK + 10), lane=1))


@pytest.mark.parametrize(
    "said",
    [
        [chunk(b"x")],
        [BEGUN, chunk(b"x" * 11, lane=1)],
        [BEGUN, HEADER.pack(0, 0, 1, 0)],
        [BEGUN, chunk(b"x" * 10, lane=2)],
        [BEGUN, chunk(b"x" * 10, lane=1), chunk(b"x", lane=1)],
        [BEGUN, HEADER.pack(0, 0, 1, 1 << 63)],
    ],
    ids=["of nothing", "too long", "empty", "of another lane", "after the last", "huge"],
)
def test_a_chunk_that_belongs_to_no_message_ends_the_connection(
    server: Puppet, said: list[bytes]
) -> None:
    with registered(server) as connection:
        server.say_raw(b"".join(said))
        until(lambda: connection._inbox.failure is not None, "the end is known")
        connection._inbox.kept.clear()  # what was complete before
        with pytest.raises(ProtocolError, match=r"a chunk of \d+ bytes"):
            batch_of(connection)


def test_a_message_in_the_middle_of_a_payload_of_its_lane_ends_the_connection(
    server: Puppet,
) -> None:
    with registered(server) as connection:
        error = said_in_vain(server, connection, BEGUN, head(encode(ready(0)), 0, 1))
        assert "before the payload of the last one" in str(error)


@pytest.mark.parametrize(
    "said",
    [
        head(b"\xc1"),
        head(b"\x81\xa4type\xa5Hello"),
        head(b"x" * 5000),
        head(encode(Hello(protocol=2, pid=1))),
        HEADER.pack(2**32 - 1, 0, 0, 0),
        HEADER.pack(link.MOST_RECEIVED + 1, 0, 0, 0),
        head(encode(ready(0)), 1),
    ],
    ids=["garbage", "no fields", "long", "not for ranks", "huge", "too long", "descriptors"],
)
def test_what_is_no_message_ends_the_connection(server: Puppet, said: bytes) -> None:
    with registered(server) as connection:
        said_in_vain(server, connection, said)


@pytest.mark.parametrize(
    ("nbytes", "words"), [(0, "BatchReady makes no sense now"), (1, "without a channel")]
)
def test_a_batch_on_a_connection_without_a_channel_makes_no_sense(
    server: Puppet, nbytes: int, words: str
) -> None:
    with greeted(server) as connection:
        error = said_in_vain(server, connection, *frames(ready(nbytes), bytes(nbytes)))
        assert words in str(error)


def test_what_was_received_before_nonsense_is_still_read(server: Puppet) -> None:
    with registered(server) as connection:
        server.say(ready(3), b"abc")
        connection.wait(soon())
        server.say_bytes(b"\xc1")
        until(lambda: connection._inbox.failure is not None, "the end is known")
        assert batch_of(connection) == (ready(3), b"abc")
        with pytest.raises(ProtocolError):
            batch_of(connection)


# --- small messages ------------------------------------------------------------------------------


def test_a_slot_goes_back_at_once_from_a_finalizer_in_another_thread(server: Puppet) -> None:
    """CONTRACT 9: also while nobody reads, or else the server would stand still."""
    with registered(server) as connection:

        class Loan:
            pass

        loan = Loan()
        weakref.finalize(loan, connection.post, ReturnSlot(channel=CHANNEL, slot=2))
        held = [loan]
        del loan
        thread = threading.Thread(target=held.clear)
        thread.start()
        thread.join()
        assert server.hear(ReturnSlot).slot == 2


def test_many_threads_post_while_one_reads_and_nothing_is_lost(server: Puppet) -> None:
    threads, each = 8, 200
    with registered(server) as connection:

        def post(number: int) -> None:
            for count in range(each):
                connection.post(ReturnSlot(channel=number, slot=count))

        posting = [threading.Thread(target=post, args=(number,)) for number in range(threads)]
        for thread in posting:
            thread.start()
        for step in range(100):
            server.say(ready(1, step=step), b"x")
        steps = [message.batch.step for message, _ in batches_of(connection, 100)]
        assert steps == list(range(100))
        for thread in posting:
            thread.join()
        heard = [server.hear(ReturnSlot) for _ in range(threads * each)]
        for number in range(threads):
            mine = [message.slot for message in heard if message.channel == number]
            assert mine == list(range(each))


def test_a_post_in_the_middle_of_a_post_is_sent_as_well(server: Puppet) -> None:
    """The garbage collector may run a finalizer anywhere, here too."""
    with registered(server) as connection:

        class Cycle:
            def __init__(self, slot: int) -> None:
                self.me = self
                weakref.finalize(self, connection.post, ReturnSlot(channel=1, slot=slot))

        before = gc.get_threshold()
        gc.set_threshold(1)
        try:
            for slot in range(50):
                Cycle(slot)
                connection.post(ReturnSlot(channel=0, slot=slot))
        finally:
            gc.set_threshold(*before)
        gc.collect()
        heard = [server.hear(ReturnSlot) for _ in range(100)]
        assert sorted(message.slot for message in heard if message.channel == 1) == list(range(50))


def test_what_makes_no_sense_any_more_is_posted_in_vain(server: Puppet) -> None:
    """Finalizers give slots back whenever they run."""
    with greeted(server) as connection:
        connection.post(ReturnSlot(channel=CHANNEL, slot=1))
        connection.close()
        connection.post(ReturnSlot(channel=CHANNEL, slot=2))
        connection.post(StartEpoch(channel=CHANNEL, epoch=0))
        assert server.wait_for_end() == [Goodbye()]


# --- arrays on their way to the server -----------------------------------------------------------


@contextmanager
def upload(server: Puppet, nbytes: int = LARGE) -> Iterator[Future[Any]]:
    """A rank that registers with more than kernels keep, while the server reads nothing."""
    packed = pack({"ids": np.resize(np.arange(251, dtype=np.uint8), nbytes)})
    with greeted(server) as connection, ThreadPoolExecutor(1) as threads:
        coming = threads.submit(connection.register, REGISTER, packed, soon())
        until(lambda: connection._link.pending, "no more goes into the socket")
        yield coming


def test_a_rank_sends_no_more_of_its_arrays_than_the_server_takes(server: Puppet) -> None:
    """CONTRACT 53"""
    with upload(server) as coming:
        register, payload = server.hear_all_of(Register)
        (ids,) = register.arrays
        assert (ids.name, ids.shape) == ("ids", (LARGE,))
        assert payload == np.resize(np.arange(251, dtype=np.uint8), LARGE).tobytes()
        server.say(a_channel(register))
        assert coming.result(PATIENCE_S).channel == CHANNEL


def test_a_rank_that_waits_to_send_more_is_told_of_a_refusal(server: Puppet) -> None:
    with upload(server) as coming:
        server.say(Refused(request=0, report=Report(kind="Overloaded", message="too much")))
        with pytest.raises(Overloaded, match="too much"):
            coming.result(PATIENCE_S)


def test_a_rank_that_waits_to_send_more_is_told_of_its_hubs_end(server: Puppet) -> None:
    with upload(server) as coming:
        server.say(Refused(request=0, report=Report(kind="HubGone", message="over")))
        with pytest.raises(ConnectionError, match="over"):
            coming.result(PATIENCE_S)


def test_a_rank_that_waits_to_send_more_is_told_when_the_server_ends(server: Puppet) -> None:
    with upload(server) as coming:
        server.hang_up()
        with pytest.raises(ConnectionError):
            coming.result(PATIENCE_S)


def test_small_messages_come_after_the_arrays_that_were_sent_before(server: Puppet) -> None:
    """In one lane everything comes in the order in which it was sent."""
    packed = pack({"ids": np.zeros(LARGE, np.uint8)})
    with greeted(server) as connection:
        connection.send(REGISTER, packed)
        connection.send(Heartbeat())
        assert server.hear_all_of(Register)[1] == bytes(LARGE)
        server.hear(Heartbeat)


# --- the end -------------------------------------------------------------------------------------


def test_a_reader_that_waits_is_told_when_the_server_ends(
    server: Puppet, threads: ThreadPoolExecutor
) -> None:
    with registered(server) as connection:
        reading = threads.submit(batch_of, connection)
        server.die()
        with pytest.raises(ConnectionError, match="closed the connection"):
            reading.result(PATIENCE_S)


def test_what_has_come_before_the_end_is_read_before_it_is_told(server: Puppet) -> None:
    with registered(server) as connection:
        server.say(ready(3), b"abc")
        server.die()
        assert batch_of(connection) == (ready(3), b"abc")
        with pytest.raises(ConnectionError):
            batch_of(connection)
        with pytest.raises(ConnectionError):  # and again
            batch_of(connection)


def test_a_batch_that_stops_half_way_is_not_heard_when_the_connection_ends(
    server: Puppet,
) -> None:
    data = bytes(2 * CHUNK)
    begin, rest = frames(ready(len(data)), data)
    with registered(server) as connection:
        server.say_raw(begin + rest[: len(rest) // 2])
        server.die()
        with pytest.raises(ConnectionError):
            batch_of(connection)


def test_a_hub_that_is_gone_is_the_end_and_what_crossed_on_the_way_is_not_heard(
    server: Puppet,
) -> None:
    with registered(server) as connection:
        server.say(Refused(request=0, report=Report(kind="HubGone", message="the hub has died")))
        server.say(Refused(request=0, report=Report(kind="ProtocolError", message="no session")))
        with pytest.raises(ConnectionError, match="the hub has died"):
            batch_of(connection)


@pytest.mark.parametrize("grace", [0.0, 0.1])
def test_a_server_that_leaves_is_gone_after_its_grace(server: Puppet, grace: float) -> None:
    with registered(server) as connection:
        server.say(Leaving(reason="it was told to", grace=grace))
        with pytest.raises(ConnectionError, match="has left"):
            batch_of(connection)


def test_a_server_that_is_leaving_still_sends_batches(server: Puppet) -> None:
    with registered(server) as connection:
        server.say(Leaving(reason="it was told to", grace=PATIENCE_S))
        server.say(ready(0))
        assert batch_of(connection)[0] == ready(0)


def test_hanging_up_wakes_who_waits(server: Puppet, threads: ThreadPoolExecutor) -> None:
    with registered(server) as connection:
        reading = threads.submit(batch_of, connection)
        connection.hang_up()
        with pytest.raises(ConnectionError, match="hung up"):
            reading.result(PATIENCE_S)


def test_closing_takes_leave_once(server: Puppet) -> None:
    with registered(server) as connection:
        connection.hang_up()
        connection.close()
        connection.close()
        connection.post(ReturnSlot(channel=0, slot=0))
    assert server.wait_for_end() == [Goodbye()]


def test_closing_does_not_wait_for_what_the_server_does_not_read(
    no_leaks: None, server: Puppet
) -> None:
    with greeted(server) as connection:
        connection.send(REGISTER, pack({"ids": np.zeros(LARGE, np.uint8)}))
        assert connection._link.pending
        connection.close()
        until(lambda: connection._link.descriptor < 0, "the socket is closed")


def test_closing_in_the_middle_of_arrays_says_nothing_that_makes_no_sense(server: Puppet) -> None:
    """The server would take it for a rank that does not keep to the protocol."""
    with greeted(server) as connection:
        connection.send(REGISTER, pack({"ids": np.zeros(LARGE, np.uint8)}))
        assert connection._link.pending
    assert server.wait_for_end() in ([], [Goodbye()])


def test_one_that_is_dropped_is_closed(no_leaks: None, server: Puppet) -> None:
    with registered(server) as kept:
        dropped = opened(server)
        other = dropped.fileno()
        del dropped
        assert server.wait_for_end() == [Goodbye()]
        until(lambda: not os.path.exists(f"/proc/self/fd/{other}"), "its descriptor is closed")
        assert os.path.exists(f"/proc/self/fd/{kept.fileno()}")


def test_nothing_is_left_of_many_connections(no_leaks: None, server: Puppet) -> None:
    """Nor of the thread that all of them share."""
    for _ in range(20):
        with greeted(server):
            pass
        server.hear(Goodbye)


def test_nothing_is_left_of_a_connection_that_was_refused(
    no_leaks: None, server: Puppet, threads: ThreadPoolExecutor
) -> None:
    report = Report(kind="Overloaded", message="no room")
    for _ in range(5):
        opening = answered(server, threads, Refused(request=0, report=report))
        with pytest.raises(Overloaded):
            opening.result(PATIENCE_S)
    for _ in range(5):
        with pytest.raises(TimeoutError):
            RemoteConnection.open(server.endpoint, Deadline(0.05))


def test_a_preamble_is_said_before_anything_else(server: Puppet) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        endpoint = Endpoint(f"tcp://127.0.0.1:{listener.getsockname()[1]}")
        with pytest.raises(TimeoutError):
            RemoteConnection.open(endpoint, Deadline(0.05))
        with listener.accept()[0] as accepted:
            said = accepted.recv(1 << 16, socket.MSG_WAITALL)
    assert said.startswith(PREAMBLE)


def test_a_registration_that_is_refused_may_be_tried_again(
    server: Puppet, threads: ThreadPoolExecutor
) -> None:
    with greeted(server) as connection:
        for _ in range(2):
            coming = threads.submit(connection.register, REGISTER, NOTHING, soon())
            report = Report(kind="Overloaded", message="no room")
            server.say(Refused(request=server.hear(Register).request, report=report))
            with pytest.raises(Overloaded, match="no room"):
                coming.result(PATIENCE_S)
        coming = threads.submit(connection.register, REGISTER, NOTHING, soon())
        server.say(a_channel(server.hear(Register)))
        assert isinstance(coming.result(PATIENCE_S), Registered)
