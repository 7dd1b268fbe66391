"""Memory shared with fresh interpreters: inherited, sent over a socket, and after SIGKILL."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from pathlib import Path

import msgspec
import numpy as np
import pytest

from penstock.graph.shared import ArrayHandle, NamedHandle, Segment, SharedArray, layout
from tests.graph.shared_children import (
    heard_from,
    kill,
    kinds,
    named_segments,
    run_child,
    segments_made_by,
    start_child,
)

pytestmark = pytest.mark.usefixtures("no_leaks")

NUMBERS = np.arange(100_000, dtype=np.int64)


@kinds
def test_a_fresh_interpreter_reads_what_it_inherits(kind: str) -> None:
    program = "say(SharedArray.attach(given_handle(), given_fd()).array.sum().item())"
    with SharedArray.from_array(NUMBERS, kind=kind) as shared:
        fds = shared.segment.descriptors
        assert run_child(program, shared.handle, *fds, pass_fds=fds) == NUMBERS.sum()


def test_an_inherited_descriptor_is_mapped_and_closed() -> None:
    program = """
before = open_descriptors()
shared = SharedArray.attach(given_handle(), given_fd())
say([given_fd() in before, sorted(before - open_descriptors()) == [given_fd()]])
"""
    with SharedArray.from_array(NUMBERS, kind="memfd") as shared:
        fds = shared.segment.descriptors
        assert run_child(program, shared.handle, *fds, pass_fds=fds) == [True, True]


def test_a_descriptor_travels_over_a_unix_socket_and_is_closed_once_mapped() -> None:
    program = """
before = open_descriptors()
with socket.socket(fileno=int(sys.argv[1])) as peer:
    message, [fd], _, _ = socket.recv_fds(peer, 4096, 1)
shared = SharedArray.attach(msgspec.msgpack.decode(message, type=ArrayHandle), fd)
say([shared.array.sum().item(), open_descriptors() == before - {int(sys.argv[1])}])
"""
    ours, theirs = socket.socketpair()
    with ours, theirs, SharedArray.from_array(NUMBERS, kind="memfd") as shared:
        send_array(ours, shared)
        said = run_child(program, theirs.fileno(), pass_fds=[theirs.fileno()])
        assert said == [NUMBERS.sum(), True]


def test_a_descriptor_does_not_reach_a_child_it_was_not_passed_to() -> None:
    with SharedArray.from_array(NUMBERS, kind="memfd"):
        names = "[os.readlink(f'/proc/self/fd/{fd}') for fd in open_descriptors()]"
        assert run_child(f"say([name for name in {names} if 'penstock' in name])") == []


@kinds
def test_a_fresh_interpreter_cannot_write_through_what_it_attached(kind: str) -> None:
    program = """
view = SharedArray.attach(given_handle(), given_fd()).array
try:
    view[0] = 1
except ValueError as error:
    say(str(error))
"""
    with SharedArray.create(3, "int64", kind=kind) as shared:
        fds = shared.segment.descriptors
        said = run_child(program, shared.handle, *fds, pass_fds=fds)
        assert said == "assignment destination is read-only"


@kinds
def test_a_fresh_interpreter_writes_what_it_attached_writable(kind: str) -> None:
    program = """
shared = SharedArray.attach(given_handle(), given_fd(), writable=True)
shared.array[:] = [4, 5, 6]
say("written")
"""
    with SharedArray.create(3, "int64", kind=kind) as shared:
        fds = shared.segment.descriptors
        run_child(program, shared.handle, *fds, pass_fds=fds)
        assert shared.array.tolist() == [4, 5, 6]


@kinds
def test_many_arrays_cross_with_one_descriptor(kind: str) -> None:
    program = """
segment = Segment.attach(given_handle().segment, given_fd())
say([segment.view("int32", 3, 0).tolist(), segment.view("bool", 2, 64).tolist()])
"""
    (first, second), nbytes = layout([("int32", 3), ("bool", 2)])
    with Segment.create(nbytes, kind=kind) as segment:
        segment.view("int32", 3, first)[:] = [1, 2, 3]
        segment.view("bool", 2, second)[:] = [True, False]
        segment.freeze()
        handle, fds = SharedArray(segment, "int32", 3).handle, segment.descriptors
        assert run_child(program, handle, *fds, pass_fds=fds) == [[1, 2, 3], [True, False]]


@kinds
def test_an_attached_process_reads_on_after_its_creator_was_killed(
    kind: str, tmp_path: Path
) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        creator = start_creator(theirs, kind, tmp_path)
        with receive_array(ours) as shared:
            kill(creator)
            assert creator.returncode == -signal.SIGKILL
            assert shared.array.tolist() == [0, 1, 2]


def test_nothing_is_left_of_a_memfd_when_all_its_users_are_killed(tmp_path: Path) -> None:
    creator, _ = kill_creator_and_attached("memfd", tmp_path)
    assert (segments_made_by(creator), named_segments(tmp_path)) == ([], [])


def test_what_is_left_of_a_named_segment_is_swept_by_the_next_process(tmp_path: Path) -> None:
    _, path = kill_creator_and_attached("named", tmp_path)
    assert named_segments(tmp_path) == [path]
    program = """
with Segment.create(64, kind="named") as segment:
    say(os.listdir(os.path.dirname(segment.handle.path)) == [os.path.basename(segment.handle.path)])
"""
    assert run_child(program, PENSTOCK_SHARED_MEMORY_DIR=str(tmp_path)) is True


def kill_creator_and_attached(kind: str, folder: Path) -> tuple[int, str | None]:
    """Shares an array between two fresh interpreters, kills both; who made it, and its path."""
    attach = "shared = SharedArray.attach(given_handle(), given_fd()); say('attached')"
    ours, theirs = socket.socketpair()
    with ours, theirs:
        creator = start_creator(theirs, kind, folder)
        message, fds, _, _ = socket.recv_fds(ours, 4096, 1)
    handle = msgspec.msgpack.decode(message, type=ArrayHandle)
    reader = start_child(f"{attach}; wait_for_the_end()", handle, *fds, pass_fds=fds)
    for fd in fds:
        os.close(fd)
    assert heard_from(reader) == "attached"
    kill(creator, reader)
    assert (creator.returncode, reader.returncode) == (-signal.SIGKILL, -signal.SIGKILL)
    path = handle.segment.path if isinstance(handle.segment, NamedHandle) else None
    return creator.pid, path


def start_creator(peer: socket.socket, kind: str, folder: Path) -> subprocess.Popen[str]:
    """A fresh interpreter that makes an array, sends it through `peer`, and then waits."""
    program = """
shared = SharedArray.from_array(np.arange(3), kind=sys.argv[2])
with socket.socket(fileno=int(sys.argv[1])) as peer:
    message = msgspec.msgpack.encode(shared.handle)
    socket.send_fds(peer, [message], shared.segment.descriptors)
wait_for_the_end()
"""
    place = {"PENSTOCK_SHARED_MEMORY_DIR": str(folder)}
    return start_child(program, peer.fileno(), kind, pass_fds=[peer.fileno()], **place)


def receive_array(peer: socket.socket) -> SharedArray:
    """Attaches the array that was sent through the other end of `peer`."""
    message, fds, _, _ = socket.recv_fds(peer, 4096, 1)
    handle = msgspec.msgpack.decode(message, type=ArrayHandle)
    return SharedArray.attach(handle, *fds)


def send_array(peer: socket.socket, shared: SharedArray) -> None:
    """Sends an array through `peer` to whoever has the other end."""
    message = msgspec.msgpack.encode(shared.handle)
    socket.send_fds(peer, [message], shared.segment.descriptors)
