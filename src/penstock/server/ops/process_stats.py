"""Resource usage of the server's own process, and traffic of the host's network."""

from __future__ import annotations

import os
from dataclasses import dataclass

import psutil

from penstock.workers.restraints import private_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStats:
    """A snapshot, in bytes and seconds; network traffic counts since the host's start."""

    pid: int
    cpu_seconds: float
    resident_bytes: int
    private_bytes: int
    threads: int
    descriptors: int
    host_network_sent_bytes: int
    host_network_received_bytes: int


def process_stats() -> ProcessStats:
    """Return what this process uses now."""
    process = psutil.Process()
    with process.oneshot():
        times, memory = process.cpu_times(), process.memory_info()
        threads, descriptors = process.num_threads(), process.num_fds()
    network = psutil.net_io_counters()
    return ProcessStats(
        pid=os.getpid(),
        cpu_seconds=times.user + times.system,
        resident_bytes=memory.rss,
        private_bytes=private_bytes(),
        threads=threads,
        descriptors=descriptors,
        host_network_sent_bytes=network.bytes_sent,
        host_network_received_bytes=network.bytes_recv,
    )
