"""What keeps a server within its limits: checked before memory is reserved, refused in words."""

from __future__ import annotations

import threading
from typing import Final

from penstock.errors import Overloaded

# Of whatever a rank calls itself and its work, which is shown in every statistic.
LONGEST_NAME: Final = 512


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
