"""Handles messages of remote ranks: checks them, answers them, or passes them on.

A request that cannot be granted is refused with the reason. An invalid message ends the session
that sent it, and no other. Nothing that a rank can send stops the server.

A request with a payload is checked twice: by `reserve`, before any memory is taken for it, and by
`handle`, when all of it is there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from penstock.errors import HubGone, Overloaded, ProtocolError
from penstock.hub.reports import SHORT, report_of, shortened
from penstock.server.dist.rpc import GOODBYE, MAKING, PING, STATISTICS
from penstock.server.limits import check_at_most
from penstock.server.ops.process_stats import process_stats
from penstock.server.ops.statistics import ServerStatistics
from penstock.server.transport.peers import VERBS as PEER_VERBS
from penstock.server.transport.poller import READ, WRITE
from penstock.server.transport.session import UNACKNOWLEDGED, CallBytes, Session
from penstock.server.transport.state import ServerState
from penstock.wire.frames import Bytes, read
from penstock.wire.framing import encode
from penstock.wire.messages import (
    Answer,
    Call,
    FromRankToServer,
    Goodbye,
    Heartbeat,
    Refused,
    Register,
    Registered,
    ReturnSlot,
    Reweigh,
    StartEpoch,
    Unregister,
)
from penstock.wire.payload import NOTHING, Arrays, Packed, pack, reserved
from penstock.wire.transport.tcp import awaits_reader

log = logging.getLogger(__name__)

END: Final = "end"  # of a session: no verb of the protocol, but queued like one
# _READ_AS: rough upper bound of the memory for one byte of plain data, which may be an empty list.
# The first _SMALL bytes count only towards the limit of all sessions together.
_READ_AS: Final = 32
_SMALL: Final = 4096
_GONE: Final = "the session has ended"
_HEARTBEAT: Final = Heartbeat()


class RankMessages:
    """Handles the messages of sessions. Calls `relay_ready` when a hub has sent something."""

    def __init__(
        self,
        state: ServerState,
        statistics: Callable[[], ServerStatistics],
        relay_ready: Callable[[Session, int], None],
    ) -> None:
        self._state = state
        self._statistics = statistics
        self._relay_ready = relay_ready

    def handle(self, session: Session, message: FromRankToServer, payload: Bytes | None) -> None:
        """Handle one message and its payload, which `reserve` has granted."""
        try:
            if payload is None:
                session.conversation.rank_says(message)
            if type(message) is Heartbeat:  # checked first, since idle ranks send mostly these
                if message.reply:
                    session.say(_HEARTBEAT)
                if session.stream.pending or session.pauses:
                    self._look_at_pause(session)
                return
            self._handle(session, message, payload)
        except (ProtocolError, HubGone, Overloaded) as error:
            self.expel(session, error)
        except Exception as error:  # our own bug must not end the other sessions
            log.exception("handling a message of %r failed", session)
            self.expel(session, error)

    def _look_at_pause(self, session: Session) -> None:
        """Stop the kernel from giving up on a rank that is alive but does not read."""
        stream = session.stream
        pauses = stream.pending and awaits_reader(stream.fileno())
        if pauses != session.pauses:
            session.pauses = pauses
            stream.give_up_after(0 if pauses else UNACKNOWLEDGED * self._state.welcome.lease)

    def reserve(self, session: Session, message: FromRankToServer, nbytes: int) -> Bytes | None:
        """Return memory for the payload of a request, or None if the request is refused.

        Raises:
            ProtocolError: The message is invalid; the session must end.
        """
        if not isinstance(message, Register | Call):
            raise ProtocolError(f"{type(message).__name__} cannot have a payload")
        session.conversation.rank_says(message)
        return self._granted(session, message, nbytes)

    def expel(self, session: Session, error: Exception) -> None:
        """Send the rank what was wrong, and end its session."""
        self._state.refused += 1
        log.warning("%r is over: %s", session, shortened(str(error), SHORT))
        session.say_last(Refused(request=0, report=report_of(error)))
        session.end(shortened(str(error), SHORT))

    def _handle(self, session: Session, message: FromRankToServer, payload: Bytes | None) -> None:
        match message:
            case ReturnSlot() | StartEpoch() | Reweigh():
                if session.relay is not None:
                    session.relay.forward(message)
                    self.watch_relay(session)
                    if session.relay.is_overfull:
                        raise Overloaded("the hub does not read, and too many messages wait for it")
            case Call(verb=verb, request=request) if verb == PING and payload is None:
                session.check_new(request)
                session.say(Answer(request=request))
            case Call() | Register():
                self._begin(session, message, payload)
            case Unregister():
                self._unregister(session, message)
            case Goodbye():
                session.stream.drop_queued()  # the rank will read nothing more
                session.end(GOODBYE)

    # --- requests ----------------------------------------------------------------------------

    def _begin(self, session: Session, request: Register | Call, payload: Bytes | None) -> None:
        memory = self._granted(session, request, 0) if payload is None else payload
        if memory is None:
            return
        arrays = read(memory, request.arrays)
        session.granted.discard(request.request)
        if isinstance(request, Register):
            self._ask_hub(session, request, arrays)
        else:
            self._ask(session, request, arrays)

    def _granted(self, session: Session, request: Register | Call, nbytes: int) -> Bytes | None:
        """Return memory for a request's payload, or None if the request was refused."""
        session.check_new(request.request)
        grant = self._grant_register if isinstance(request, Register) else self._grant_call
        try:
            memory = grant(session, request, nbytes)
        except ProtocolError:
            raise
        except Exception as error:
            self._refuse(session, request.request, error)
            return None
        session.granted.add(request.request)
        return memory

    def _refuse(self, session: Session, request: int, error: Exception) -> None:
        self._state.refused += 1
        log.info("%r is refused request %d: %s", session, request, shortened(str(error), SHORT))
        session.say(Refused(request=request, report=report_of(error)))

    def check_staying(self) -> None:
        """Raise `HubGone` once the server accepts no more ranks."""
        if self._state.leaving is not None:
            raise HubGone(f"the server is leaving: {self._state.leaving}")

    # --- channels ----------------------------------------------------------------------------

    def _grant_register(self, session: Session, asked: Any, nbytes: int) -> Bytes:
        self.check_staying()
        limits = self._state.limits
        channels = sum(one.relay is not None or one.registering > 0 for one in self._state.sessions)
        check_at_most(channels + 1, limits.max_channels, "channels are asked for", "max_channels")
        counted = nbytes + _READ_AS * max(0, len(encode(asked)) - _SMALL)
        check_at_most(counted, limits.max_input_bytes, "bytes of inputs", "max_input_bytes")
        self._state.registrations.budget.take(counted)
        session.input_bytes, session.registering = counted, asked.request
        try:
            return reserved(asked.arrays, nbytes)
        except BaseException:  # no memory: the rank may ask for less
            session.registering = 0
            self.give_up_channel(session)
            raise

    def _ask_hub(self, session: Session, asked: Register, arrays: Arrays) -> None:
        self._state.registering.ask(
            lambda: self._state.registrations.make(asked, arrays),
            lambda outcome: self._registered(session, asked.request, outcome),
            session,
        )

    def _registered(self, session: Session, request: int, outcome: Any) -> None:
        """Answer a registration with its outcome. Runs in the loop's thread."""
        session.registering = 0
        if isinstance(outcome, Exception):
            self.give_up_channel(session)
            if session.ending is None:
                self._refuse(session, request, outcome)
            return
        relay, nbytes = outcome
        if session.ending is not None:  # the session ended meanwhile
            relay.close()
            self._state.registrations.budget.give(nbytes)
            return
        session.relay = relay
        session.input_bytes += nbytes
        session.say(
            Registered(
                request=request,
                channel=relay.channel,
                slots=relay.slots,
                most_bytes=relay.most_bytes,
            )
        )
        self.watch_relay(session)

    def watch_relay(self, session: Session) -> None:
        """Watch the relay for messages of the hub, and for room if messages are queued."""
        if (relay := session.relay) is not None:
            events = READ | WRITE if relay.pending else READ
            self._state.poller.watch(
                relay.fileno(), events, session.on_relay or self._handler(session)
            )

    def _handler(self, session: Session) -> Callable[[int], None]:
        session.on_relay = lambda events: self._relay_ready(session, events)
        return session.on_relay

    def _unregister(self, session: Session, said: Unregister) -> None:
        if session.relay is not None and said.channel != session.relay.channel:
            raise ProtocolError(f"channel {said.channel} is not this session's")
        self.give_up_channel(session)

    def give_up_channel(self, session: Session) -> None:
        """Close a session's channel, and give back the budget of its inputs. Idempotent."""
        relay, session.relay = session.relay, None
        if relay is not None:
            self._state.poller.forget(relay.fileno())
            relay.close()
        held, session.input_bytes = session.input_bytes, 0
        self._state.registrations.budget.give(held)

    # --- calls -------------------------------------------------------------------------------

    def _grant_call(self, session: Session, call: Any, nbytes: int) -> Bytes:
        limits, state = self._state.limits, self._state
        plain = len(encode(call)) if call.arguments or call.arrays else 0
        counted = CallBytes(
            of_session=nbytes + _READ_AS * max(0, plain - _SMALL),
            of_all=nbytes + _READ_AS * plain,
        )
        unread = "bytes of answers are unread"
        check_at_most(session.unread.taken, limits.max_answer_bytes, unread, "max_answer_bytes")
        check_at_most(len(session.calls) + 1, limits.max_calls, "calls at once", "max_calls")
        ours = sum(call.of_session for call in session.calls.values()) + counted.of_session
        check_at_most(ours, limits.max_call_bytes, "bytes of arguments", "max_call_bytes")
        state.call_budget.take(counted.of_all)
        session.begin_call(call.request, counted)
        try:
            return reserved(call.arrays, nbytes)
        except BaseException:
            self._forget_call(session, call.request)
            raise

    def _forget_call(self, session: Session, request: int) -> None:
        """Forget a call, and give back the budget of its arguments."""
        if (counted := session.calls.pop(request, None)) is not None:
            self._state.call_budget.give(counted.of_all)

    def _ask(self, session: Session, call: Call, arrays: Arrays) -> None:
        if session.rpc_session is None:
            session.rpc_session = self._state.rpc_sessions()
        session.has_made |= call.verb in MAKING
        rpc_session, most = session.rpc_session, self._state.limits.max_answer_bytes
        numbers = self._statistics() if call.verb == STATISTICS else None

        def work() -> Any:
            if session.ending is not None:
                return ConnectionError(_GONE)
            if numbers is not None:
                told = replace(numbers, process=process_stats())
                return Answer(request=call.request, value=told), NOTHING
            if call.verb in PEER_VERBS:
                named = self._state.peers.answer(call.verb, call.arguments)
                return Answer(request=call.request, value=named), NOTHING
            value, found = rpc_session.answer(call, arrays)
            packed = pack(found)
            check_at_most(packed.nbytes, most, "bytes of an answer", "max_answer_bytes")
            return Answer(request=call.request, value=value, arrays=packed.arrays), packed

        # When the session ends, all it owns is released at once, but calls that are still making
        # something must finish first.
        if call.verb in MAKING:
            session.asked.add(call.request)
        self._state.answering.ask(
            call.verb, work, lambda outcome: self._answer(session, call, outcome), session
        )

    def _answer(self, session: Session, call: Call, outcome: Any) -> None:
        """Answer a call with its outcome. Runs in the loop's thread."""
        session.asked.discard(call.request)
        self._forget_call(session, call.request)
        if session.ending is not None:
            self._end_asking(session)
            return
        if isinstance(outcome, Exception):
            self._refuse(session, call.request, outcome)
            return
        try:
            self._say_answer(session, *outcome)
        except Exception as error:
            self._refuse(session, call.request, error)

    def _say_answer(self, session: Session, answer: Answer, packed: Packed) -> None:
        budget, unread = self._state.answer_budget, session.unread.taken + packed.nbytes
        most = self._state.limits.max_answer_bytes
        check_at_most(unread, most, "bytes of answers are unread", "max_answer_bytes")
        budget.take(packed.nbytes)
        session.say(answer, packed, lambda: budget.give(packed.nbytes))

    # --- the end -----------------------------------------------------------------------------

    def farewell(self, session: Session) -> None:
        """Release everything that a session which has ended still holds."""
        log.info("%r is over: %s", session, session.ending)
        state = self._state
        state.leases_lost += session.lost
        state.batches_before += session.batches
        state.calls_before += session.calls_heard
        state.bytes_in_before += session.stream.bytes_in
        state.bytes_out_before += session.stream.bytes_out
        state.partial_budget.give(session.partial)
        session.partial = 0
        self.give_up_channel(session)
        # Calls that are being answered keep their arrays and their share of the budget until they
        # are done. Requests that have come only in part are dropped.
        for request in session.granted:
            self._forget_call(session, request)
        for then in (*state.registering.drop(session), *state.answering.drop(session)):
            then(ConnectionError(_GONE))
        self._end_asking(session)

    def _end_asking(self, session: Session) -> None:
        """End the session's `RpcSession`, once no call of it is making something any more."""
        rpc_session, reason = session.rpc_session, session.ending or ""
        if rpc_session is not None and not session.asked:
            session.rpc_session = None
            self._state.answering.ask(END, lambda: rpc_session.end(reason), _note_failure)


def _note_failure(outcome: Any) -> None:
    if isinstance(outcome, Exception):
        log.error("releasing the resources of a session failed", exc_info=outcome)
