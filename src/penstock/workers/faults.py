"""Fault injection: makes a worker die, hang or leak at a given stage.

For tests alone. PENSTOCK_FAULTS holds a JSON list of `InjectedFault`; without it this module is not
even imported. Each fault happens wherever its stage is reached and all of `match` agrees with the
batch:

    [{"stage": "writing", "action": "signal:SIGKILL", "match": {"index": 3, "attempt": 1}}]
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from typing import Final, Literal, NoReturn

import msgspec
import numpy as np
import numpy.typing as npt

VARIABLE: Final = "PENSTOCK_FAULTS"

Stage = Literal[
    "starting",  # before the worker is ready
    "idle",  # about to wait for messages
    "received",  # a batch is asked for, but not begun
    "sampling",  # begun; nothing is written
    "writing",  # some of its arrays are in the slot
    "before-message",  # the batch is complete, but not reported
    "mid-message",  # half of the message is sent
    "after-message",
]

_LEAK: Final = 32 << 20
_FLOOD: Final = 16 << 20


class InjectedFault(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What goes wrong, and when.

    `action` is one of

        signal:NAME    sent to itself: signal:SIGKILL, signal:SIGSTOP …
        raise          an exception
        hang           waits for ever, in Python
        hang-native    waits for ever in native code that holds the GIL
        leak           keeps 32 MiB more; leak:BYTES keeps that many
        fill-memory    takes memory until there is none
        segfault       reads unmapped memory
        overrun        writes beyond the end of the slot
        exit0          ends as if all was well; exitN with another code
        flood          prints 16 MiB to standard error

    `once` is a file: the fault happens only in the process that manages to create it. `match` is
    compared with worker, batches (made so far) and, of the current or the last batch, channel,
    epoch, step, index, slot and attempt.
    """

    stage: Stage
    action: str
    once: str | None = None
    match: dict[str, int] = {}


class Faults:
    """The faults of this process; `at` is called wherever a stage is reached."""

    def __init__(self, faults: list[InjectedFault]) -> None:
        self._faults = faults
        self._leaked: list[bytes] = []
        self.context: dict[str, int] = {}
        self.memory: npt.NDArray[np.uint8] | None = None

    @classmethod
    def armed(cls) -> Faults:
        """Return the faults that the environment asks for."""
        return cls(msgspec.json.decode(os.environ[VARIABLE], type=list[InjectedFault]))

    def due(self, stage: str) -> bool:
        """Return whether a fault would happen if this stage was reached now."""
        return any(self._is_meant(fault, stage) for fault in self._faults)

    def at(self, stage: str) -> None:
        """Run the faults that match this stage."""
        for fault in self._faults:
            if self._is_meant(fault, stage) and _first(fault.once):
                self._strike(fault.action)

    def _is_meant(self, fault: InjectedFault, stage: str) -> bool:
        return fault.stage == stage and fault.match.items() <= self.context.items()

    def _strike(self, action: str) -> None:
        match action.split(":"):
            case ["signal", name]:
                # Signal this thread: another one might handle it later.
                signal.pthread_kill(threading.get_ident(), signal.Signals[name])
            case ["raise"]:
                raise RuntimeError("a fault on order")
            case ["hang"]:
                threading.Event().wait()
            case ["hang-native"]:
                _hang_with_the_lock()
            case ["leak"]:
                self._leak(_LEAK)
            case ["leak", size]:
                self._leak(int(size))
            case ["fill-memory"]:
                self._fill_memory()
            case ["segfault"]:
                ctypes.string_at(0)
            case ["overrun"]:
                self._overrun()
            case ["flood"]:
                _flood()
            case [word] if word.startswith("exit"):
                os._exit(int(word.removeprefix("exit")))
            case _:
                raise ValueError(f"{VARIABLE}: {action!r} is no action")

    def _leak(self, size: int) -> None:
        self._leaked.append(b"\1" * size)  # ones: pages of zeros might never be touched

    def _fill_memory(self) -> NoReturn:
        while True:
            self._leak(_LEAK // 4)

    def _overrun(self) -> None:
        """Write one byte behind the slot, as a kernel with a wrong count would."""
        assert self.memory is not None
        ctypes.memset(self.memory.ctypes.data + self.memory.nbytes, 1, 1)


def _first(once: str | None) -> bool:
    if once is None:
        return True
    try:
        os.close(os.open(once, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        return False
    return True


def _hang_with_the_lock() -> NoReturn:
    pause = ctypes.PyDLL(None).pause  # unlike CDLL, PyDLL keeps the GIL
    while True:  # a signal handler, as that for stacks, ends a pause
        pause()


def _flood() -> None:
    line = b"much ado about nothing " * 40 + b"\n"
    for _ in range(_FLOOD // len(line)):
        os.write(2, line)
