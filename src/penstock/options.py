"""Every option of a loader and of a channel, setting of a pool and limit of a server, each once.

The rest follows from these structs: users' keywords and their types (`option_types.py`), what
`help` says of a loader, messages, the scheduler's settings, `penstock serve --limit` and `--pool`,
and `docs/options.md`. To add one, add a field here, use it where it matters, and run
`python -m tests.options`.

Users may write sizes as text and use other names for some options; the client parses that
(`client.keywords`), and all other code sees plain values. This module must not know who uses the
options.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from enum import StrEnum
from functools import cache
from types import NoneType
from typing import Annotated, Any, Final, get_args, get_origin, get_type_hints

import msgspec

from penstock.errors import suggestion

# Bytes of the largest batch, unless a channel or a server sets another limit.
LARGEST_BATCH: Final = 4 << 30
# The number of slots that `buffer_size` is divided into, unless a channel sets `slots`.
DIVIDED_INTO: Final = 4

_NOUNS: Final[dict[type, str]] = {
    bool: "True or False",
    int: "an integer",
    float: "a number",
    str: "text",
    tuple: "classes, or their names",
}


class Remainder(StrEnum):
    """What happens to the last batches of an epoch if they are fewer than the W ranks."""

    WRAP = "wrap"  # Every rank gets one; up to W - 1 batches from the list's start are repeated.
    DROP = "drop"  # No rank gets one; up to W - 1 batches of the epoch are left out.


class OnError(StrEnum):
    """What a rank gets instead of a batch that cannot be made (CONTRACT 19)."""

    RAISE = "raise"
    SUBSTITUTE = "substitute"


# --- how a field is declared -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class About:
    """What a field means, and which values it may have.

    Attributes:
        meaning: What the field is for, in one sentence. The documentation shows it.
        least: The smallest value.
        above: Every value is larger than this.
        most: The largest value.
        below: Every value is smaller than this.
        choices: The strings that the field may have as its value.
        is_size: The field is a number of bytes, which users may write as "64MB".
        kind: What the error for a value of the wrong type says is expected, if the type's name
            is not clear enough.
        aliases: Other names under which users may give the field.
        for_loaders: Loaders take the field as a keyword and pass it on. For the other fields,
            loaders have arguments of their own.
        written: The type of the keyword as it is written in code, if the field's own type does not
            say it: types of torch, which this module must not import, and several types at once.
    """

    meaning: str
    _: KW_ONLY
    least: float | None = None
    above: float | None = None
    most: float | None = None
    below: float | None = None
    choices: type[StrEnum] | None = None
    is_size: bool = False
    kind: str = ""
    aliases: tuple[str, ...] = ()
    for_loaders: bool = True
    written: str = ""

    def allows(self, value: Any) -> bool:
        """Return whether a value of the right type is within the bounds."""
        return (
            (self.least is None or value >= self.least)
            and (self.above is None or value > self.above)
            and (self.most is None or value <= self.most)
            and (self.below is None or value < self.below)
        )


@dataclass(frozen=True, slots=True)
class Field:
    """One field of an options struct: its name, type, default and description."""

    name: str
    kind: type
    is_optional: bool
    default: Any  # msgspec.NODEFAULT if the field is required
    about: About

    @property
    def names(self) -> tuple[str, ...]:
        """All names under which users may give the field."""
        return (self.name, *self.about.aliases)

    @property
    def is_count(self) -> bool:
        """Whether the field is an integer that is not a number of bytes."""
        return self.kind is int and not self.about.is_size

    def check(self, value: Any, name: str = "") -> None:
        """Raise ValueError if the field cannot have this value.

        Args:
            value: The value to check.
            name: The name that the user gave, for the message, if it is not the field's name.
        """
        if value is None and self.is_optional:
            return
        if not self._has_type(value):
            near = suggestion(value, self.about.choices or ())
            raise ValueError(f"{name or self.name} is {value!r}; expected {self._kind()}{near}")
        if not self.about.allows(len(value) if self.kind is tuple else value):
            raise ValueError(f"{name or self.name} is {value!r}; expected {self._range()}")

    def _has_type(self, value: Any) -> bool:
        if isinstance(value, bool):  # In Python, a bool is also an int.
            return self.kind is bool
        if self.about.choices is not None:
            return isinstance(value, str) and value in list(self.about.choices)
        if self.kind is tuple:
            return isinstance(value, tuple) and all(isinstance(each, str) for each in value)
        return isinstance(value, (int, float) if self.kind is float else self.kind)

    def _kind(self) -> str:
        return (self.about.kind or self._noun()) + (", or None" if self.is_optional else "")

    def _range(self) -> str:
        about = self.about
        if about.above is not None:
            return self._noun()
        least = f"at least {about.least:g}" if about.most is None else self._between()
        return f"{least} of {self._noun()}" if self.kind is tuple else least

    def _between(self) -> str:
        return f"{self.about.least:g} to {self.about.most:g}"

    def _noun(self) -> str:
        if self.about.choices is not None:
            return " or ".join(repr(choice.value) for choice in self.about.choices)
        above = "" if self.about.above is None else f" above {self.about.above:g}"
        return _NOUNS[self.kind] + above


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The base class of all option structs."""

    def check(self) -> None:
        """Raise a ValueError that names the first field whose value is not valid."""
        self.check_fields()

    def check_fields(self) -> None:
        """Check each field on its own, as `check` does, without rules that combine fields."""
        for field in fields_of(type(self)).values():
            field.check(getattr(self, field.name))


