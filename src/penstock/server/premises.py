"""What the door, the reception and the sessions of a server share. All of it is one thread's."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from penstock.server.admission import Admission
from penstock.server.desk import Answering, Desk
from penstock.server.enrolment import Enrolments
from penstock.server.limits import Budget, Limits
from penstock.server.questions import Visits
from penstock.server.router import Router
from penstock.server.session import Session
from penstock.server.watch import Watch
from penstock.wire.remote import Greeting


@dataclass(eq=False)
class Premises:
    """Tools, and books about who is here."""

    router: Router
    admission: Admission
    limits: Limits
    enrolments: Enrolments
    visits: Visits
    greeting: Greeting
    enrolling: Desk
    answering: Answering
    watch: Watch
    sessions: dict[bytes, Session] = field(default_factory=dict)
    touched: set[Session] = field(default_factory=set)
    leaving: str | None = None  # why no new sessions and channels are taken
    opened: int = 0
    refused: int = 0
    leases_lost: int = 0
    batches_before: int = 0  # of sessions that are over
    calls_before: int = 0

    def __post_init__(self) -> None:
        limits = self.limits
        self.call_budget = Budget("bytes", limits.max_calls_bytes, "max_calls_bytes")
        self.greeting_bytes = msgspec.msgpack.encode(self.greeting)
