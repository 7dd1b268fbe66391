"""The types of users' keywords, for editors and type checkers.

Written by `python -m tests.options` from the structs in `penstock.options`; do not edit.
"""

from __future__ import annotations

from typing import Literal, TypedDict


class ChannelKeywords(TypedDict, total=False):
    """What a channel can be opened with. Only `batch_size` must be given."""

    # Inputs of one batch.
    batch_size: int

    # Shuffle the inputs, in another order for each epoch.
    shuffle: bool

    # Leave out the last batch of an epoch if it has fewer inputs.
    drop_last: bool

    # All that is random follows from this number.
    seed: int

    # Which rank of `world_size` reads this channel.
    rank: int

    # How many ranks share the list of batches; rank r takes batches r, r + W, ….
    world_size: int

    # Where the last batches do not suffice for all ranks, 'wrap' takes some from the start of the
    # list again, and 'drop' leaves them out.
    remainder: Literal["wrap", "drop"]

    # Batches that may be in the making, ready or in the reader's hands. None: enough to keep all
    # workers busy, and more if batches are small.
    slots: int | None
    buffer_capacity: int | None

    # Bytes of all slots together. None: each slot has room for any batch that the spec can make;
    # memory is used only where batches were written.
    buffer_size: int | str | None

    # Bytes that a batch larger than its slot may need. None: 4 GiB.
    max_batch_bytes: int | str | None

    # The channel's share of the workers, against other channels.
    weight: float

    # Seconds a batch may take; then its worker is replaced. None: no limit.
    deadline: float | None

    # How often a batch may lose its worker before it fails.
    max_attempts: int

    # What becomes of a batch that cannot be made: 'raise' its error, or 'substitute' another
    # batch for it.
    on_error: Literal["raise", "substitute"]

    # How many batches of an epoch may be substituted.
    max_substitutes: int

    # A name for the channel, in errors and logs.
    job: str
    worker_key: str


class PoolKeywords(TypedDict, total=False):
    """How the pool of a hub can be run."""

    # Batches that a worker holds at once; it makes them one after another.
    worker_concurrency: int

    # Seconds from one heartbeat of a worker to the next.
    beat_every: float

    # Seconds without a heartbeat after which a worker is killed.
    silence: float

    # Seconds that a worker may take from its start until it is ready.
    start_limit: float

    # Batches that a worker makes before it is replaced. None: no limit.
    max_batches: int | None

    # Seconds that a worker lives before it is replaced. None: no limit.
    max_age: float | None

    # Bytes of private memory above which a worker is replaced once its batches are done. None: no
    # limit.
    soft_memory: int | str | None

    # Bytes of private memory above which a worker is killed. None: no limit.
    hard_memory: int | str | None

    # Channels that the hub has room for.
    max_channels: int

    # Connections that the hub has room for.
    max_connections: int

    # Bytes of the slots of all channels together. None: no limit.
    max_arena_bytes: int | str | None

    # Seconds after which a step is named in the log.
    slow_step: float

    # Seconds after which an unused slot gives its pages back to the system.
    trim_after: float