@cache
def fields_of(struct: type[Options]) -> Mapping[str, Field]:
    """Return the fields of a struct that are declared with an `About`, by name."""
    hints = get_type_hints(struct, include_extras=True)
    return {
        field.name: _field(field, hints[field.name])
        for field in msgspec.structs.fields(struct)
        if get_origin(hints[field.name]) is Annotated
    }


def _field(field: msgspec.structs.FieldInfo, hint: Any) -> Field:
    declared, about = get_args(hint)
    if get_origin(declared) is tuple:  # of text: the only kind there is
        return Field(field.name, tuple, False, field.default, about)
    types = get_args(declared) or (declared,)
    (plain,) = (each for each in types if each is not NoneType)
    return Field(field.name, plain, NoneType in types, field.default, about)


# --- the options -----------------------------------------------------------------------------


class BatchOptions(Options, frozen=True, kw_only=True):
    """How the inputs of a channel become the epoch's list of batches. They are part of the feed."""

    # No bounds here: `core.plan` and the kernels check batch sizes and seeds.
    batch_size: Annotated[int, About("Inputs of one batch.")]
    shuffle: Annotated[bool, About("Shuffle the inputs, in another order for each epoch.")] = False
    drop_last: Annotated[
        bool, About("Leave out the last batch of an epoch if it has fewer inputs.")
    ] = False
    seed: Annotated[int, About("All that is random follows from this number.")] = 0


