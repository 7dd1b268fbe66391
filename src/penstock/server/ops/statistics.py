"""What a server tells about itself: frozen snapshots, plain enough for JSON.

Logs, metrics and status pages read these and nothing else. The hub's own numbers are its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.server.ops.process_stats import ProcessStats


@dataclass(frozen=True, slots=True)
class SessionStatistics:
    """One connection. `channel`: its number, 0 without one; `credits`: batches it may yet get."""

    number: int
    name: str
    pid: int
    host: str
    peer: str
    state: str
    seconds: float  # since it came
    channel: int
    job: str
    slots: int
    credits: int
    batches: int
    calls: int
    calls_in_flight: int
    bytes_in: int
    bytes_out: int
    unsent: int  # words that wait for the rank to read


@dataclass(frozen=True, slots=True)
class ServerStatistics:
    """All of them, and what has been since the server began."""

    address: str
    boot: str
    seconds: float
    draining: bool
    sessions: tuple[SessionStatistics, ...]
    channels: int
    strangers: int  # connections that have not said Hello
    opened: int  # sessions there have been
    refused: int  # sessions, registrations and calls
    turned_away: int  # connections that were ended before they had a session
    leases_lost: int
    batches: int
    calls: int
    bytes_in: int
    bytes_out: int
    input_bytes: int  # of all channels, held now
    certificate_days: float | None = None  # until it expires
    process: ProcessStats | None = None
