"""The scheduler's own figures against the ledger's: every number it tells must be one that is true.

Only facts are compared; what the scheduler merely thinks (estimates, virtual times) is its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from penstock.core.statistics import ChannelStatistics, GroupStatistics, SchedulerStatistics
from tests.core.scheduler_books import ChannelBook, CrewBook, Holder, Phase
from tests.core.scheduler_model import Ledger


def audit(ledger: Ledger, figures: SchedulerStatistics) -> None:
    """Raises AssertionError where the two differ."""
    here = [book for book in ledger.channels.values() if book.phase is not Phase.GONE]
    told = {channel.id: channel for channel in figures.channels}
    assert set(told) == {book.id for book in here}
    for book in here:
        audit_channel(book, told[book.id])
    assert {group.group for group in figures.groups} == set(ledger.groups)
    for group in figures.groups:
        audit_group(ledger, ledger.groups[group.group], group)
    audit_totals(ledger.channels.values(), figures)


def audit_channel(book: ChannelBook, told: ChannelStatistics) -> None:
    holders = [slot.holder for slot in book.slots]
    again = len(book.waiting())
    facts = {
        "group": book.entry.group,
        "phase": book.phase.value,
        "epoch": book.epoch,
        "handed_out": book.handed,
        "delivered": book.count("delivered"),
        "failed": book.count("failed"),
        "cancelled": book.count("cancelled"),
        "total": len(book.steps),
        "runnable": book.can_give,
        "in_flight": len(book.flights) - again,
        "waiting_again": again,
        "slots_free": holders.count(Holder.NOBODY),
        "slots_reserved": holders.count(Holder.BATCH),
        "slots_with_rank": holders.count(Holder.RANK),
        "weight": book.weight,
        "stray_returns": book.strays,
        "errors_retried": book.errors_retried,
    }
    for name, fact in facts.items():
        assert getattr(told, name) == fact, f"channel {book.id}: {name} is {fact}; {told}"
    if not math.isnan(book.service):  # a worker told what it cost, and it made no sense
        close = math.isclose(told.service, book.service, rel_tol=1e-6, abs_tol=1e-3)
        assert close, f"channel {book.id}: service is {book.service}; {told}"


def audit_group(ledger: Ledger, group: CrewBook, told: GroupStatistics) -> None:
    workers = group.workers.values()
    alive = [worker for worker in workers if worker.fault is None]
    facts = {
        "wanted": group.wanted,
        "starting": sum(worker.stays and worker.ready is None for worker in alive),
        "ready": len(group.serving()),
        "busy": sum(bool(worker.held) for worker in workers),
        "leaving": sum(worker.leave is not None for worker in alive),
        "doomed": group.dying,
        "in_flight": sum(len(worker.held) for worker in workers),
        "done": group.done,
    }
    for name, fact in facts.items():
        assert getattr(told, name) == fact, f"group {group.name!r}: {name} is {fact}; {told}"
    assert (told.breaker == "closed") is not ledger.breaker_open(group), f"{group}; {told}"


def audit_totals(books: Iterable[ChannelBook], figures: SchedulerStatistics) -> None:
    books = list(books)
    assert figures.totals.channels == len(books)
    assert figures.totals.errors_retried == sum(book.errors_retried for book in books)
    for how in ("delivered", "failed", "cancelled"):
        total = sum(book.totals.get(how, 0) for book in books)
        assert getattr(figures.totals, how) == total, f"{how}: {total}; {figures.totals}"
