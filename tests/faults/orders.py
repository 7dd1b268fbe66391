"""Faults on order for the workers of a pool that is started next, and whether they struck."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from penstock.workers.faults import VARIABLE


@dataclass(frozen=True)
class Order:
    """One fault. With a `token` (a file that the victim makes) it strikes once, else every time."""

    stage: str
    action: str
    match: dict[str, int] = field(default_factory=dict)
    token: Path | None = None

    @property
    def struck(self) -> bool:
        """Whether it did; only of one with a token."""
        assert self.token is not None
        return self.token.exists()

    def as_json(self) -> dict[str, Any]:
        order = {"stage": self.stage, "action": self.action, "match": self.match}
        return order if self.token is None else {**order, "once": str(self.token)}


def armed(orders: Iterable[Order]) -> dict[str, str]:
    """The environment in which workers obey these orders."""
    return {VARIABLE: json.dumps([order.as_json() for order in orders])}


def arm(monkeypatch: pytest.MonkeyPatch, *orders: Order) -> None:
    """Has all workers started from now on, within this test, obey."""
    for name, value in armed(orders).items():
        monkeypatch.setenv(name, value)
