"""The tail of what a worker printed: bounded in memory, and in time per turn."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from penstock.workers.stderr import Tail

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.fixture
def pipe() -> Iterator[tuple[Tail, int]]:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    tail = Tail(reader, keep=100)
    yield tail, writer
    tail.close()
    os.close(writer)


def test_an_empty_pipe_is_not_waited_for(pipe: tuple[Tail, int]) -> None:
    tail, _ = pipe
    assert tail.drain() == 0
    assert not tail.ended


def test_the_last_bytes_are_kept(pipe: tuple[Tail, int]) -> None:
    tail, writer = pipe
    for number in range(1000):
        os.write(writer, f"{number:04}\n".encode())
        tail.drain()
    assert tail.bytes() == "".join(f"{number:04}\n" for number in range(980, 1000)).encode()
    assert (tail.total, tail.dropped) == (5000, 4900)


def test_memory_stays_bounded_however_small_the_pieces(pipe: tuple[Tail, int]) -> None:
    tail, writer = pipe
    for _ in range(1000):
        os.write(writer, b"x")
        tail.drain()
    assert len(tail._bytes) <= 200


def test_one_turn_takes_a_bounded_number_of_pieces(pipe: tuple[Tail, int]) -> None:
    tail, writer = pipe
    written = os.write(writer, bytes(60 << 10))
    assert tail.drain(pieces=0) == 0
    assert tail.drain(pieces=1) == written


def test_a_line_whose_beginning_is_gone_is_left_out(pipe: tuple[Tail, int]) -> None:
    tail, writer = pipe
    os.write(writer, b"a" * 200 + b"\nwhole\n")
    tail.drain()
    assert tail.text() == "whole\n"


def test_bytes_that_are_no_text_are_shown_as_such(pipe: tuple[Tail, int]) -> None:
    tail, writer = pipe
    os.write(writer, b"ok \xff\xfe\n")
    tail.drain()
    assert tail.text().startswith("ok ")


def test_the_end_is_noticed_and_what_was_printed_stays() -> None:
    reader, writer = os.pipe()
    tail = Tail(reader)
    os.write(writer, b"last words")
    os.close(writer)
    tail.drain()
    assert tail.ended
    tail.close()
    tail.close()
    assert (tail.text(), tail.drain()) == ("last words", 0)
