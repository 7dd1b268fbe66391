"""Rows that are put in place while their answer comes: all of them, and never too late."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

from penstock.store.part_call import PartCall
from penstock.store.rows_target import PIECE, RowsTarget
from penstock.wire.messages import Answer, Call, Message
from penstock.wire.payload import pack
from tests.processes import until
from tests.rpc.puppets import PATIENCE_S, Puppet, frames
from tests.store.test_part_calls import Store

pytestmark = pytest.mark.usefixtures("no_leaks")

WIDTH = 24
# Many pieces, the last of which is not full, in several frames.
ROWS = 9 * PIECE // (4 * WIDTH) + 11
EMPTY = -1.0


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as found:
        yield found


@pytest.fixture
def replicas(no_leaks: None, threads: ThreadPoolExecutor) -> Iterator[Store]:
    with ExitStack() as ends:
        yield Store(ends, threads)


class Wanted:
    """Rows, and an array that has places for them between others."""

    def __init__(self, seed: int = 0, count: int = ROWS) -> None:
        rng = np.random.default_rng(seed)
        self.rows = rng.random((count, WIDTH), np.float32)
        self.out = np.full((2 * count, WIDTH), EMPTY, np.float32)
        self.positions = np.sort(rng.permutation(2 * count)[:count])
        self.target = RowsTarget(self.out, self.positions)

    def begin(self, replicas: Store) -> tuple[PartCall, Puppet, Puppet]:
        return replicas.begin("get_rows", into=self.target.sink)

    def frames(self, call: Call, lane: int = 1, rows: Any = None) -> list[bytes]:
        """What a server sends for an answer."""
        packed = pack({"0": self.rows if rows is None else rows})
        said: Message = Answer(request=call.request, arrays=packed.arrays)
        return list(frames(said, b"".join(packed.views), lane))

    def check(self) -> None:
        assert self.target.is_filled
        assert np.array_equal(self.out[self.positions], self.rows)
        others = np.ones(len(self.out), np.bool_)
        others[self.positions] = False
        assert (self.out[others] == EMPTY).all()

    @property
    def is_touched(self) -> bool:
        return bool((self.out != EMPTY).any())


def say_in_turn(server: Puppet, *answers: list[bytes]) -> None:
    """Frames of several answers, one of each at a time."""
    for at in range(max(map(len, answers))):
        for pieces in answers:
            if at < len(pieces):
                server.say_raw(pieces[at])


def test_rows_are_put_in_place_as_they_come(replicas: Store, threads: ThreadPoolExecutor) -> None:
    """Answers take turns on a connection: neither takes the rows of the other."""
    wanted = [Wanted(seed) for seed in range(4)]
    begun = [each.begin(replicas) for each in wanted]
    server = begun[0][1]
    calls = [
        (each, call)
        for each, (call, asked, _) in zip(wanted, begun, strict=True)
        if asked is server
    ]
    assert len(calls) == 2
    answers = [each.frames(server.hear(Call), lane=1 + at) for at, (each, _) in enumerate(calls)]
    told = threads.submit(say_in_turn, server, *answers)
    for each, call in calls:
        assert call.result(PATIENCE_S)[1]["0"].shape == (0, WIDTH)
        each.check()
    told.result(PATIENCE_S)


@pytest.mark.parametrize(
    "rows",
    [
        np.ones((ROWS, WIDTH), np.float64),
        np.ones((ROWS - 1, WIDTH), np.float32),
        np.ones((ROWS, WIDTH + 1), np.float32),
        np.ones((ROWS * WIDTH,), np.float32),
    ],
    ids=["dtype", "rows", "width", "shape"],
)
def test_an_answer_of_another_form_is_received_as_any_other(
    replicas: Store, threads: ThreadPoolExecutor, rows: Any
) -> None:
    wanted = Wanted()
    call, asked, _ = wanted.begin(replicas)
    told = threads.submit(say_in_turn, asked, wanted.frames(asked.hear(Call), rows=rows))
    assert np.array_equal(call.result(PATIENCE_S)[1]["0"], rows)
    told.result(PATIENCE_S)
    assert not wanted.target.is_filled
    assert not wanted.is_touched


def test_few_rows_are_received_as_any_other(replicas: Store) -> None:
    wanted = Wanted(count=3)
    call, asked, _ = wanted.begin(replicas)
    say_in_turn(asked, wanted.frames(asked.hear(Call)))
    assert np.array_equal(call.result(PATIENCE_S)[1]["0"], wanted.rows)
    assert not wanted.is_touched


def test_rows_of_a_server_that_is_lost_meanwhile_come_from_another(
    replicas: Store, threads: ThreadPoolExecutor
) -> None:
    wanted = Wanted()
    call, asked, other = wanted.begin(replicas)
    half = wanted.frames(asked.hear(Call))
    waiting = threads.submit(call.result, PATIENCE_S)
    for piece in half[: len(half) // 2 + 1]:
        asked.say_raw(piece)
    until(lambda: wanted.is_touched, "some rows are in place")
    asked.die()
    say_in_turn(other, wanted.frames(other.hear(Call)))
    waiting.result(PATIENCE_S)
    wanted.check()


def test_nothing_is_put_in_place_once_a_call_is_given_up(replicas: Store) -> None:
    """The array may belong to another batch by then."""
    wanted = Wanted()
    call, asked, _ = wanted.begin(replicas)
    pieces = wanted.frames(asked.hear(Call))
    half = len(pieces) // 2 + 1
    for piece in pieces[:half]:
        asked.say_raw(piece)
    until(lambda: replicas.store.reception.look() or wanted.is_touched, "some rows are in place")
    call.abandon()
    wanted.out[:] = EMPTY
    for piece in pieces[half:]:
        asked.say_raw(piece)
    # What is asked next is answered behind the rest of the rows, on the same connection.
    while (more := replicas.begin("get_more"))[1] is not asked:
        pass
    asked.say(Answer(request=asked.hear(Call).request, value="well"))
    assert more[0].result(PATIENCE_S)[0] == "well"
    assert not wanted.is_touched
    assert not wanted.target.is_filled
