"""Errors of loaders: what happened, why, and what to do instead.

Errors of batches come from the layers below, with their own texts. Here a note is added that says
which batch of which loader it was.
"""

from __future__ import annotations

import os
import reprlib
from collections.abc import Sequence
from typing import NoReturn

from penstock.client.channel.batch import Batch
from penstock.errors import ChannelClosed


def check_process(who: str, owner: int) -> None:
    """Raise RuntimeError in a process other than the one that made the loader."""
    if os.getpid() != owner:
        raise RuntimeError(
            f"this {who} belongs to process {owner}, and does not survive a fork: make the loader "
            "in the process that reads it (of the same graph: open it by its path, or join the hub "
            "by loader.address), or start processes by 'spawn'"
        )


def refuse_pickling(who: str, unknown: Sequence[str]) -> NoReturn:
    """Raise TypeError: a loader is pickled by its arguments, and some are not known."""
    raise TypeError(
        f"a {who} cannot be pickled: {', '.join(unknown)} of its constructor is no attribute "
        "of it, so it cannot be made again. Keep it as one, or send the path of a saved graph or "
        "loader.address, and make a loader over there"
    )


def used_up(who: str, name: str, value: object) -> str:
    """Return the message for an argument that is assigned to a loader after it was made."""
    return (
        f"{name} of this {who} cannot be set to {reprlib.repr(value)}: it was used when the loader "
        "was made. Make another loader; those of the same data share its graph and its workers. "
        "What may be assigned: transform, transform_sampler_output, filter_per_worker, filter_fn, "
        "collate_fn, timeout"
    )


def closed(who: str) -> ChannelClosed:
    """Return the error for the use of a closed loader."""
    return ChannelClosed(f"this {who} was closed: make another one")


def superseded(who: str, epoch: int) -> RuntimeError:
    """Return the error for an iterator from before the loader was set to another state."""
    return RuntimeError(
        f"this iterator reads epoch {epoch} of a {who} that has gone back to a state since: "
        "iter(loader) goes on from there"
    )


def timed_out(who: str, seconds: float, step: int) -> TimeoutError:
    """Return the error for a batch that did not come in time; asking again continues to wait."""
    return TimeoutError(
        f"{who} timed out after {seconds:g} s, waiting for batch {step} of its epoch (setting: "
        "timeout). It has not been given up: iterating goes on with it"
    )


def name_batch(error: Exception, who: str, batch: Batch) -> None:
    """Add a note to an error raised in the rank that says which batch it concerns."""
    instead = f", in the place of step {batch.step}'s own" if batch.substitute else ""
    error.add_note(
        f"in epoch {batch.epoch}, step {batch.step}, batch {batch.index}{instead}, of a {who}"
    )
