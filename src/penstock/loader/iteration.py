"""Reading an epoch: batches in order, each the user's at the moment it is returned.

An exception may strike anywhere on the way, Ctrl-C too. What was delivered by then is what counts;
whatever was on its way is made again when somebody goes on. One thread reads at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from penstock.client.batch import Batch
from penstock.loader import trouble
from penstock.loader.run import Run

if TYPE_CHECKING:
    from penstock.loader.base import Loader


class Iteration(Iterator[Any]):
    """What `iter(loader)` gives. Keeps the loader alive."""

    def __init__(self, loader: Loader, run: Run) -> None:
        self._loader = loader
        self._run = run

    def __len__(self) -> int:
        """Steps of the epoch, those that were taken included; as torch has it."""
        return self._run.plan.batches_per_rank

    def __next__(self) -> Any:
        loader, run = self._loader, self._run
        loader.check_reads(run)
        run.touched = True
        if run.astray:
            loader._supply.start(run)
        run.astray = True
        batch = self._taken()
        if batch is None:
            run.astray = False
            loader._meter.pause()
            raise StopIteration
        data = self._finished(batch)
        loader._meter.count(batch)
        # No calls from here on, hence no interrupts: what is returned was delivered.
        run.step = batch.step + 1
        run.astray = False
        return data

    def _taken(self) -> Batch | None:
        loader, run = self._loader, self._run
        try:
            with loader._meter.at("sampling"):
                return loader.next_of(run)
        except Exception as error:
            # A batch that failed is passed; one that has not come in time is not.
            failed, run.step = loader._supply.due(run) > run.step, loader._supply.due(run)
            run.astray = False
            loader._meter.failed += failed
            if failed or not isinstance(error, TimeoutError) or not loader.timeout:
                raise
            who = type(loader).__name__
            raise trouble.timed_out(who, loader.timeout, run.step) from error

    def _finished(self, batch: Batch) -> Any:
        """The batch as the user wants it; an error on the way passes it, as any batch's does."""
        try:
            return self._loader.finished(batch, self._run.inputs_of(batch))
        except Exception:
            self._run.step = batch.step + 1
            self._run.astray = False
            self._loader._meter.failed += 1
            raise
