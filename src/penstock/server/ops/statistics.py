"""Statistics of a server: frozen snapshots, plain enough for JSON.

Logs, metrics and status pages read these and nothing else. The hub has statistics of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.server.ops.process_stats import ProcessStats


@dataclass(frozen=True, slots=True)
class SessionStatistics:
    """One session. `channel`: its number, or 0; `credits`: batches it may get now."""

    number: int
    name: str
    pid: int
    host: str
    peer: str
    state: str
    seconds: float  # since it connected
    channel: int
    job: str
    slots: int
    credits: int
    batches: int
    calls: int
    calls_in_flight: int
    bytes_in: int
    bytes_out: int
    unsent: int  # messages queued for the rank


@dataclass(frozen=True, slots=True)
class ServerStatistics:
    """All sessions, and totals since the server started."""

    address: str
    boot: str
    seconds: float
    draining: bool
    sessions: tuple[SessionStatistics, ...]
    channels: int
    strangers: int  # connections that have not said Hello
    opened: int  # sessions so far
    refused: int  # sessions, registrations and calls
    turned_away: int  # connections closed before they had a session
    leases_lost: int
    batches: int
    calls: int
    bytes_in: int
    bytes_out: int
    input_bytes: int  # held now, of all channels
    certificate_days: float | None = None  # until it expires
    process: ProcessStats | None = None
