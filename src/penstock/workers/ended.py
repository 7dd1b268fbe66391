"""What is known of a worker whose process has ended: facts only, no conclusions.

The pool gathers them, `autopsy` draws the conclusions.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from penstock.core.events import KillReason
from penstock.wire.messages import Heartbeat, OutOfMemory
from penstock.workers.oom import Kills
from penstock.workers.process import Exit


class Breach(Enum):
    """Why the pool ended a worker without being told to."""

    GARBLED = "garbled"  # it sent something that is no valid message
    DEAF = "deaf"  # it closed its connection and lived on
    UNTOLD = "untold"  # it missed a message that could not be sent
    CLOSING = "closing"  # the pool was closed, and it did not go when asked


@dataclass(frozen=True, slots=True)
class Ended:
    """A worker's process, after it was reaped and all its messages were read.

    `killed` is why the pool set out to end it, whatever it then died of; None: the pool did not.
    `state` is the kernel's letter for what it was doing at that moment. Times are in seconds;
    `beat_age` is the age of the last heartbeat at the end.
    """

    worker: int
    group: str
    pid: int
    exit: Exit
    was_ready: bool
    asked_to_leave: bool
    lived: float
    kills: Kills
    killed: KillReason | Breach | None = None
    state: str = ""
    last_beat: Heartbeat | None = None
    beat_age: float = 0.0
    struck: OutOfMemory | None = None
    garbled: str = ""  # what was wrong with its last message
    libraries: tuple[str, ...] = ()
    printed: str = ""  # the end of its output
    dropped: int = 0  # bytes of output before that

    @property
    def as_asked(self) -> bool:
        """Return whether it ended as it was asked to."""
        return self.asked_to_leave and self.exit.code == 0
