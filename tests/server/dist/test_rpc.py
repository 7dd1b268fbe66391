"""Calls as a stranger may send them: every one is answered, or refused in words."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from inspect import signature
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.msgpack import Ext

from penstock.client.dist_calls import VERBS
from penstock.client.remote.dist_server import RemoteDistServer
from penstock.errors import PenstockError, ProtocolError
from penstock.server.dist.dist_server import DistServer
from penstock.server.dist.rpc import answer, farewell
from penstock.wire.messages import Call
from tests.server.stores import BUYS, AsBytes, shop

REFUSALS = (ValueError, KeyError, TypeError, TimeoutError, PenstockError)

words = st.sampled_from(["train", "user", "item", "x", "coo", "", "tcp://", "../x", "k"])
plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | words
    | st.text(max_size=5)
    | st.binary(max_size=5)
    | st.just(list(BUYS))
    | st.sampled_from([Ext(1, b"0"), Ext(1, b"1"), Ext(2, b"0"), Ext(7, b"")]),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(words | st.integers(), inner, max_size=4)
    ),
    max_leaves=8,
)


@pytest.fixture(scope="module")
def server() -> Iterator[DistServer]:
    """Waits for nothing, so that no call can."""
    with shop() as graph, DistServer(graph, num_workers=0, request_timeout=0.001) as found:
        yield found
        assert found.statistics()["channels"] == {}


@st.composite
def calls(draw: st.DrawFn) -> Call:
    """Any verb, with arguments of the right names and of any kind."""
    verb = draw(st.sampled_from(sorted(set(VERBS) - {"exit"})))
    names = list(VERBS[verb].takes.__struct_fields__)
    keys = st.sampled_from(names) if names else words
    return Call(request=1, verb=verb, arguments=draw(st.dictionaries(keys, plain, max_size=5)))


@given(st.lists(calls(), min_size=10, max_size=10))
def test_any_arguments_are_answered_or_refused(server: DistServer, several: list[Call]) -> None:
    """CONTRACT 38: no call breaks the server, whatever comes with it."""
    arrays = {"0": np.array([0, 5]), "1": np.array([[1.5]])}
    for call in several:
        with suppress(*REFUSALS):
            answer(server, call, arrays, 1)
    farewell(server, 1)


def test_an_unknown_verb_is_refused(server: DistServer) -> None:
    """CONTRACT 38: also one that is a method, but none of those that may be called."""
    for verb in ("release", "close", "__class__", "", "get_everything"):
        with pytest.raises(ProtocolError, match="there is no verb"):
            answer(server, Call(request=1, verb=verb), {}, 1)


def test_arguments_that_a_verb_does_not_take_are_refused(server: DistServer) -> None:
    """CONTRACT 62: such as whose a channel is to be."""
    call = Call(request=1, verb="get_node_types", arguments={"holder": 3})
    with pytest.raises(ValueError, match="holder"):
        answer(server, call, {}, 1)


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_a_verb_is_the_same_method_on_both_sides(verb: str) -> None:
    """CONTRACT 30 to 39: in process and over a wire, the same arguments in the same order."""
    here, there = (signature(getattr(kind, verb)) for kind in (DistServer, RemoteDistServer))
    own = [name for name in here.parameters if name != "holder"]
    assert own == list(there.parameters)
    defaults = [here.parameters[name].default for name in own]
    assert defaults == [each.default for each in there.parameters.values()]
    assert set(own) - {"self"} == set(VERBS[verb].takes.__struct_fields__)


def test_a_wait_for_the_end_is_no_longer_than_any_call(server: DistServer) -> None:
    """CONTRACT 62: nobody keeps a thread of the server for ever."""
    assert not RemoteDistServer(AsBytes(server)).wait_for_exit()


def test_a_server_loads_neither_torch_nor_pyarrow() -> None:
    """The server's process is NumPy, kernels, messages."""
    look = (
        "import sys, penstock.server.ops.lifecycle, penstock.server.dist.rpc\n"
        "print(sorted({'torch', 'torch_geometric', 'pyarrow', 'duckdb'} & set(sys.modules)))"
    )
    done: Any = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr
