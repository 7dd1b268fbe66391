"""PyG's methods that configure a loader's workers, for workers that belong to a pool.

In PyG, each worker configures itself when it starts. Our workers do not load torch, sample with one
thread each, and serve all loaders of the same data. So they are configured from this process.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

import psutil

from penstock.client.hub.hub import Hub
from penstock.client.hub.hub_process import HubProcess
from penstock.loader.source.batch_source import BatchSource

log = logging.getLogger(__name__)


class WorkerMixin:
    """PyG's methods of these names."""

    _batches_from: BatchSource
    num_workers: int

    def enable_cpu_affinity(
        self, loader_cores: Sequence[Any] | None = None
    ) -> AbstractContextManager[None]:
        """Pin the current workers to these cores, one core (or a list) for each.

        Args:
            loader_cores: The cores. None: the first of those that this process may use.
        """
        hub = self._batches_from.hub()
        # A server's workers are on another host and cannot be pinned from here.
        return _on_cores(hub if isinstance(hub, Hub) else None, self.num_workers, loader_cores)

    @contextmanager
    def enable_multithreading(self, worker_threads: int | None = None) -> Iterator[None]:
        """Enable nothing: a worker samples with one thread, and there can be more workers.

        Without workers it is refused, as in PyG.

        Args:
            worker_threads: Ignored.
        """
        _check_workers("enable_multithreading", self.num_workers)
        yield

    @contextmanager
    def enable_memory_log(self) -> Iterator[None]:
        """Log the private memory of each worker when the context ends."""
        yield
        for worker in self._batches_from.hub_statistics().get("pool", {}).get("workers", ()):
            memory = worker["private"] / (1 << 20)
            log.debug("worker %s, pid %d: %.2f MB", worker["worker"], worker["pid"], memory)


def workers_of(hub: Hub) -> list[int]:
    """Return the process ids of all workers of the pool."""
    if isinstance(hub, HubProcess):
        hub.resize(hub.num_workers)  # returns when all are there
    return [worker["pid"] for worker in hub.statistics()["pool"]["workers"]]


def _check_workers(asked_by: str, num_workers: int) -> None:
    if num_workers < 1:
        raise ValueError(
            f"'{asked_by}' should be used with at least one worker (got {num_workers})"
        )


@contextmanager
def _on_cores(hub: Hub | None, num_workers: int, cores: Sequence[Any] | None) -> Iterator[None]:
    """Pin the pool's workers to these cores, one core (or a list) for each, inside the context."""
    _check_workers("enable_cpu_affinity", 0 if hub is None else num_workers)
    assert hub is not None
    if cores and len(cores) != num_workers:
        raise ValueError(
            f"The number of loader cores (got {len(cores)}) in 'enable_cpu_affinity' should match "
            f"with the number of workers (got {num_workers})"
        )
    pids = workers_of(hub)
    chosen = cores or psutil.Process().cpu_affinity()[:num_workers]
    before = {}
    try:
        for number, pid in enumerate(pids):
            with suppress(psutil.NoSuchProcess):  # just replaced
                process, wanted = psutil.Process(pid), chosen[number % len(chosen)]
                before[process] = process.cpu_affinity()
                try:
                    process.cpu_affinity(list(wanted) if isinstance(wanted, Sequence) else [wanted])
                except ValueError as error:  # it says which core is not there, and which are
                    raise ValueError(
                        f"loader_cores in 'enable_cpu_affinity' is {cores}: {error}"
                    ) from error
        yield
    finally:
        for process, everywhere in before.items():
            with suppress(psutil.NoSuchProcess):
                process.cpu_affinity(everywhere)
