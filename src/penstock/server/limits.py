"""Budgets that keep a server within its limits.

They are checked before memory is reserved; a request beyond a limit is refused with the reason.
"""

from __future__ import annotations

import threading
from typing import Final

from penstock.errors import Overloaded

# Longest name of a rank or of its job; these names are shown in every statistic.
LONGEST_NAME: Final = 512


class Budget:
    """A limited amount of something. Any thread may take from it and give back."""

    def __init__(self, what: str, limit: int, setting: str) -> None:
        self._what = what
        self._limit = limit
        self._setting = setting
        self._lock = threading.Lock()
        self.taken = 0

    def take(self, amount: int) -> None:
        """Take an amount; raise `Overloaded` if less than that is left."""
        with self._lock:
            if self.taken + amount > self._limit:
                raise Overloaded(
                    f"there is no room for more {self._what}: {self.taken} of {self._limit} are "
                    f"taken, and {amount} asked for (setting: {self._setting})"
                )
            self.taken += amount

    def add(self, amount: int) -> None:
        """Take an amount even beyond the limit; the caller checks `taken` before it adds more."""
        with self._lock:
            self.taken += amount

    def give(self, amount: int) -> None:
        """Give an amount back."""
        with self._lock:
            self.taken -= amount


def check_at_most(amount: int, limit: int, what: str, setting: str) -> None:
    """Raise `Overloaded` if one request asks for more than any request may have."""
    if amount > limit:
        raise Overloaded(
            f"{amount} {what}, and at most {limit} are taken at once (setting: {setting})"
        )
