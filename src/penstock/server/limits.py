"""How much a server takes on: checked before memory is reserved, refused in words."""

from __future__ import annotations

import threading
from dataclasses import dataclass, fields
from typing import Final

from penstock.errors import Overloaded

# Of whatever a rank calls itself and its work, which is shown in every statistic.
LONGEST_NAME: Final = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bytes, or numbers of things. A refusal names the one it was for.

    max_connections    connections, of whoever it may be
    max_strangers      those of them that have not said Hello yet; each costs up to 200 kB
    max_strangers_per_host   the same, of one host; not of this one, nor of proxies
    max_accepts        connections that are accepted in a second; others wait
    max_handshakes     TLS handshakes that are begun in a second; others wait
    max_sessions       connections that have said Hello
    max_channels       channels of remote ranks: of loaders, and by calls
    max_input_bytes    inputs of one channel
    max_inputs_bytes   inputs of all channels together
    max_batch_bytes    one batch
    max_arena_bytes    slots of all channels together, those of ranks on this host included; only
                       what batches have filled takes memory
    max_calls          calls of one session that are not answered yet
    max_call_bytes     arguments of calls, of one session: arrays; and others of more than 4 kB
                       each, 32 times
    max_calls_bytes    the same, of all together; and small ones, too
    max_answer_bytes   arrays of one answer, and of those that one session has not read
    max_answers_bytes  arrays of answers that were not read, of all sessions together
    max_partial_bytes  messages that have come in part, of all sessions together
    """

    max_connections: int = 8192
    max_strangers: int = 512
    max_strangers_per_host: int = 64
    max_accepts: int = 1000
    max_handshakes: int = 500
    max_sessions: int = 4096
    max_channels: int = 2048
    max_input_bytes: int = 8 << 30
    max_inputs_bytes: int = 32 << 30
    max_batch_bytes: int = 4 << 30
    max_arena_bytes: int = 1 << 40
    max_calls: int = 64
    max_call_bytes: int = 1 << 30
    max_calls_bytes: int = 4 << 30
    max_answer_bytes: int = 4 << 30
    max_answers_bytes: int = 16 << 30
    max_partial_bytes: int = 256 << 20

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{field.name} is {value!r}; expected a number above 0")


class Budget:
    """Something that there is so much of. Taken and given back by any thread."""

    def __init__(self, what: str, limit: int, setting: str) -> None:
        self._what = what
        self._limit = limit
        self._setting = setting
        self._lock = threading.Lock()
        self.taken = 0

    def take(self, amount: int) -> None:
        """Overloaded, if there is not so much left."""
        with self._lock:
            if self.taken + amount > self._limit:
                raise Overloaded(
                    f"there is no room for more {self._what}: {self.taken} of {self._limit} are "
                    f"taken, and {amount} asked for (setting: {self._setting})"
                )
            self.taken += amount

    def add(self, amount: int) -> None:
        """Takes it, limit or not: somebody looks at `taken` before there is more."""
        with self._lock:
            self.taken += amount

    def give(self, amount: int) -> None:
        """They are free again."""
        with self._lock:
            self.taken -= amount


def check_at_most(amount: int, limit: int, what: str, setting: str) -> None:
    """Overloaded, if one asks for more than anybody may have."""
    if amount > limit:
        raise Overloaded(
            f"{amount} {what}, and at most {limit} are taken at once (setting: {setting})"
        )