class ChannelOptions(Options, frozen=True, kw_only=True, omit_defaults=True):
    """The options of one channel."""

    # No bounds for rank and world size here: `core.plan` checks them.
    rank: Annotated[
        int, About("Which rank of `world_size` reads this channel.", for_loaders=False)
    ] = 0
    world_size: Annotated[
        int,
        About(
            "How many ranks share the list of batches; rank r takes batches r, r + W, ….",
            for_loaders=False,
        ),
    ] = 1
    remainder: Annotated[
        str,
        About(
            "Where the last batches do not suffice for all ranks, 'wrap' takes some from the start "
            "of the list again, and 'drop' leaves them out.",
            choices=Remainder,
        ),
    ] = "wrap"
    slots: Annotated[
        int | None,
        About(
            "Batches that may be in the making, ready or in the reader's hands. None: enough to "
            "keep all workers busy, and more if batches are small.",
            least=1,
            most=1024,
            aliases=("buffer_capacity",),
            for_loaders=False,
        ),
    ] = None
    buffer_size: Annotated[
        int | None,
        About(
            "Bytes of all slots together. None: each slot has room for any batch that the spec can "
            "make; memory is used only where batches were written.",
            above=0,
            is_size=True,
            for_loaders=False,
        ),
    ] = None
    max_batch_bytes: Annotated[
        int | None,
        About(
            "Bytes that a batch larger than its slot may need. None: 4 GiB.",
            above=0,
            is_size=True,
        ),
    ] = None
    keep_pages: Annotated[
        bool,
        About(
            "Never give pages of unused slots back to the system: the reader has page-locked them "
            "for its GPU.",
            for_loaders=False,
        ),
    ] = False
    weight: Annotated[
        float,
        # Beyond these bounds a share would be practically nothing or everything, and sums of
        # virtual time would lose precision.
        About(
            "The channel's share of the workers, against other channels.",
            least=1e-4,
            most=1e4,
        ),
    ] = 1.0
    deadline: Annotated[
        float | None,
        About(
            "Seconds a batch may take; then its worker is replaced. None: no limit.",
            above=0,
            below=math.inf,
            kind="a number of seconds",
        ),
    ] = None
    max_attempts: Annotated[
        int,
        About("How often a batch may lose its worker before it fails.", least=1),
    ] = 3
    retry_errors: Annotated[
        int,
        About(
            "How often a batch that raised an error of `retry_on` is tried again, by another "
            "worker if one has room: after 0.1 s, then 0.2 s, 0.4 s and so on, up to 30 s. Then it "
            "fails.",
            least=0,
            most=1000,
        ),
    ] = 0
    retry_on: Annotated[
        tuple[str, ...],
        About(
            "The exceptions that `retry_errors` is for, with all that are derived from them: "
            "classes, or their names. The end of a name suffices: 'requests.exceptions.HTTPError' "
            "or 'HTTPError'.",
            least=1,
            most=64,
            written="type[BaseException] | str | Iterable[type[BaseException] | str]",
        ),
    ] = ("OSError", "TimeoutError")
    on_error: Annotated[
        str,
        About(
            "What becomes of a batch that cannot be made: 'raise' its error, or 'substitute' "
            "another batch for it.",
            choices=OnError,
        ),
    ] = "raise"
    max_substitutes: Annotated[
        int,
        About(
            "How many batches of an epoch may be substituted, with on_error='substitute': more of "
            "them are no accident.",
            least=0,
        ),
    ] = 16
    job: Annotated[
        str,
        About(
            "A name for the channel, in errors and logs.",
            aliases=("worker_key",),
            for_loaders=False,
        ),
    ] = ""

    def check(self) -> None:
        """Raise a ValueError that names the first field whose value is not valid."""
        super().check()
        if self.on_error == OnError.SUBSTITUTE and self.max_substitutes < 1:
            raise ValueError(
                f"max_substitutes is {self.max_substitutes}; expected at least 1 with "
                "on_error='substitute'"
            )

    @property
    def slot_bytes(self) -> int | None:
        """The bytes of one slot, or None if `buffer_size` is not set."""
        if self.buffer_size is None:
            return None
        return max(1, self.buffer_size // (self.slots or DIVIDED_INTO))

    @property
    def substitutes(self) -> int:
        """How many batches of an epoch may be substituted: 0 unless `on_error` allows it."""
        return self.max_substitutes if self.on_error == OnError.SUBSTITUTE else 0


class LoadingOptions(Options, frozen=True, kw_only=True):
    """What every loader takes beside what to sample, and beside the options of its channel.

    The fields before `seed` are those of torch's `DataLoader`. No bounds here: the loaders check
    them (`loader.pyg.options`), in torch's words.
    """

    batch_size: Annotated[int, About("Inputs of one batch.")] = 1
    shuffle: Annotated[
        bool | None,
        About("Shuffle the inputs, in another order for each epoch. None: in the order given."),
    ] = None
    sampler: Annotated[
        Any,
        About(
            "The order of the inputs, as positions; asked once per epoch, so it must end.",
            written="Iterable[Any] | None",
        ),
    ] = None
    batch_sampler: Annotated[
        Any,
        About(
            "The batches of an epoch, as lists of positions; asked once per epoch, so it must end. "
            "Instead of `batch_size`, `shuffle`, `sampler` and `drop_last`.",
            written="Iterable[Any] | None",
        ),
    ] = None
    num_workers: Annotated[
        Any,
        About(
            "0: batches are made in this process. Else by a pool that all loaders of the same data "
            "share, with the largest number of workers that any of them asks for; 'auto': as many "
            "as the machine has room for. None: 0, or the pool of a hub or server that is given as "
            "`data`. The bytes are the same in any case.",
            written='int | Literal["auto"] | None',
        ),
    ] = None
    device: Annotated[
        Any,
        About(
            "Where batches arrive: 'cuda', another device of torch's, or its number. They are "
            "copied while the model computes. 'cuda' is the device that is current when the first "
            "batch is asked for. None: in this process's memory.",
            written="torch.device | str | int | None",
        ),
    ] = None
    device_prefetch: Annotated[
        Any,
        About(
            "Bytes of batches, such as '512MB', that may be on a GPU before they are asked for, or "
            "on their way there; one batch in any case.",
            written="int | str",
        ),
    ] = "512MB"
    features: Annotated[
        Any,
        About(
            "Keep the rows of all nodes on this GPU, which is the loader's `device`: workers leave "
            "them out, and batches take them there. None: they come with the batches.",
            written="torch.device | str | int | None",
        ),
    ] = None
    feature_cache: Annotated[
        Any,
        About(
            "Bytes, such as '20GB', of the GPU that is the loader's `device` for the rows of nodes "
            "that are read most often; others are moved. Instead of `features`. None: all rows "
            "come with the batches.",
            written="int | str | None",
        ),
    ] = None
    pin_memory: Annotated[
        bool,
        About(
            "Have batches in page-locked memory, so that you can copy them to a GPU beside the "
            "model; with `device` that is done in any case."
        ),
    ] = False
    drop_last: Annotated[
        bool, About("Leave out the last batch of an epoch if it has fewer inputs.")
    ] = False
    timeout: Annotated[float, About("Seconds to wait for a batch. 0: no limit.")] = 0
    worker_init_fn: Annotated[
        Any,
        About(
            "Never called, with a warning: workers run no torch, and `transform` runs here.",
            written="Callable[[int], object] | None",
        ),
    ] = None
    multiprocessing_context: Annotated[
        Any,
        About(
            "Accepted if it is 'spawn' or 'forkserver': workers are never forked.",
            written="str | BaseContext | None",
        ),
    ] = None
    generator: Annotated[
        Any,
        About(
            "Where the seed is drawn from if `seed` is not given; not for several ranks.",
            written="torch.Generator | None",
        ),
    ] = None
    prefetch_factor: Annotated[
        int | None,
        About(
            "Batches made ahead, per worker. None: enough to keep all workers busy, and more if "
            "batches are small."
        ),
    ] = None
    persistent_workers: Annotated[
        bool, About("No effect: workers stay from epoch to epoch in any case.")
    ] = False
    pin_memory_device: Annotated[str, About("No effect; torch itself has given it up.")] = ""
    in_order: Annotated[bool, About("No effect: batches come in order in any case.")] = True
    seed: Annotated[
        int | None,
        About(
            "All that is random follows from this number. None: drawn from `generator`, or from "
            "torch's own; 0 with several ranks, which must agree."
        ),
    ] = None
    rank: Annotated[
        int | None,
        About(
            "Which rank of `world_size` this is. None: for a split by name, that of "
            "torch.distributed or of torchrun's environment; ids, masks and None are read whole."
        ),
    ] = None
    world_size: Annotated[
        int | None,
        About(
            "How many ranks share the list of batches; rank r takes batches r, r + W, …. None: as "
            "for `rank`. 1: all batches."
        ),
    ] = None
    order: Annotated[
        Any,
        About(
            "'part': every batch has inputs of one part of a graph in parts, so that most of what "
            "it reads is at one server; with `shuffle`, inputs are shuffled within their parts, "
            "and batches among parts. Only the last batch of each part may be smaller; `drop_last` "
            "leaves these out. None: batches have inputs of all parts.",
            written='Literal["part"] | None',
        ),
    ] = None
    prefetch: Annotated[
        int | None, About("Batches made ahead, by all workers together; see `prefetch_factor`.")
    ] = None
    part_only: Annotated[
        bool,
        About(
            "Sample a part of a graph by itself, without its neighbours in other parts. Otherwise "
            "a part is an error: read from the store of all parts."
        ),
    ] = False


class PoolOptions(Options, frozen=True, kw_only=True, omit_defaults=True):
    """The settings of a hub's worker pool. Times are in seconds; infinity means no limit."""

    worker_concurrency: Annotated[
        int, About("Batches that a worker holds at once; it makes them one after another.", above=0)
    ] = 2
    beat_every: Annotated[
        float, About("Seconds from one heartbeat of a worker to the next.", above=0)
    ] = 1.0
    silence: Annotated[
        float, About("Seconds without a heartbeat after which a worker is killed.", above=0)
    ] = 10.0
    start_limit: Annotated[
        float, About("Seconds that a worker may take from its start until it is ready.", above=0)
    ] = 60.0
    max_batches: Annotated[
        int | None,
        About("Batches that a worker makes before it is replaced. None: no limit.", above=0),
    ] = None
    max_age: Annotated[
        float | None,
        About("Seconds that a worker lives before it is replaced. None: no limit.", above=0),
    ] = None
    soft_memory: Annotated[
        int | None,
        About(
            "Bytes of private memory above which a worker is replaced once its batches are done. "
            "None: no limit.",
            above=0,
            is_size=True,
        ),
    ] = None
    hard_memory: Annotated[
        int | None,
        About(
            "Bytes of private memory above which a worker is killed. None: no limit.",
            above=0,
            is_size=True,
        ),
    ] = None
    max_channels: Annotated[int, About("Channels that the hub has room for.", above=0)] = 4096
    max_connections: Annotated[int, About("Connections that the hub has room for.", above=0)] = 8192
    max_arena_bytes: Annotated[
        int | None,
        About(
            "Bytes of the slots of all channels together. None: no limit.", above=0, is_size=True
        ),
    ] = None
    slow_step: Annotated[
        float, About("Seconds after which a step is named in the log.", above=0)
    ] = 1.0
    trim_after: Annotated[
        float,
        About("Seconds after which an unused slot gives its pages back to the system.", above=0),
    ] = 30.0

    def check(self) -> None:
        """Raise a ValueError that names the first field whose value is not valid."""
        super().check()
        if self.silence <= self.beat_every:
            raise ValueError(
                f"silence is {self.silence:g} s and beat_every {self.beat_every:g} s: between two "
                "heartbeats every worker would be taken for dead"
            )


def _count(meaning: str) -> About:
    return About(meaning, above=0)


def _size(meaning: str) -> About:
    return About(meaning, above=0, is_size=True)


class Limits(Options, frozen=True, kw_only=True):
    """The limits of a server, in bytes or as counts. A refusal names the limit that was reached.

    docs/options.md says what each limit bounds.

    Examples:
        >>> import penstock as ps
        >>> ps.Limits(max_channels=64, max_batch_bytes=1 << 30).max_channels
        64
    """

    max_connections: Annotated[int, _count("Connections, whoever has them.")] = 8192
    max_strangers: Annotated[
        int, _count("Connections that have not said Hello yet; each costs up to 200 kB.")
    ] = 512
    max_strangers_per_host: Annotated[
        int, _count("The same, of one host; neither of this one nor of proxies.")
    ] = 64
    max_accepts: Annotated[
        int, _count("Connections that are accepted in a second; others wait.")
    ] = 1000
    max_handshakes: Annotated[
        int, _count("TLS handshakes that are begun in a second; others wait.")
    ] = 500
    max_sessions: Annotated[int, _count("Connections that have said Hello.")] = 4096
    max_channels: Annotated[
        int, _count("Channels of remote ranks: those of loaders, and those opened by calls.")
    ] = 2048
    max_input_bytes: Annotated[int, _size("Inputs of one channel.")] = 8 << 30
    max_inputs_bytes: Annotated[int, _size("Inputs of all channels together.")] = 32 << 30
    max_batch_bytes: Annotated[int, _size("One batch.")] = LARGEST_BATCH
    max_arena_bytes: Annotated[
        int,
        _size(
            "Slots of all channels together, those of ranks on this host included; only what "
            "batches have filled takes memory."
        ),
    ] = 1 << 40
    max_calls: Annotated[int, _count("Calls of one session that are not answered yet.")] = 64
    max_call_bytes: Annotated[
        int,
        _size(
            "Arguments of calls of one session: arrays, and 32 times the bytes of other arguments "
            "of more than 4 kB each."
        ),
    ] = 1 << 30
    max_calls_bytes: Annotated[
        int, _size("The same, of all sessions together, with small arguments included.")
    ] = 4 << 30
    max_answer_bytes: Annotated[
        int, _size("Arrays of one answer, and of those that one session has not read.")
    ] = 4 << 30
    max_answers_bytes: Annotated[
        int, _size("Arrays of answers that were not read, of all sessions together.")
    ] = 16 << 30
    max_partial_bytes: Annotated[
        int, _size("Messages that have come in part, of all sessions together.")
    ] = 256 << 20

    def __post_init__(self) -> None:
        self.check()
