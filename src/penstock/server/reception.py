"""The reception: what remote ranks say, checked, answered, or handed to those who can answer.

A request that cannot be granted is refused, with the reason. A word that makes no sense ends the
session that said it, and no other. Nothing a rank can say stops the server.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

import msgspec
import zmq

from penstock.errors import HubGone, Overloaded, ProtocolError
from penstock.hub.reports import SHORT, report_of, shortened
from penstock.server.callers import descriptor_of
from penstock.server.limits import LONGEST_NAME, check_at_most
from penstock.server.premises import Premises
from penstock.server.questions import GOODBYE, PING, STATISTICS
from penstock.server.router import Frames, peer_of
from penstock.server.session import Session, Upload
from penstock.server.statistics import ServerStatistics
from penstock.server.verbs import MAKING
from penstock.server.vitals import vitals
from penstock.wire.bulk import Arrays, Assembly, pack
from penstock.wire.messages import Message, Refused, ReturnSlot, Reweigh, StartEpoch, Unregister
from penstock.wire.remote import (
    HEADER,
    REMOTE_PROTOCOL,
    Answer,
    Call,
    Enroll,
    Enrolled,
    FromRankToServer,
    Goodbye,
    Knock,
    Part,
)

log = logging.getLogger(__name__)

END: Final = "end"  # of a session: no verb, but something that has to be done in its turn

_Words = TypeVar("_Words")
_DECODER: Final[msgspec.msgpack.Decoder[FromRankToServer]] = msgspec.msgpack.Decoder(
    FromRankToServer
)
# Memory for a byte of plain data, at most, roughly: it may be an empty list. A little of it is not
# counted.
_READ: Final = 32
_SMALL: Final = 4096
_FIRST_WORD: Final = msgspec.msgpack.Decoder(Knock)
# What the decoder raises for bytes that are no message. Depth is limited by recursion.
_NO_MESSAGE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Reception:
    """Hears what ranks say."""

    def __init__(self, premises: Premises, statistics: Callable[[], ServerStatistics]) -> None:
        self._premises = premises
        self._statistics = statistics

    def hear(self, identity: bytes, frames: Frames) -> Session | None:
        """One message; the session it belongs to, if there is one."""
        session = self._premises.sessions.get(identity)
        try:
            if session is None:
                return self._first_word(identity, frames)
            nbytes = sum(map(len, frames))
            session.note_heard(nbytes, len(frames))
            message, data = _decoded(frames, _DECODER)
            session.conversation.rank_says(message)
            if isinstance(message, Call | Enroll | Part):
                session.note_taken_in(nbytes)
            self._hear(session, message, data, len(frames[0]))
        except (ProtocolError, HubGone) as error:
            self._expel(session, identity, error)
        except Exception as error:  # a mistake of ours is no reason to leave the others alone
            log.exception("%r has said something that could not be dealt with", session)
            self._expel(session, identity, error)
        return session

    def _expel(self, session: Session | None, identity: bytes, error: Exception) -> None:
        """Says what made no sense. Who had no session is told, and nothing is kept of it."""
        refused = Refused(request=0, report=report_of(error))
        if session is None:
            self._premises.router.send(identity, msgspec.msgpack.encode(refused))
            return
        self._premises.refused += 1
        log.warning("%r is over: %s", session, shortened(str(error), SHORT))
        session.say(refused)
        session.end(shortened(str(error), SHORT))

    # --- coming in ---------------------------------------------------------------------------

    def _first_word(self, identity: bytes, frames: Frames) -> Session | None:
        """Of who has no session nothing is read but a Knock: it may be anybody."""
        callers, frame = self._premises.router.callers, frames[0]
        caller = callers.by_descriptor(descriptor_of(frame))
        if caller is not None:
            caller.note_heard(sum(map(len, frames)), len(frames))
        try:
            message, _ = _decoded(frames, _FIRST_WORD)
        except ProtocolError as error:
            # To who had one it is as when a hub has died: enrol again, and go on.
            had_one = caller is not None and caller.was_known
            raise (HubGone if had_one else ProtocolError)(
                f"there is no session, say Knock first: {error}"
            ) from None
        peer = peer_of(frame)
        try:
            self._check(message)
            self._premises.admission.check(message, peer)
        except Exception as error:
            log.info("%s at %s is refused: %s", message.name or message.pid, peer.address, error)
            self._premises.refused += 1
            self._expel(None, identity, error)
            return None
        self._premises.opened += 1
        session = Session(
            self._premises.opened,
            identity,
            message,
            peer,
            self._premises.router,
            self._premises.touched,
            callers.know(descriptor_of(frame)),
        )
        session.conversation.rank_says(message)
        self._premises.sessions[identity] = session
        session.say_encoded(self._premises.greeting, self._premises.greeting_bytes)
        return session

    def _check(self, knock: Knock) -> None:
        if knock.protocol != REMOTE_PROTOCOL:
            raise ProtocolError(
                f"you speak protocol {knock.protocol}, this server {REMOTE_PROTOCOL}: "
                "install the same version of penstock on both sides"
            )
        self._check_staying()
        for name in ("name", "host", "token"):
            if len(getattr(knock, name) or "") > LONGEST_NAME:
                raise ProtocolError(f"the {name} of a Knock is longer than {LONGEST_NAME} letters")
        most = self._premises.limits.max_sessions
        if len(self._premises.sessions) >= most:
            raise Overloaded(f"there are {most} sessions, and no more (setting: max_sessions)")

    def _check_staying(self) -> None:
        if self._premises.leaving is not None:
            raise HubGone(f"the server is leaving: {self._premises.leaving}")

    # --- what is said ------------------------------------------------------------------------

    def _hear(
        self, session: Session, message: Message, data: zmq.Frame | None, header: int
    ) -> None:
        match message:
            case ReturnSlot() | StartEpoch() | Reweigh():
                if session.relay is not None:
                    session.relay.forward(message)
                    self._premises.watch.heed(session.relay)
            case Call():
                self._request(session, message, partial(self._call, header=header))
            case Part():
                self._part(session, message, data)
            case Enroll():
                self._request(session, message, self._enroll)
            case Unregister():
                self._unregister(session, message)
            case Goodbye():
                session.end(GOODBYE)

    def _request(
        self, session: Session, request: Any, grant: Callable[[Session, Any], None]
    ) -> None:
        """Grants it, or says why not."""
        session.check_new(request.request)
        try:
            grant(session, request)
        except ProtocolError:
            raise
        except Exception as error:
            session.skip(request.request, request.bulk.nbytes)
            self._refuse(session, request.request, error)

    def _refuse(self, session: Session, request: int, error: Exception) -> None:
        self._premises.refused += 1
        log.info("%r is refused request %d: %s", session, request, shortened(str(error), SHORT))
        session.say(Refused(request=request, report=report_of(error)))

    def _part(self, session: Session, part: Part, data: zmq.Frame | None) -> None:
        assert data is not None
        upload = session.uploads.get(part.request)
        if upload is None:
            if session.is_skipped(part.request, part.offset + len(data)):
                return
            raise ProtocolError(f"a part came for request {part.request}, which expects none")
        upload.assembly.add(part.offset, data.buffer)
        session.note_part()
        if upload.assembly.complete:
            del session.uploads[part.request]
            self._begin(session, upload.request, upload.assembly.arrays())

    def _collect(self, session: Session, request: Enroll | Call) -> None:
        """Waits for the arrays of a request, or begins with it."""
        assembly = Assembly(request.bulk)
        if assembly.complete:
            self._begin(session, request, assembly.arrays())
        else:
            session.expect(Upload(request, assembly))

    def _begin(self, session: Session, request: Enroll | Call, arrays: Arrays) -> None:
        if isinstance(request, Enroll):
            self._ask_hub(session, request, arrays)
        else:
            self._ask(session, request, arrays)

    # --- channels ----------------------------------------------------------------------------

    def _enroll(self, session: Session, wish: Enroll) -> None:
        self._check_staying()
        limits, nbytes = self._premises.limits, wish.bulk.nbytes
        sessions = self._premises.sessions.values()
        channels = sum(one.relay is not None or one.enrolling > 0 for one in sessions)
        check_at_most(channels + 1, limits.max_channels, "channels are asked for", "max_channels")
        check_at_most(nbytes, limits.max_input_bytes, "bytes of inputs", "max_input_bytes")
        self._premises.enrolments.budget.take(max(0, nbytes))
        session.input_bytes, session.enrolling = max(0, nbytes), wish.request
        try:
            self._collect(session, wish)
        except Exception:  # no memory for it: it may ask for less
            session.enrolling = 0
            self.give_up_channel(session)
            raise

    def _ask_hub(self, session: Session, wish: Enroll, arrays: Arrays) -> None:
        self._premises.enrolling.ask(
            lambda: self._premises.enrolments.make(wish, arrays),
            lambda outcome: self._enrolled(session, wish.request, outcome),
            session,
        )

    def _enrolled(self, session: Session, request: int, outcome: Any) -> None:
        """In the door's thread: the hub has a channel for it, or has not."""
        session.enrolling = 0
        if isinstance(outcome, Exception):
            self.give_up_channel(session)
            if session.ending is None:
                self._refuse(session, request, outcome)
            return
        relay, nbytes = outcome
        if session.ending is not None:  # it left meanwhile
            relay.close()
            self._premises.enrolments.budget.give(nbytes)
            return
        session.relay = relay
        session.input_bytes += nbytes
        session.say(
            Enrolled(
                request=request,
                channel=relay.channel,
                slots=relay.slots,
                most_bytes=relay.most_bytes,
            )
        )
        self._premises.watch.add(relay, session)

    def _unregister(self, session: Session, said: Unregister) -> None:
        if session.relay is not None and said.channel != session.relay.channel:
            raise ProtocolError(f"channel {said.channel} is not this session's")
        self.give_up_channel(session)

    def give_up_channel(self, session: Session) -> None:
        """Lets go of a session's channel and of its inputs. Idempotent."""
        relay, session.relay = session.relay, None
        if relay is not None:
            self._premises.watch.remove(relay)
            relay.close()
        held, session.input_bytes = session.input_bytes, 0
        self._premises.enrolments.budget.give(held)

    # --- questions ---------------------------------------------------------------------------

    def _call(self, session: Session, call: Call, header: int) -> None:
        if call.verb == PING:
            session.say(Answer(request=call.request))
            return
        limits = self._premises.limits
        nbytes = max(0, call.bulk.nbytes) + _READ * max(0, header - _SMALL)
        unread = "bytes of answers are unread"
        check_at_most(session.unread, limits.max_answer_bytes, unread, "max_answer_bytes")
        check_at_most(len(session.calls) + 1, limits.max_calls, "calls at once", "max_calls")
        ours = sum(session.calls.values()) + nbytes
        check_at_most(ours, limits.max_call_bytes, "bytes of arguments", "max_call_bytes")
        self._premises.call_budget.take(nbytes)
        session.begin_call(call.request, nbytes)
        try:
            self._collect(session, call)
        except Exception:
            self._premises.call_budget.give(session.calls.pop(call.request))
            raise

    def _ask(self, session: Session, call: Call, arrays: Arrays) -> None:
        if session.visit is None:
            session.visit = self._premises.visits()
        visit, most = session.visit, self._premises.limits.max_answer_bytes
        numbers = self._statistics() if call.verb == STATISTICS else None

        def work() -> Any:
            if session.ending is not None:
                return ConnectionError("nobody is there to be answered")
            if numbers is not None:
                return Answer(request=call.request, value=replace(numbers, process=vitals())), None
            value, found = visit.answer(call, arrays)
            packed = pack(found)
            check_at_most(packed.bulk.nbytes, most, "bytes of an answer", "max_answer_bytes")
            return Answer(request=call.request, value=value, bulk=packed.bulk), packed

        # When the session ends, all it has goes at once: only what is being made is waited for.
        if call.verb in MAKING:
            session.asked.add(call.request)
        self._premises.answering.ask(
            call.verb, work, lambda outcome: self._answer(session, call, outcome), session
        )

    def _answer(self, session: Session, call: Call, outcome: Any) -> None:
        """In the door's thread: somebody has worked it out, or failed to."""
        session.asked.discard(call.request)
        self._premises.call_budget.give(session.calls.pop(call.request, 0))
        if session.ending is not None:
            self._end_asking(session)
            return
        if isinstance(outcome, Exception):
            self._refuse(session, call.request, outcome)
            return
        answer, packed = outcome
        session.say(answer)
        for offset, data in () if packed is None else packed.parts():
            session.say(Part(request=call.request, offset=offset), data)

    # --- the end -----------------------------------------------------------------------------

    def farewell(self, session: Session) -> None:
        """A session is over: whatever hung on it is let go of."""
        log.info("%r is over: %s", session, session.ending)
        premises = self._premises
        premises.leases_lost += session.lost
        premises.batches_before += session.batches
        premises.calls_before += session.calls_heard
        self.give_up_channel(session)
        # What is being answered keeps its arrays, and what they count for, until it is.
        for request in session.uploads:
            premises.call_budget.give(session.calls.pop(request, 0))
        session.uploads.clear()
        for then in (*premises.enrolling.drop(session), *premises.answering.drop(session)):
            then(ConnectionError("nobody is there to be answered"))
        self._end_asking(session)

    def _end_asking(self, session: Session) -> None:
        """Tells whoever answered its questions, once none is being answered any more."""
        visit, reason = session.visit, session.ending or ""
        if visit is not None and not session.asked:
            session.visit = None
            self._premises.answering.ask(END, lambda: visit.end(reason), _note_failure)


def _note_failure(outcome: Any) -> None:
    if isinstance(outcome, Exception):
        log.error("what a session had could not be let go of", exc_info=outcome)


def _decoded(
    frames: Frames, decoder: msgspec.msgpack.Decoder[_Words]
) -> tuple[_Words, zmq.Frame | None]:
    if not frames:
        raise ProtocolError("an empty message came")
    if len(frames[0]) > HEADER:
        raise ProtocolError(f"a message has {len(frames[0])} bytes of its own; at most {HEADER}")
    try:
        message = decoder.decode(frames[0].buffer)
    except _NO_MESSAGE as error:
        raise ProtocolError(f"a message makes no sense here: {error}") from None
    wanted = 2 if isinstance(message, Part) else 1
    if len(frames) != wanted:
        name = type(message).__name__
        raise ProtocolError(f"{name} came in {len(frames)} frames; expected {wanted}")
    return message, frames[1] if wanted == 2 else None
