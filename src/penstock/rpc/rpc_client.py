"""Calls of many threads over one connection: each waits for its own answer only.

    pending = client.begin("get_node_ids", {"split": "train"}, NOTHING)   # sent; nobody waits yet
    value, arrays = pending.result(deadline)

A thread may begin calls at several servers, and then collect the answers one after the other. One
of the waiting threads receives for all of them (`reception`). Answers come in any order, and a
small one does not wait for a large one, because calls are spread over lanes. A thread that stops
waiting, by a timeout or an interrupt, does not disturb the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from queue import SimpleQueue
from time import monotonic
from typing import Any, Final, Protocol, TypeAlias

from penstock.errors import ProtocolError
from penstock.rpc.connection import RemoteConnection
from penstock.rpc.deadline import Deadline
from penstock.rpc.failures import error_of
from penstock.rpc.reception import LOOK, Inbox, Reception
from penstock.wire.frames import Bytes, private_memory, read
from penstock.wire.framing import CALL_LANES
from penstock.wire.messages import Answer, ArrayLayout, Call, FromServerToRank, Refused
from penstock.wire.payload import Arrays, Packed
from penstock.wire.tcp_stream import Sink

Answered: TypeAlias = tuple[Any, Arrays]
# A function, so that each thread that is told of a failure raises an error object of its own.
Failure: TypeAlias = Callable[[], Exception]

# The most calls without an answer at a time; further calls wait here. A server takes more (setting:
# max_calls), so that there is room for the calls that do not wait.
AT_ONCE: Final = 48
_WAITS_FOR_NOBODY: Final = frozenset({"destroy_sampling_input", "exit", "ping"})
_NEVER: Final = Deadline(None)
_NO_BYTES: Final = private_memory(0)


class ArraySink(Sink, Protocol):
    """Takes the arrays of one answer piece by piece, so that they need no memory of their own."""

    def accepts(self, arrays: Sequence[ArrayLayout], nbytes: int) -> bool:
        """Return whether it takes arrays of this form; otherwise they are received as usual."""

    @property
    def is_full(self) -> bool:
        """Whether it has taken the arrays of an answer."""

    def arrays(self) -> Arrays:
        """Return what is in the answer instead of the arrays that were taken."""

    def close(self) -> None:
        """Take nothing any more: whoever made the call has given it up. Safe from any thread."""


class Reply:
    """What becomes of a call: its answer, or why there will be none. The first outcome stands."""

    __slots__ = ("inbox", "is_arriving", "outcome", "sink", "told_at")

    def __init__(self, inbox: Inbox, sink: ArraySink | None = None) -> None:
        self.inbox = inbox
        self.sink = sink
        self.is_arriving = False  # the arrays of the answer have begun to come
        self.outcome: Answered | Failure | None = None
        self.told_at = 0.0

    def tell(self, outcome: Answered | Failure) -> None:
        """Note the outcome, and wake whoever waits for it."""
        if self.outcome is None:
            self.told_at = monotonic()
            self.outcome = outcome
        self.inbox.put(LOOK)

    def has_come(self) -> bool:
        """Return whether there is an outcome."""
        return self.outcome is not None


class PendingCalls:
    """The calls that are not answered yet. Handles the answers."""

    def __init__(self) -> None:
        self.waiting: dict[int, Reply] = {}
        self.sent: set[int] = set()  # not answered, including those that were given up
        self.outside: dict[int, Inbox] = {}  # those who wait until fewer calls are sent
        self.answered = 0
        self.failure: Failure | None = None

    @property
    def owed(self) -> bool:
        """Whether the server owes an answer, wanted or not."""
        return bool(self.sent)

    def wants(self, request: int) -> bool:
        """Return whether anybody wants the answer to a call."""
        if (reply := self.waiting.get(request)) is not None:
            reply.is_arriving = True
            return True
        self.forget(request)  # its answer will be skipped, and `hear` not called
        return False

    def sink_for(self, answer: Answer, nbytes: int) -> ArraySink | None:
        """Return what takes the arrays of an answer as they come; None if nothing does."""
        reply = self.waiting.get(answer.request)
        sink = None if reply is None else reply.sink
        return sink if sink is not None and sink.accepts(answer.arrays, nbytes) else None

    def hear(self, message: FromServerToRank, payload: Bytes | None) -> None:
        """Handle an answer or a refusal."""
        match message:
            case Answer(request=number, value=value):
                self._tell(number, (value, self._arrays_of(message, payload)))
            case Refused(request=0, report=report):
                self.fail(partial(error_of, report))
            case Refused(request=number, report=report):
                self._tell(number, partial(error_of, report))
            case _:
                raise ProtocolError(f"expected Answer, got {type(message).__name__}")

    def _arrays_of(self, answer: Answer, payload: Bytes | None) -> Arrays:
        if (reply := self.waiting.get(answer.request)) is None:  # the call was given up meanwhile
            return {}
        if reply.sink is not None and reply.sink.is_full:
            return reply.sink.arrays()
        return read(_NO_BYTES if payload is None else payload, answer.arrays)

    def _tell(self, number: int, outcome: Answered | Failure) -> None:
        self.forget(number)
        if (reply := self.waiting.get(number)) is not None:  # otherwise the call was given up
            reply.tell(outcome)

    def forget(self, number: int) -> None:
        """Note that a call is no longer without an answer, so that another one can be sent."""
        self.answered += 1
        self.sent.discard(number)
        if self.outside:
            self.wake_one()

    def has_room(self) -> bool:
        """Return whether another call may be sent, or none ever."""
        return len(self.sent) < AT_ONCE or self.failure is not None

    def wake_one(self) -> None:
        """Wake one of those who wait until fewer calls are sent."""
        for inbox in list(self.outside.values())[:1]:
            inbox.put(LOOK)

    def end(self, error: Exception) -> None:
        """Note that there will be no more answers."""
        self.fail(partial(type(error), *error.args))

    def fail(self, failure: Failure) -> None:
        """Tell everybody who waits that the connection failed. The first reason stands."""
        self.failure = self.failure or failure
        for reply in list(self.waiting.values()):
            reply.tell(self.failure)
        for inbox in list(self.outside.values()):
            inbox.put(LOOK)

    def error(self) -> Exception:
        """Return why the connection failed."""
        assert self.failure is not None
        return self.failure()

    def check(self) -> None:
        """Raise why the connection failed, if it did."""
        if self.failure is not None:
            raise self.failure()


class PendingCall:
    """A call that was sent. One thread at a time may use it; whoever drops it gives it up."""

    __slots__ = ("_client", "_number", "_reply")

    def __init__(self, client: RpcClient, number: int, reply: Reply) -> None:
        self._client = client
        self._number = number
        self._reply = reply

    @property
    def has_come(self) -> bool:
        """Whether the outcome is here; `result` then returns, or raises, at once."""
        return self._reply.outcome is not None

    @property
    def told_at(self) -> float:
        """When the outcome came, by the monotonic clock."""
        return self._reply.told_at

    @property
    def is_arriving(self) -> bool:
        """Whether the answer's arrays have begun to come."""
        return self._reply.is_arriving

    def wait(self, seconds: float | None) -> bool:
        """Wait until the outcome is here; return False if it is not, after so many seconds."""
        reply = self._reply
        return reply.outcome is not None or self._client.reception.wait(
            reply.inbox, reply.has_come, Deadline(seconds)
        )

    def result(self, deadline: Deadline = _NEVER) -> Answered:
        """Return plain data and arrays; raise what went wrong at the server.

        Raises:
            TimeoutError: The answer has not come in time; it can still be waited for.
            ConnectionError: The connection ended.
        """
        reply = self._reply
        if reply.outcome is None and not self._client.reception.wait(
            reply.inbox, reply.has_come, deadline
        ):
            raise TimeoutError("the server has not answered in time")
        self.abandon()
        outcome = reply.outcome
        if isinstance(outcome, tuple):
            return outcome
        assert outcome is not None
        raise outcome()

    def abandon(self) -> None:
        """Give the call up: its answer will be skipped. Idempotent."""
        self._client.calls.waiting.pop(self._number, None)
        if (sink := self._reply.sink) is not None:
            sink.close()

    def __del__(self) -> None:
        self.abandon()


