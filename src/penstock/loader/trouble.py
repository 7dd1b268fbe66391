"""The words for what cannot be done: what it was, why not, and what to do instead.

Errors of batches come from below, and say themselves what happened; here they are told which
batch of which loader it was.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any, Final, NoReturn

from penstock.client.batch import Batch
from penstock.errors import ChannelClosed
from penstock.loader.ranks import Ranks

log = logging.getLogger(__name__)

_NO_TORCH: Final = (
    "workers are not PyTorch's: they are fresh interpreters that sample, without torch, and serve "
    "several loaders"
)

# Keywords of torch's DataLoader that cannot be honoured, unless they are as here.
REFUSED: Final[dict[str, tuple[Callable[[Any], bool], str]]] = {
    "worker_init_fn": (
        lambda value: value is None,  # which nobody calls, where there are no workers
        f"{_NO_TORCH}. What is to happen to batches belongs into `transform`, which runs here",
    ),
    "multiprocessing_context": (
        lambda value: value is None or _method(value) in ("spawn", "forkserver"),
        f"{_NO_TORCH}. They are never forked",
    ),
    "batch_size": (
        lambda value: value is not None,
        "every batch is made of several inputs: give their number",
    ),
}


def check_honoured(name: str, value: Any) -> None:
    """ValueError, with the reason, for an argument that cannot be honoured."""
    fine, reason = REFUSED[name]
    if not fine(value):
        raise ValueError(f"{name} is {value!r}, which cannot be honoured: {reason}")


def _method(context: Any) -> Any:
    """The name of a way to start processes."""
    return context if isinstance(context, str) else getattr(context, "_name", None)


def check_process(who: str, owner: int) -> None:
    """RuntimeError in a process other than the one the loader was made in."""
    if os.getpid() != owner:
        raise RuntimeError(
            f"this {who} belongs to process {owner}, and does not survive a fork: make the loader "
            "in the process that reads it (of the same graph: open it by its path, or join the hub "
            "by loader.address), or start processes by 'spawn'"
        )


def refuse_pickling(who: str) -> NoReturn:
    """TypeError: what a loader reads from belongs to one process."""
    raise TypeError(
        f"a {who} cannot be pickled: it reads from processes that belong to this one. Send the "
        "path of a saved graph, or loader.address, and make a loader over there"
    )


def closed(who: str) -> ChannelClosed:
    """The error for using a loader that was closed."""
    return ChannelClosed(f"this {who} was closed: make another one")


def superseded(who: str, epoch: int) -> RuntimeError:
    """The error for going on with an iterator when the loader goes on from a state."""
    return RuntimeError(
        f"this iterator reads epoch {epoch} of a {who} that has gone back to a state since: "
        "iter(loader) goes on from there"
    )


def timed_out(who: str, seconds: float, step: int) -> TimeoutError:
    """The error for a batch that did not come in time; asking again goes on waiting."""
    return TimeoutError(
        f"{who} timed out after {seconds:g} s, waiting for batch {step} of its epoch (setting: "
        "timeout). It has not been given up: iterating goes on with it"
    )


def name_batch(error: Exception, who: str, batch: Batch) -> None:
    """Notes with an error that struck in the rank which batch it struck."""
    instead = f", in the place of step {batch.step}'s own" if batch.substitute else ""
    error.add_note(
        f"in epoch {batch.epoch}, step {batch.step}, batch {batch.index}{instead}, of a {who}"
    )


def tell_once(ranks: Ranks) -> None:
    """Says that batches are shared out, which scripts for PyG's loaders do themselves."""
    if ranks not in _told:
        _told.add(ranks)
        log.warning(
            "rank %d of %d, as %s has it: loaders take one batch in %d of the list. If their "
            "inputs are this rank's share already, give rank=0 and world_size=1",
            ranks.rank,
            ranks.world_size,
            ranks.told_by,
            ranks.world_size,
        )


def tell_of_share(name: str, ranks: Ranks) -> None:
    """Says of a loader that takes inputs in order, as for inference, that it reads but a share."""
    log.warning(
        "%s is not shuffled, and reads one batch in %d (rank %d of %d, as %s has it): for all of "
        "its inputs, as in inference, give rank=0 and world_size=1",
        name,
        ranks.world_size,
        ranks.rank,
        ranks.world_size,
        ranks.told_by,
    )


_told: set[Ranks] = set()
