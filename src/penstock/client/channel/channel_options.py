"""The terms on which a channel is opened: as users name them, and as a hub is asked for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, TypedDict

import numpy as np

from penstock.client.sizes import parse_bytes
from penstock.wire.messages import Share

# Into how many slots a given size is cut, unless told.
SLOTS: Final = 4


class ChannelOptions(TypedDict, total=False):
    """What `register_input` takes beside the inputs. Only `batch_size` must be given.

    batch_size, shuffle, drop_last, seed   how the inputs are cut into the epoch's list of batches
    rank, world_size, remainder            which of them are for this channel; "wrap" or "drop"
    slots (or buffer_capacity)             batches that may be in the making, ready or in the
                                           reader's hands; else enough to keep all workers busy
    buffer_size                            bytes of all slots together; else enough for any batch
    max_batch_bytes                        what a batch larger than its slot may need
    weight                                 the channel's share of the workers
    deadline, max_attempts                 seconds a batch may take, and how often it may lose
                                           its worker
    on_error, max_substitutes              "raise", or "substitute" up to so many times an epoch
    job (or worker_key)                    a name for it, in errors and logs
    """

    batch_size: int
    shuffle: bool
    drop_last: bool
    seed: int
    rank: int
    world_size: int
    remainder: Literal["wrap", "drop"]
    slots: int | None
    buffer_capacity: int | None
    buffer_size: int | str | None
    max_batch_bytes: int | str | None
    weight: float
    deadline: float | None
    max_attempts: int
    on_error: Literal["raise", "substitute"]
    max_substitutes: int
    job: str
    worker_key: str


@dataclass(frozen=True, slots=True)
class _Kind:
    """What the values of a term are."""

    expected: str
    types: tuple[type, ...] = ()
    choices: tuple[Any, ...] = ()

    def has(self, value: Any) -> bool:
        if isinstance(value, bool):  # which Python takes for an integer
            return bool in self.types
        return isinstance(value, self.types) or (type(value) is str and value in self.choices)


_FLAG: Final = _Kind("True or False", (bool,))
_INTEGER: Final = _Kind("an integer", (int,))
_MAYBE: Final = _Kind("an integer, or None", (int, type(None)))
_TEXT: Final = _Kind("text", (str,))
# Sizes may be text, too, and are parsed.
_KINDS: Final = {
    **dict.fromkeys(("shuffle", "drop_last"), _FLAG),
    **dict.fromkeys(("batch_size", "seed", "rank", "world_size"), _INTEGER),
    **dict.fromkeys(("max_attempts", "max_substitutes"), _INTEGER),
    **dict.fromkeys(("slots", "buffer_capacity"), _MAYBE),
    **dict.fromkeys(("job", "worker_key"), _TEXT),
    "weight": _Kind("a number", (int, float)),
    "deadline": _Kind("a number of seconds, or None", (int, float, type(None))),
    "remainder": _Kind("'wrap' or 'drop'", choices=("wrap", "drop")),
    "on_error": _Kind("'raise' or 'substitute'", choices=("raise", "substitute")),
}

_CUTTING: Final = ("batch_size", "shuffle", "drop_last", "seed")
_SHARING: Final = ("rank", "world_size", "remainder")
_AS_THEY_ARE: Final = ("weight", "deadline", "max_attempts", "on_error", "max_substitutes")


def check_names(channel_options: ChannelOptions) -> None:
    """TypeError for a term there is none of, as Python has it."""
    for name in channel_options:
        if name not in ChannelOptions.__annotations__:
            there = ", ".join(ChannelOptions.__annotations__)
            raise TypeError(f"there is no term {name!r}; there are {there}")
    if "batch_size" not in channel_options:
        raise TypeError("batch_size is missing")


def check_values(channel_options: ChannelOptions) -> None:
    """ValueError for a value that is of the wrong kind for its term; its size others look at."""
    for name, value in channel_options.items():
        kind = _KINDS.get(name)
        if kind is not None and not kind.has(_plain(value)):
            raise ValueError(f"{name} is {value!r}; expected {kind.expected}")


def cutting(channel_options: ChannelOptions) -> dict[str, Any]:
    """What becomes part of the `Feed`."""
    return _picked(channel_options, _CUTTING)


def wishes(channel_options: ChannelOptions) -> dict[str, Any]:
    """What becomes part of the `Register`, but the feed."""
    slots = _plain(_either(channel_options, "slots", "buffer_capacity", None))
    if slots is None and channel_options.get("buffer_size") is not None:
        slots = SLOTS
    return {
        "share": Share(**_picked(channel_options, _SHARING)),
        "slots": slots,
        "slot_bytes": _slot_bytes(channel_options, slots),
        "most_bytes": _bytes(channel_options, "max_batch_bytes"),
        "job": _either(channel_options, "job", "worker_key", ""),
        **_picked(channel_options, _AS_THEY_ARE),
    }


def _picked(channel_options: ChannelOptions, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: _plain(value) for name, value in channel_options.items() if name in names}


def _plain(value: Any) -> Any:
    """Scalars of array libraries as Python's own, which is what the wire knows."""
    return value.item() if isinstance(value, np.generic) else value


def _either(channel_options: ChannelOptions, name: str, alias: str, default: Any) -> Any:
    """A term that has two names; one that is None was not given."""
    given: set[Any] = {channel_options.get(key) for key in (name, alias)} - {None}
    if len(given) > 1:
        raise ValueError(f"{name} and {alias} are the same, and were given as {sorted(given)}")
    return given.pop() if given else default


def _bytes(
    channel_options: ChannelOptions, name: Literal["buffer_size", "max_batch_bytes"]
) -> int | None:
    size = channel_options.get(name)
    return None if size is None else parse_bytes(_plain(size), name)


def _slot_bytes(channel_options: ChannelOptions, slots: Any) -> int | None:
    size = _bytes(channel_options, "buffer_size")
    if size is None or not isinstance(slots, int) or slots < 1:
        return None  # of slots that are no number, the registration complains
    return max(1, size // slots)
