"""A worker for tests of the pool: speaks as a worker does, and then misbehaves as it is told.

python -m tests.workers.understudy --socket FD        # UNDERSTUDY=<name of a behaviour>
"""

from __future__ import annotations

import faulthandler
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable

from penstock.wire.framing import HEADER
from penstock.wire.messages import (
    BatchId,
    Begun,
    CloseChannel,
    Done,
    FromHubToWorker,
    Heartbeat,
    OutOfMemory,
    Ready,
    Retire,
)
from penstock.wire.stream import Stream

BATCH = BatchId(3, 1, 4)
Line = Stream[FromHubToWorker]


def main() -> None:
    behaviour = BEHAVIOURS[os.environ["UNDERSTUDY"]]
    sock = socket.socket(fileno=int(sys.argv[2]))
    sock.set_inheritable(False)
    behaviour(Stream(sock, FromHubToWorker))


def be_ready(line: Line, when_asked_for_stacks: Callable[[], object] | None = None) -> None:
    if when_asked_for_stacks is None:
        faulthandler.register(signal.SIGUSR1, all_threads=True)
    else:
        signal.signal(signal.SIGUSR1, lambda *_: when_asked_for_stacks())
    heard(line)
    line.send(Ready(pid=os.getpid()))


def heard(line: Line) -> list[FromHubToWorker]:
    """What the hub says next; at its end, ours."""
    line.wait()
    messages = [message for message, _ in line.receive()]
    if line.ended:
        os._exit(1)
    return messages


def serve(line: Line) -> None:
    """Answers nothing, and goes when asked."""
    be_ready(line)
    while not any(isinstance(message, Retire) for message in heard(line)):
        pass


def die_with_all_said(line: Line) -> None:
    be_ready(line)
    line.send(Begun(batch=BATCH))
    line.send(Done(batch=BATCH, cost=0.5, layouts=(), nbytes=0))
    os.kill(os.getpid(), signal.SIGKILL)


def die_with_half_a_message(line: Line) -> None:
    be_ready(line)
    line.send(Begun(batch=BATCH))
    frame = line.encode(Done(batch=BATCH, cost=0.5, layouts=(), nbytes=0))
    os.write(line.fileno(), frame[: len(frame) // 2])
    os.kill(os.getpid(), signal.SIGKILL)


def talk_much_and_die(line: Line) -> None:
    """More than a socket holds, so that all of it is said only if somebody listens."""
    be_ready(line)
    for number in range(20_000):
        line.send(Heartbeat(private=1, cpu=0.0, batches=number))
        line.flush(60.0)
    os.kill(os.getpid(), signal.SIGKILL)


def kill_itself(line: Line) -> None:
    be_ready(line)
    os.kill(os.getpid(), int(os.environ["UNDERSTUDY_SIGNAL"]))


def beat_and_exit(line: Line) -> None:
    be_ready(line)
    line.send(Heartbeat(private=48 << 20, cpu=1.5, batches=7, batch=BATCH))
    os._exit(3)


def exit_0(line: Line) -> None:
    be_ready(line)
    sys.exit(0)


def fail_at_import(line: Line) -> None:
    raise ModuleNotFoundError("No module named 'samplers_of_mine'")


def meet_the_limit(line: Line) -> None:
    be_ready(line)
    line.send(OutOfMemory(batch=BATCH, limit=256 << 20, private=250 << 20))
    sys.exit(1)


def fill_memory(line: Line) -> None:
    be_ready(line)
    heard(line)
    print(len(bytearray(512 << 20)))


def talk_nonsense(line: Line) -> None:
    be_ready(line)
    os.write(line.fileno(), HEADER.pack(3, 0, 0, 0) + b"abc")
    threading.Event().wait()


def hang_up(line: Line) -> None:
    be_ready(line)
    line.close()
    threading.Event().wait()


def print_megabytes(line: Line) -> None:
    be_ready(line)
    for number in range(200_000):
        print(f"line {number:08} of very many", file=sys.stderr)
    sys.exit(3)


def close_its_output(line: Line) -> None:
    os.close(1)
    os.close(2)
    serve(line)


def leave_a_child(line: Line) -> None:
    """Somebody else then holds its pipe, and by a fork its connection too."""
    be_ready(line)
    os.set_inheritable(line.fileno(), True)
    child = subprocess.Popen(
        [sys.executable, "-c", "import threading; threading.Event().wait()"], close_fds=False
    )
    line.send(Heartbeat(private=child.pid, cpu=0.0, batches=0))
    os.kill(os.getpid(), signal.SIGKILL)


def stay(line: Line) -> None:
    """Neither a word nor SIGTERM moves it."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    be_ready(line)
    threading.Event().wait()


def hang_by_name(line: Line) -> None:
    def stuck_in_a_sampler() -> None:
        line.send(Begun(batch=BATCH))
        threading.Event().wait()

    be_ready(line)
    stuck_in_a_sampler()


def hang_before_it_is_ready(line: Line) -> None:
    threading.Event().wait()


def never_stop_printing(line: Line) -> None:
    be_ready(line, lambda: None)
    while True:
        print("la", file=sys.stderr)


def speak_when_asked_for_stacks(line: Line) -> None:
    be_ready(line, lambda: line.send(Begun(batch=BATCH)))
    while True:
        signal.pause()


def crash_when_asked_for_stacks(line: Line) -> None:
    faulthandler.disable()
    be_ready(line, os.abort)
    while True:
        signal.pause()


def listen_late(line: Line) -> None:
    """Not before its cue, a signal; then all that was said must come, in order."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    heard(line)
    line.send(Ready(pid=os.getpid()))
    signal.sigwait([signal.SIGUSR1])
    channels: list[int] = []
    while len(channels) < 50_000:
        channels += [m.channel for m in heard(line) if isinstance(m, CloseChannel)]
    sys.exit(channels != list(range(50_000)))


def crash(line: Line) -> None:
    be_ready(line)
    faulthandler._sigsegv()  # type: ignore[attr-defined]


BEHAVIOURS: dict[str, Callable[[Line], None]] = {
    behaviour.__name__: behaviour
    for behaviour in (
        serve,
        die_with_all_said,
        die_with_half_a_message,
        talk_much_and_die,
        kill_itself,
        beat_and_exit,
        exit_0,
        fail_at_import,
        meet_the_limit,
        fill_memory,
        talk_nonsense,
        hang_up,
        print_megabytes,
        close_its_output,
        leave_a_child,
        stay,
        hang_by_name,
        hang_before_it_is_ready,
        never_stop_printing,
        speak_when_asked_for_stacks,
        crash_when_asked_for_stacks,
        listen_late,
        crash,
    )
}

if __name__ == "__main__":
    main()
