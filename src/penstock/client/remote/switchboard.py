"""The questions of many threads over one connection: each gets its own answer, by its number.

One of those who wait listens, for all; when it has what it waits for, another one goes on. So
nobody waits for an answer to somebody else's question, and no thread is needed beside those who
ask. An answer that nobody waits for any more is dropped.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count
from queue import Empty, SimpleQueue
from threading import RLock
from typing import Any, Final, TypeAlias

from penstock.client.deadline import Deadline
from penstock.client.failures import error_of
from penstock.client.remote.connection import RemoteConnection
from penstock.errors import ProtocolError
from penstock.wire.bulk import Arrays, Packed
from penstock.wire.messages import Refused
from penstock.wire.remote import Answer, Call, FromServerToRank, Part

Answered: TypeAlias = tuple[Any, Arrays]
# Each who is told of a failure raises an error of its own.
Failure: TypeAlias = Callable[[], Exception]

# Questions on their way at once; others wait here. A server takes more (setting: max_calls), so
# that there is room for those who wait for nobody.
AT_ONCE: Final = 48
_WAITS_FOR_NOBODY: Final = frozenset({"destroy_sampling_input", "exit", "ping"})
# A word to one who waits: to look around, whether anybody listens, and whether it may go on.
_LOOK: Final = None
# After so long somebody looks whether anybody listens. An interrupt can come in between one who
# stops and the word to the next.
_LOOK_S: Final = 1.0
# While there is no room for a question, and somebody else listens.
_MOMENT_S: Final = 0.01

# A `SimpleQueue`, because a signal's handler may ask in the middle of anything.
_Inbox: TypeAlias = "SimpleQueue[Answered | Failure | None]"


class Switchboard:
    """A connection for questions. Any thread may ask, and close it."""

    def __init__(self, connection: RemoteConnection) -> None:
        self._connection = connection
        self._numbers = count(1)
        self._waiting: dict[int, _Inbox] = {}
        # Whose turn it is to listen. A signal's handler may ask while its own thread waits here.
        self._turn = RLock()
        self._somebody_listens = False
        self._end: Failure | None = None
        self._closing = False
        self._on_their_way: set[int] = set()  # not answered, whoever may have given them up
        self._outside: dict[int, _Inbox] = {}  # those who wait until there are fewer of them

    @property
    def is_over(self) -> bool:
        """Whether its end is known. Hears what has come, unless somebody listens anyway."""
        if self._end is None and self._turn.acquire(blocking=False):
            try:
                self._take_in()
            finally:
                self._release()
            self._hand_on()
        return self._end is not None

    def call(
        self, verb: str, arguments: dict[str, Any], arrays: Packed, deadline: Deadline
    ) -> Answered:
        """What a verb comes to: plain data, and arrays. Raises what went wrong over there.

        Whoever stops waiting, in time or by an interrupt, leaves the others as they are.
        """
        number, inbox = next(self._numbers), SimpleQueue()  # type: tuple[int, _Inbox]
        call = Call(request=number, verb=verb, arguments=arguments, bulk=arrays.bulk)
        self._waiting[number] = inbox
        try:
            if verb not in _WAITS_FOR_NOBODY:
                self._enter(number, inbox, deadline)
            self._say(call, arrays, deadline)
            return self._outcome(inbox, deadline)
        finally:
            del self._waiting[number]
            self._hand_on()

    def close(self) -> None:
        """Takes leave; who waits is told. Idempotent; never waits."""
        self._closing = True
        self._fail(partial(ConnectionResetError, "it was closed"))
        self._shut()

    # --- asking ------------------------------------------------------------------------------

    def _enter(self, number: int, inbox: _Inbox, deadline: Deadline) -> None:
        """Waits until few enough are on their way; those that were given up are, too."""
        self._outside[number] = inbox
        try:
            while len(self._on_their_way) >= AT_ONCE:
                self._listen(inbox, deadline)
                if callable(failure := self._next(inbox, deadline)):
                    raise failure()
        except TimeoutError:
            raise TimeoutError(f"{AT_ONCE} other questions are not answered yet") from None
        finally:
            del self._outside[number]
            self._let_in()
        self._on_their_way.add(number)

    def _let_in(self) -> None:
        for inbox in list(self._outside.values())[:1]:
            inbox.put(_LOOK)

    def _say(self, call: Call, arrays: Packed, deadline: Deadline) -> None:
        try:
            self._send(deadline, call)
        except Exception:
            self._on_their_way.discard(call.request)
            raise
        except BaseException:  # it may have gone out just before
            self._on_their_way.discard(call.request)
            if arrays.bulk.nbytes:
                self._break_off()
            raise
        try:
            for offset, data in arrays.parts():
                self._send(deadline, Part(request=call.request, offset=offset), data)
        except BaseException:
            self._break_off()
            raise

    def _break_off(self) -> None:
        """The server waits for the rest of a question, and would take whatever comes for it."""
        self._fail(partial(ConnectionResetError, "a question was broken off in its middle"))

    def _send(self, deadline: Deadline, message: Call | Part, *data: memoryview) -> None:
        while not self._connection.has_sent(message, *data):
            self._wait_for_room(deadline)

    def _wait_for_room(self, deadline: Deadline) -> None:
        if deadline.passed:
            raise TimeoutError("the server has not listened in time")
        if self._end is not None:
            raise self._end()
        if not self._turn.acquire(blocking=False):
            time.sleep(_MOMENT_S)
            return
        before = self._somebody_listens
        try:
            self._somebody_listens = True
            self._connection.wait(deadline)
            self._take_in()
        finally:
            self._somebody_listens = before
            self._release()

    def _outcome(self, inbox: _Inbox, deadline: Deadline) -> Answered:
        while True:
            self._listen(inbox, deadline)
            match self._next(inbox, deadline):
                case (value, arrays):
                    return value, arrays
                case failure if failure is not _LOOK:
                    raise failure()

    def _next(self, inbox: _Inbox, deadline: Deadline) -> Answered | Failure | None:
        """What we are told next; after a while, to look around, if nothing else."""
        end = self._end  # looked at first, or an answer that came before it might be missed
        with suppress(Empty):
            return inbox.get_nowait()
        if end is not None:
            return end
        if deadline.passed:
            raise TimeoutError("the server has not answered in time")
        with suppress(Empty):
            return inbox.get(timeout=Deadline(_LOOK_S).or_sooner(deadline).remaining)
        return _LOOK

    # --- listening ---------------------------------------------------------------------------

    def _listen(self, inbox: _Inbox, deadline: Deadline) -> None:
        """For all, until there is something for us; not at all if somebody does already."""
        if not self._turn.acquire(blocking=False):
            return
        before = self._somebody_listens  # if we ask in the middle of listening
        try:
            self._somebody_listens = True
            while inbox.empty() and self._end is None:
                self._connection.wait(deadline)
                self._take_in()
        finally:
            self._somebody_listens = before
            self._release()

    def _release(self) -> None:
        self._turn.release()
        if self._closing:
            self._shut()

    def _hand_on(self) -> None:
        """Has another one listen, if nobody does. Called by whoever stops, in vain or not."""
        if not self._somebody_listens:
            for inbox in list(self._waiting.values())[:1]:
                inbox.put(_LOOK)

    def _take_in(self) -> None:
        try:
            for message, _ in self._connection.receive():
                self._hand_out(message)
        except Exception as error:
            self._fail(partial(type(error), *error.args))
        except BaseException:
            # What was being read is lost, and may have been an answer to anybody.
            self._fail(partial(ConnectionResetError, "it was interrupted while it was read"))
            raise

    def _hand_out(self, message: FromServerToRank) -> None:
        match message:
            case Answer(request=number, value=value):
                self._tell(number, (value, self._connection.arrays_of(number)))
            case Refused(request=0, report=report):
                self._fail(partial(error_of, report))
            case Refused(request=number, report=report):
                self._tell(number, partial(error_of, report))
            case _:
                raise ProtocolError(f"expected Answer, got {type(message).__name__}")

    def _tell(self, number: int, word: Answered | Failure) -> None:
        self._on_their_way.discard(number)
        self._let_in()
        inbox = self._waiting.get(number)
        if inbox is not None:  # else its question was given up
            inbox.put(word)

    # --- the end -----------------------------------------------------------------------------

    def _fail(self, failure: Failure) -> None:
        """There will be no more answers: everybody is told. The first reason stands."""
        self._end = self._end or failure
        for inbox in list(self._waiting.values()):
            inbox.put(self._end)
        self._connection.hang_up()  # whoever listens wakes

    def _shut(self) -> None:
        """Not below the feet of one who listens: it does so when it leaves."""
        if not self._somebody_listens and self._turn.acquire(blocking=False):
            try:
                self._connection.close()
            finally:
                self._turn.release()
