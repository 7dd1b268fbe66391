"""Says in plain words what holds a program up: its loader, copies to a GPU, or its own model.

It judges one snapshot of a loader's statistics, or what happened between two of them. All
thresholds are here. It asks neither loaders nor hubs, and knows no torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from penstock.loader.watch.meter import LoaderStatistics

# With fewer batches than this, the first ones decide, which wait for workers and pages.
ENOUGH_BATCHES: Final = 10
# What takes a smaller share of the time than this is no bottleneck.
LITTLE: Final = 0.05

TOO_EARLY: Final = "too early to say what is waited for"


@dataclass(frozen=True, slots=True)
class Shares:
    """Which shares of a span of time were spent waiting, from 0 to 1.

    Attributes:
        batches: Batches that were delivered in that time.
        sampling: The program waited for a batch; likewise the following two, see `Waits`.
        transfer: Tensors were made over a batch's memory, or moved.
        transform: The user's transform ran.
        credit: The pool had no free slot for this loader; it waited beside the program.
        turn: The pool had no free worker for this loader; likewise.
        device_batches: The GPU had nothing to do before a batch was there; None without a GPU.
        device_copies: The GPU had nothing to do but to receive a batch; None without a GPU.
    """

    batches: int
    sampling: float
    transfer: float
    transform: float
    credit: float
    turn: float
    device_batches: float | None = None
    device_copies: float | None = None

    @property
    def is_enough(self) -> bool:
        """Whether there were enough batches to judge by."""
        return self.batches >= ENOUGH_BATCHES


def whole_run(numbers: LoaderStatistics) -> Shares:
    """Return the shares of all the time of iterating, without the wait for the first batch.

    That one is mostly for workers to start, and for the GPU.
    """
    start = min(numbers.time_to_first_batch or 0.0, numbers.waits.sampling)
    seconds = _seconds(numbers)
    seconds["sampling"] -= start
    return _shares(numbers.batches, seconds, numbers.seconds - start)


def between(first: LoaderStatistics, last: LoaderStatistics, span: float) -> Shares:
    """Return the shares of the time between two snapshots.

    Args:
        first: The earlier snapshot.
        last: The later one.
        span: The seconds between the two.
    """
    before, now = _seconds(first), _seconds(last)
    waited = {cause: now[cause] - before.get(cause, 0.0) for cause in now}
    return _shares(last.batches - first.batches, waited, span)


def verdict_of(numbers: LoaderStatistics, shares: Shares | None = None) -> str:
    """Return what the GPU waits for, or the program where there is no GPU, and what would help.

    Args:
        numbers: A snapshot of a loader's statistics.
        shares: The shares to judge by; None: those of the whole run.
    """
    shares = whole_run(numbers) if shares is None else shares
    if not shares.is_enough:
        return TOO_EARLY
    if shares.device_batches is None or shares.device_copies is None:
        return _of_program(numbers, shares)
    return _of_device(numbers, shares, shares.device_batches, shares.device_copies)


# --- who waits -----------------------------------------------------------------------------------


def _of_device(numbers: LoaderStatistics, shares: Shares, batches: float, copies: float) -> str:
    if max(batches, copies) < LITTLE:
        return "the GPU waits for nothing: your model is the bottleneck"
    if copies > batches:
        return f"the GPU waits for copies {copies:.0%} of the time: {_copies(numbers)}"
    cause = _largest(shares)
    why = _pool(numbers, shares) if cause == "sampling" else f"{_WORK[cause]} is the bottleneck"
    return f"the GPU waits for batches {batches:.0%} of the time: {why}"


def _of_program(numbers: LoaderStatistics, shares: Shares) -> str:
    cause = _largest(shares)
    share: float = getattr(shares, cause)
    if share < LITTLE:
        return "your program waits for nothing: its own work is the bottleneck"
    if cause == "sampling":
        why = _pool(numbers, shares)
        return f"your program waits for batches {share:.0%} of the time: {why}"
    return f"{_WORK[cause]} takes {share:.0%} of your program's time: it is the bottleneck"


def _largest(shares: Shares) -> str:
    """Return what the program itself spends most time on before it has a batch."""
    return max(("sampling", "transfer", "transform"), key=lambda cause: getattr(shares, cause))


# --- why -----------------------------------------------------------------------------------------

# What the program itself does with batches that have come.
_WORK: Final = {"transfer": "making tensors of batches", "transform": "your transform"}


def _pool(numbers: LoaderStatistics, shares: Shares) -> str:
    """Return why batches are not there in time, and what would help."""
    if not numbers.num_workers:
        return "give more workers (num_workers)"
    busy, ready, channels = _load(numbers.hub)
    if max(shares.credit, shares.turn) < LITTLE:
        return (
            f"workers are not the bottleneck ({busy} of {ready} busy), but the way to them, or "
            "epochs of few batches"
        )
    if shares.credit > shares.turn:
        return "slots are the bottleneck: give a larger prefetch, or keep fewer batches"
    if channels > 1:
        return (
            f"the workers are the bottleneck ({busy} of {ready} busy, for {channels} loaders): "
            "give more, or this loader a larger weight"
        )
    return f"the workers are the bottleneck ({busy} of {ready} busy): give more"


def _load(hub: dict[str, Any]) -> tuple[int, int, int]:
    """Return how many workers were busy and how many there were, and for how many channels."""
    scheduler = hub.get("scheduler", {})
    groups = scheduler.get("groups", ())
    served = sum(channel["in_flight"] > 0 for channel in scheduler.get("channels", ()))
    return sum(each["busy"] for each in groups), sum(each["ready"] for each in groups), served


def _copies(numbers: LoaderStatistics) -> str:
    device = numbers.device
    staged = device.staged / device.bytes if device is not None and device.bytes else 0.0
    if staged >= LITTLE:
        return f"{staged:.0%} of the bytes are not in page-locked memory, and copied once more"
    return "let batches have fewer bytes, or give a larger device_prefetch"


# --- arithmetic ----------------------------------------------------------------------------------


def _seconds(numbers: LoaderStatistics) -> dict[str, float]:
    """Return the seconds of waiting by cause, named as in `Shares`."""
    waits, device = numbers.waits, numbers.device
    found = {
        "sampling": waits.sampling,
        "transfer": waits.transfer,
        "transform": waits.transform,
        "credit": waits.credit,
        "turn": waits.turn,
    }
    if device is not None:
        found["device_batches"] = device.waited_for_batches
        found["device_copies"] = device.waited_for_copies
    return found


def _shares(batches: int, waited: dict[str, float], span: float) -> Shares:
    return Shares(batches, **{cause: _share(seconds, span) for cause, seconds in waited.items()})


def _share(seconds: float, span: float) -> float:
    # The pool counts from zero when a channel is opened again; and a wait is counted only when it
    # ends, and may be longer than the span.
    return min(max(seconds, 0.0) / span, 1.0) if span > 0 else 0.0