class RpcClient:
    """A driven connection for calls. Any thread may call, and close it.

    Args:
        connection: The connection.
        reception: Who receives, if threads wait for several connections at once; it must have been
            given this one.
    """

    def __init__(self, connection: RemoteConnection, reception: Reception | None = None) -> None:
        self._connection = connection
        self._numbers = count(1)
        self.calls = PendingCalls()
        self.reception = reception or Reception(connection)
        connection.listen(self.calls)

    def is_over(self, *, look: bool = True) -> bool:
        """Return whether the connection is known to have ended.

        If `look` is true and nobody else receives, first process what has come.
        """
        if look and self.calls.failure is None:
            self.reception.look()
        return self.calls.failure is not None

    def begin(
        self,
        verb: str,
        arguments: dict[str, Any],
        arrays: Packed,
        deadline: Deadline = _NEVER,
        inbox: Inbox | None = None,
        sink: ArraySink | None = None,
    ) -> PendingCall:
        """Send a call. It waits only if too many calls are not answered yet.

        Args:
            verb: The name of the call.
            arguments: Its arguments, plain data.
            arrays: Its arrays, which must not change before the answer is there.
            deadline: Until when to wait for room.
            inbox: Is put something into when the outcome is here, for a thread that waits for one
                of several calls. By default the call has its own.
            sink: Takes the arrays of the answer as they come. It is closed once the call is over.

        Raises:
            TimeoutError: Too many calls were not answered in time.
            ConnectionError: The connection has ended.
        """
        calls, number = self.calls, next(self._numbers)
        reply = Reply(SimpleQueue() if inbox is None else inbox, sink)
        call = Call(request=number, verb=verb, arguments=arguments, arrays=arrays.arrays)
        if len(calls.sent) >= AT_ONCE and verb not in _WAITS_FOR_NOBODY:
            self._wait_for_room(number, reply.inbox, deadline)
        if not calls.sent:
            self._connection.note_asked()
        pending = PendingCall(self, number, reply)
        calls.waiting[number] = reply
        self._send(call, arrays)
        return pending

    def call(
        self, verb: str, arguments: dict[str, Any], arrays: Packed, deadline: Deadline
    ) -> Answered:
        """Make a call, and return plain data and arrays; raise what went wrong at the server."""
        pending = self.begin(verb, arguments, arrays, deadline)
        try:
            return pending.result(deadline)
        except BaseException:
            pending.abandon()
            raise

    def close(self) -> None:
        """Say goodbye, and tell whoever waits. Idempotent; never waits."""
        self.calls.end(ConnectionResetError("it was closed"))
        self.reception.let_go(self._connection)

    @property
    def connection(self) -> RemoteConnection:
        """The connection, for what it knows of the server."""
        return self._connection

    # --- calling -----------------------------------------------------------------------------

    def _send(self, call: Call, arrays: Packed) -> None:
        self.calls.check()
        self.calls.sent.add(call.request)
        try:
            self._connection.send(call, arrays, 1 + call.request % CALL_LANES)
        except ProtocolError:  # the connection has ended just now
            self.calls.check()
            raise
        except ValueError:  # the call is too large, and was not sent
            self.calls.forget(call.request)
            raise

    def _wait_for_room(self, number: int, inbox: Inbox, deadline: Deadline) -> None:
        """Wait until few enough calls lack an answer; those that were given up count, too."""
        calls = self.calls
        calls.outside[number] = inbox
        try:
            if not self.reception.wait(inbox, calls.has_room, deadline):
                raise TimeoutError(f"{AT_ONCE} other calls are not answered yet")
            calls.check()
        finally:
            del calls.outside[number]
            if calls.outside:
                calls.wake_one()
