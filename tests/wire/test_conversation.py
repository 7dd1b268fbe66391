"""Which word may follow which between a rank and a server."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ProtocolError
from penstock.graph.schema import Schema
from penstock.sampling.spec import Feed, NeighborSpec
from penstock.wire.conversation import (
    RANK_SAYS,
    SERVER_SAYS,
    Conversation,
    EnrolmentRefused,
    SessionRefused,
    State,
)
from penstock.wire.messages import Message, Refused, Register, Report, StartEpoch, Unregister
from penstock.wire.remote import (
    REMOTE_PROTOCOL,
    Call,
    Enroll,
    Enrolled,
    FromRankToServer,
    FromServerToRank,
    Goodbye,
    Greeting,
    Knock,
    Outline,
)
from tests import protocol


def refused(request: int) -> Refused:
    return Refused(request=request, report=Report(kind="ValueError", message="no"))


def enroll(request: int = 1) -> Enroll:
    feed = Feed(num_inputs=0, batch_size=1)
    register = Register(request=0, backend=0, feed=feed)
    return Enroll(request=request, spec=NeighborSpec(), register=register)


def talk(*words: Message) -> Conversation:
    """A conversation of these words; who may say which, their classes tell."""
    conversation = Conversation()
    for word in words:
        if isinstance(word, get_args(FromRankToServer)):
            conversation.rank_says(word)
        else:
            conversation.server_says(word)
    return conversation


KNOCK = Knock(protocol=REMOTE_PROTOCOL, pid=1, host="here")
GREETING = Greeting(
    protocol=REMOTE_PROTOCOL,
    boot="",
    pid=1,
    host="here",
    address="",
    outline=Outline(schema=Schema(False, (), ()), arrays=()),
)
ENROLLED = Enrolled(request=1, channel=1, slots=1, most_bytes=1)


def test_a_whole_life_goes_through_every_state() -> None:
    words = [KNOCK, GREETING, enroll(), ENROLLED, Unregister(channel=1), Goodbye()]
    seen = [talk(*words[:count]).state for count in range(len(words) + 1)]
    assert seen == list(State)


def test_a_refused_enrolment_leaves_a_session_that_may_try_again() -> None:
    assert talk(KNOCK, GREETING, enroll(5), refused(5)).state is State.GREETED


def test_a_refused_call_changes_nothing_while_a_channel_is_opened() -> None:
    call = Call(request=4, verb="ping")
    assert talk(KNOCK, GREETING, call, enroll(5), refused(4)).state is State.ENROLLING


@pytest.mark.parametrize("count", range(1, 5))
def test_a_refusal_without_number_is_the_end_in_any_state(count: int) -> None:
    words = [KNOCK, GREETING, enroll(), ENROLLED][:count]
    conversation = talk(*words, refused(0))
    assert conversation.state is State.ENDED
    with pytest.raises(ProtocolError, match="expected nothing more"):
        conversation.rank_says(Goodbye())


def test_a_word_too_early_is_refused_by_name_with_what_was_expected() -> None:
    with pytest.raises(ProtocolError, match="StartEpoch makes no sense now") as caught:
        talk(KNOCK, GREETING, StartEpoch(channel=1, epoch=0))
    assert "'greeted'; expected Call, Enroll, Goodbye, Part" in str(caught.value)


def test_a_word_that_was_refused_changes_nothing() -> None:
    conversation = talk(KNOCK, GREETING)
    with pytest.raises(ProtocolError):
        conversation.rank_says(KNOCK)
    assert conversation.state is State.GREETED


def test_every_word_there_is_has_a_place_in_the_tables() -> None:
    refusals = {EnrolmentRefused, SessionRefused}
    assert {word for _, word in RANK_SAYS} == set(get_args(FromRankToServer))
    assert {word for _, word in SERVER_SAYS} - refusals == set(get_args(FromServerToRank))


@given(st.lists(st.sampled_from([*RANK_SAYS, *SERVER_SAYS])))
def test_every_state_but_the_end_leads_on(moves: list[tuple[State, type[Message]]]) -> None:
    state = State.STRANGER
    for _, word in moves:
        state = {**RANK_SAYS, **SERVER_SAYS}.get((state, word), state)
    leads_on = any(at is state for at, _ in (*RANK_SAYS, *SERVER_SAYS))
    assert leads_on == (state is not State.ENDED)


def test_the_page_about_the_protocol_shows_these_tables() -> None:
    page = protocol.PAGE.read_text()
    assert page == protocol.written(page), "run python -m tests.protocol"
