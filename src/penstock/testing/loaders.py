"""Check that a loader can be saved anywhere and resumed: to run in one's own tests.

    def test_my_loader_can_go_on():
        check_position(lambda **options: NeighborLoader(data, [5, 5], seed=1, **options),
                       num_workers=(0, 2), world_sizes=(2,))

For any object that is iterated epoch by epoch and has `state_dict` and `load_state_dict`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from penstock.kernels.arrays import check_integer
from penstock.testing.digests import digest_of
from penstock.testing.samplers import NotConforming

Make = Callable[..., Any]
Options = Mapping[str, Any]


def check_position(
    make_loader: Make,
    *,
    num_workers: Sequence[int] = (),
    world_sizes: Sequence[int] = (),
    digest: Callable[[Any], str] = digest_of,
    plain: bool = True,
) -> None:
    """Raise `NotConforming`, which says what is wrong, unless a loader's position is exact.

    The loader is saved and restored at the start, after the first batch, in the middle, before and
    after the last one, in the second epoch, after an early break, and after having been restored
    before. The restored loader must give exactly the batches that were left, and the next epoch's.

    Epochs must end, and have at least one batch. Loaders with a `close` are closed.

    Args:
        make_loader: makes a new loader of the same data each time.
        num_workers: also call `make_loader(num_workers=n)` for each of these.
        world_sizes: also call `make_loader(rank=r, world_size=n)` for each of these. Ranks take the
            batches of an epoch in turn, and must have the same state after the same number of
            batches.
        digest: batches are the same if their digests are.
        plain: states must be the same after a conversion to JSON and back.

    Raises:
        NotConforming: A rule is broken.
        ValueError: The loader has no batches.

    Examples:
        >>> import penstock as ps
        >>> from penstock.testing import check_position
        >>> graph = ps.Graph.from_coo([[0, 1, 2, 3], [1, 2, 3, 0]], num_nodes=4)
        >>> def make(**options):
        ...     return ps.NeighborLoader(graph, [2], batch_size=1, shuffle=True, seed=1, **options)
        >>> check_position(make, world_sizes=(2,))
    """
    workers = [check_integer(n, "num_workers", 0, 2**16) for n in num_workers]
    worlds = [check_integer(n, "world_sizes", 2, 2**16) for n in world_sizes]
    check = _Check(make_loader, digest, plain)
    check.lay_down()
    check.places()
    check.once_more()
    check.put_back()
    for number in workers:
        check.across({"num_workers": number}, f"with num_workers={number}")
    for number in worlds:
        check.out_of_ranks(number)
        check.into_ranks(number)


@dataclass(frozen=True)
class _Place:
    """A point at which to save: after `taken` batches of an epoch. `how` reading ended there."""

    epoch: int
    taken: int
    how: str = "saved"

    def __str__(self) -> str:
        return f"{self.how} after {self.taken} batches of epoch {self.epoch}"


@dataclass(eq=False)
class _Check:
    """One loader's check. `epochs` has the digests that every loader must give."""

    make: Make
    digest: Callable[[Any], str]
    plain: bool
    start: Any = None
    epochs: list[list[str]] = field(default_factory=list)

    # --- reading -----------------------------------------------------------------------------

    def open(self, stack: ExitStack, state: Any = None, **options: Any) -> Any:
        """Make a new loader, at a state if one is given."""
        loader = self.make(**options)
        if callable(close := getattr(loader, "close", None)):
            stack.callback(close)
        for name in ("state_dict", "load_state_dict"):
            if not callable(getattr(loader, name, None)):
                raise NotConforming(f"a {type(loader).__name__} has no method '{name}'")
        if state is not None:
            loader.load_state_dict(state)
        return loader

    def read(self, batches: Any) -> list[str]:
        """Return the digests of batches; none of the batches is held."""
        return [self.digest(batch) for batch in batches]

    def saved(self, loader: Any) -> Any:
        """Return a loader's state as it would come out of a file."""
        state = loader.state_dict()
        if not self.plain:
            return state
        try:
            return json.loads(json.dumps(state))
        except (TypeError, ValueError) as error:
            raise NotConforming(f"state_dict() is not what JSON can hold: {error}") from None

    def left_at(self, place: _Place, loader: Any) -> Any:
        """Read a loader from the start up to a place, and return its state there."""
        for epoch in range(place.epoch):
            self.compare(self.read(loader), self.epochs[epoch], f"epoch {epoch}")
        seen: list[str] = []
        if place.how == "left by a break":
            for batch in loader:
                seen.append(self.digest(batch))
                if len(seen) == place.taken:
                    break
            state = self.saved(loader)
        else:
            iterator = iter(loader)
            seen = self.read(islice(iterator, place.taken))
            if place.how == "read to the end":
                seen += self.read(iterator)
            state = self.saved(loader)
            del iterator  # after saving: without it, a loader may be elsewhere
        expected = self.epochs[place.epoch][: place.taken]
        self.compare(seen, expected, f"epoch {place.epoch}, read up to where it was {place}")
        return state

    # --- the checks --------------------------------------------------------------------------

    def lay_down(self) -> None:
        """Set the expected epochs: those read in one go from the state at the start."""
        with ExitStack() as stack:
            first = self.open(stack)
            self.start = self.saved(first)
            loader = self.open(stack, self.start)
            self.epochs = [self.read(loader) for _ in range(3)]
            if not self.epochs[0]:
                raise ValueError("the loader has no batches: there is nothing to check")
            self.compare(self.read(first), self.epochs[0], "a loader restored at the very start")

    def places(self) -> None:
        """Save in many places, and resume a new loader from each."""
        for place in self._places():
            with ExitStack() as stack:
                state = self.left_at(place, self.open(stack, self.start))
                self.goes_on(self.open(stack, state), place, f"a loader {place}, and restored")

    def _places(self) -> Iterator[_Place]:
        for epoch in (0, 1):
            size = len(self.epochs[epoch])
            for taken in sorted({0, 1, size // 2, size - 1, size}):
                yield _Place(epoch, taken)
            yield _Place(epoch, size, "read to the end")
            yield _Place(epoch, max(1, size // 2), "left by a break")

    def once_more(self) -> None:
        """Save a restored loader again, further on; and one that has not read anything."""
        size = len(self.epochs[0])
        half, more = size // 2, size // 2 + (size - size // 2) // 2
        with ExitStack() as stack:
            state = self.left_at(_Place(0, half), self.open(stack, self.start))
            state = self.saved(self.open(stack, state))
            loader = self.open(stack, state)
            iterator = iter(loader)
            what = "a loader saved and restored without reading, and then restored again"
            seen = self.read(islice(iterator, more - half))
            self.compare(seen, self.epochs[0][half:more], what)
            state = self.saved(loader)
            what = f"a loader restored after {half} batches, saved after {more} and restored"
            self.goes_on(self.open(stack, state), _Place(0, more), what)

    def put_back(self) -> None:
        """Restore a loader to its own earlier state while it is being read."""
        with ExitStack() as stack:
            loader, place = self.open(stack, self.start), _Place(0, len(self.epochs[0]) // 2)
            iterator = iter(loader)
            self.read(islice(iterator, place.taken))
            state = self.saved(loader)
            self.read(islice(iterator, 1))
            del iterator
            loader.load_state_dict(state)
            self.goes_on(loader, place, f"a loader {place}, read on, and put back")

    def across(self, options: Options, words: str) -> None:
        """Resume other loaders from the usual loader's state, and the other way round."""
        place = _Place(0, len(self.epochs[0]) // 2)
        for saver, reader in ((options, {}), ({}, options)):
            who = f"a loader {words if saver else ''} {place}, and restored".replace("  ", " ")
            with ExitStack() as stack:
                state = self.left_at(place, self.open(stack, self.start, **saver))
                what = who if saver else f"{who} {words}"
                self.goes_on(self.open(stack, state, **reader), place, what)

    def out_of_ranks(self, world_size: int) -> None:
        """Save while ranks read together; resume a single loader."""
        rounds = len(self.epochs[0]) // world_size // 2
        place = _Place(0, rounds * world_size)
        states = []
        for rank in range(world_size):
            with ExitStack() as stack:
                loader = self.open(stack, self.start, rank=rank, world_size=world_size)
                iterator = iter(loader)
                seen = self.read(islice(iterator, rounds))
                expected = self.epochs[0][rank : place.taken : world_size]
                self.compare(seen, expected, f"rank {rank} of {world_size}")
                states.append(self.saved(loader))
                del iterator
        for rank, state in enumerate(states):
            if state != states[0]:
                raise NotConforming(
                    f"after {rounds} batches each, rank {rank} of {world_size} has the state "
                    f"{state!r}, but rank 0 has {states[0]!r}"
                )
        with ExitStack() as stack:
            what = f"a loader by itself, restored where {world_size} ranks were {place}"
            self.goes_on(self.open(stack, states[0]), place, what)

    def into_ranks(self, world_size: int) -> None:
        """Save a single loader; resume ranks together, while there is a batch for each."""
        place = _Place(0, len(self.epochs[0]) // 3)
        with ExitStack() as stack:
            state = self.left_at(place, self.open(stack, self.start))
        left = self.epochs[0][place.taken :]
        whole = len(left) // world_size * world_size
        for rank in range(world_size):
            with ExitStack() as stack:
                loader = self.open(stack, state, rank=rank, world_size=world_size)
                expected = left[rank:whole:world_size]
                seen = self.read(islice(iter(loader), len(expected)))
                what = f"rank {rank} of {world_size}, restored where a loader by itself was {place}"
                self.compare(seen, expected, what)

    # --- comparing ---------------------------------------------------------------------------

    def goes_on(self, loader: Any, place: _Place, what: str) -> None:
        """Check that a loader gives what was left of an epoch, and then the next."""
        left = self.epochs[place.epoch][place.taken :]
        following = self.epochs[place.epoch + 1]
        if left:
            self.compare(self.read(loader), left, what)
            self.compare(self.read(loader), following, f"{what}, in the epoch after that")
            return
        # At the end of an epoch, the loader may give an empty rest, or begin the next one.
        self.compare(self.read(loader) or self.read(loader), following, what)

    def compare(self, seen: Sequence[str], expected: Sequence[str], what: str) -> None:
        """Raise `NotConforming`, with the first difference, unless both are the same."""
        if list(seen) == list(expected):
            return
        at = next(
            (n for n, pair in enumerate(zip(seen, expected, strict=False)) if pair[0] != pair[1]),
            min(len(seen), len(expected)),
        )
        raise NotConforming(f"{what}: {self._difference(seen, expected, at)}")

    def _difference(self, seen: Sequence[str], expected: Sequence[str], at: int) -> str:
        if at == len(seen):
            return f"it ended after {at} batches; {len(expected)} were to come"
        got = self._named(seen[at])
        if at == len(expected):
            return f"{at} batches were to come, and then came another: {got}"
        return f"{self._named(expected[at])} was to come, but what came was {got}"

    def _named(self, digest: str) -> str:
        for epoch, batches in enumerate(self.epochs):
            if digest in batches:
                return f"batch {batches.index(digest)} of epoch {epoch}"
        return "a batch that none of the epochs has"
