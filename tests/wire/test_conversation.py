"""Who may send which message when: one table, for unix sockets and for TCP."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ProtocolError
from penstock.sampling.spec import Feed, NeighborSpec
from penstock.wire import messages
from penstock.wire.conversation import (
    TABLES,
    ConnectionRefused,
    Conversation,
    Medium,
    RegisterRefused,
    Side,
    State,
    union_of,
)
from penstock.wire.messages import (
    PROTOCOL,
    AskStatistics,
    Call,
    CreateBackend,
    FromRankToHub,
    FromRankToServer,
    Goodbye,
    Hello,
    Message,
    Refused,
    Register,
    Registered,
    Report,
    StartEpoch,
    Statistics,
    Unregister,
    Welcome,
)
from tests import protocol

UNIONS = {
    (Medium.UNIX, Side.RANK): messages.FromRankToHub,
    (Medium.UNIX, Side.HUB): messages.FromHubToRank,
    (Medium.TCP, Side.RANK): messages.FromRankToServer,
    (Medium.TCP, Side.HUB): messages.FromServerToRank,
}


def refused(request: int) -> Refused:
    return Refused(request=request, report=Report(kind="ValueError", message="no"))


def register(request: int = 1) -> Register:
    feed = Feed(num_inputs=0, batch_size=1)
    return Register(request=request, feed=feed, spec=NeighborSpec())


def talk(*said: Message, medium: Medium = Medium.TCP) -> Conversation:
    """A conversation of these messages; who may send which, their classes tell."""
    conversation = Conversation(medium)
    ranks = get_args(FromRankToServer if medium is Medium.TCP else FromRankToHub)
    for message in said:
        if isinstance(message, ranks):
            conversation.rank_says(message)
        else:
            conversation.hub_says(message)
    return conversation


HELLO = Hello(protocol=PROTOCOL, pid=1)
WELCOME = Welcome(protocol=PROTOCOL, boot="", pid=1, address="")
REGISTERED = Registered(request=1, channel=1, slots=1, most_bytes=1)


def test_a_whole_life_over_tcp_goes_through_every_state() -> None:
    said = [HELLO, WELCOME, register(), REGISTERED, Unregister(channel=1), Goodbye()]
    seen = [talk(*said[:count]).state for count in range(len(said) + 1)]
    assert seen == list(State)


def test_a_refused_registration_leaves_a_session_that_may_try_again() -> None:
    assert talk(HELLO, WELCOME, register(5), refused(5)).state is State.OPEN


def test_a_refused_call_changes_nothing_while_a_channel_is_opened() -> None:
    call = Call(request=4, verb="ping")
    assert talk(HELLO, WELCOME, call, register(5), refused(4)).state is State.REGISTERING


@pytest.mark.parametrize("medium", Medium)
@pytest.mark.parametrize("count", range(3))
def test_a_refusal_of_request_0_is_the_end_in_any_state(medium: Medium, count: int) -> None:
    conversation = talk(*[HELLO, WELCOME][:count], refused(0), medium=medium)
    assert conversation.state is State.ENDED
    with pytest.raises(ProtocolError, match="expected nothing more"):
        conversation.rank_says(StartEpoch(channel=1, epoch=0))


def test_a_message_too_early_is_refused_by_name_with_what_was_expected() -> None:
    with pytest.raises(ProtocolError, match="StartEpoch makes no sense now") as caught:
        talk(HELLO, WELCOME, StartEpoch(channel=1, epoch=0))
    assert "'open'; expected Call, Goodbye, Heartbeat, Register" in str(caught.value)


def test_over_unix_a_connection_may_have_any_number_of_channels() -> None:
    talk(HELLO, WELCOME, register(1), register(2), medium=Medium.UNIX)


def test_what_belongs_to_one_medium_is_refused_on_the_other() -> None:
    """CONTRACT 74"""
    with pytest.raises(ProtocolError, match="CreateBackend makes no sense"):
        talk(HELLO, WELCOME).rank_says(CreateBackend(request=1, spec=NeighborSpec()))
    with pytest.raises(ProtocolError, match="Goodbye makes no sense"):
        talk(HELLO, WELCOME, medium=Medium.UNIX).rank_says(Goodbye())
    with pytest.raises(ProtocolError, match="Statistics makes no sense"):
        talk(HELLO, WELCOME).hub_says(Statistics(request=1, numbers={}))


@pytest.mark.parametrize("medium", Medium)
def test_before_hello_nothing_may_be_asked(medium: Medium) -> None:
    """CONTRACT 74"""
    with pytest.raises(ProtocolError, match=r"'new'; expected .*Hello"):
        Conversation(medium).rank_says(AskStatistics(request=1))


def test_a_message_that_was_refused_changes_nothing() -> None:
    conversation = talk(HELLO, WELCOME)
    with pytest.raises(ProtocolError):
        conversation.rank_says(HELLO)
    assert conversation.state is State.OPEN


@pytest.mark.parametrize(("medium", "side"), UNIONS)
def test_every_message_has_a_place_in_the_table_and_no_other_is_decoded(
    medium: Medium, side: Side
) -> None:
    """CONTRACT 74: the unions that are decoded by are those of the table."""
    assert set(get_args(union_of(medium, side))) == set(get_args(UNIONS[medium, side]))


@pytest.mark.parametrize("medium", Medium)
@given(moves=st.lists(st.tuples(st.sampled_from(Side), st.integers(0, 30))))
def test_every_state_but_the_end_leads_on(medium: Medium, moves: list[tuple[Side, int]]) -> None:
    state = State.NEW
    for side, number in moves:
        allowed = list(TABLES[medium, side][state].values())
        state = allowed[number % len(allowed)] if allowed else state
    leads_on = any(TABLES[medium, side][state] for side in Side)
    assert leads_on == (state is not State.ENDED)


def test_the_refusals_that_are_only_told_apart_here_are_never_sent() -> None:
    for union in UNIONS.values():
        assert not {RegisterRefused, ConnectionRefused} & set(get_args(union))


def test_the_page_about_the_protocol_shows_this_table() -> None:
    page = protocol.PAGE.read_text()
    assert page == protocol.written(page), "run python -m tests.protocol"
