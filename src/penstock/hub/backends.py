"""Backends: ways of sampling that a hub has been asked for, each with a number and a group.

Equal specs share one. Built-in ones are all served by the same group of workers; a user's sampler
has a group of its own, which goes when nobody wants it any more. A backend is held by the
connections that asked for it and by its channels. Specs are checked against the graph here, when
the backend is made, not when its first batch fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import msgspec

from penstock.graph.view import GraphView
from penstock.sampling.kinds import check, kind_of, missing
from penstock.sampling.spec import CustomSpec, Spec

# The group of all built-in samplers: see `SamplingKind.group`.
BUILT_IN: Final = ""
# Every worker is told of it. What is larger than this belongs into a file.
LARGEST_SPEC: Final = 1 << 20


@dataclass(slots=True, eq=False)
class HubBackend:
    """One way of sampling. `holders` are the connections that asked for it."""

    number: int
    spec: Spec
    group: str
    workers: int = 0  # of a group of its own, that somebody asked for
    follows: bool = False  # somebody left that to the size of the pool
    holders: set[int] = field(default_factory=set)
    channels: set[int] = field(default_factory=set)

    @property
    def wanted(self) -> bool:
        return bool(self.holders or self.channels)

    def group_size(self, pool: int) -> int:
        """How many workers its group is to have, in a pool of this size."""
        if self.group == BUILT_IN:
            return pool
        return max(self.workers, pool if self.follows else 0)


class HubBackends:
    """All backends that somebody holds. Numbers count up and are never used again."""

    def __init__(self) -> None:
        self._last = 0
        self._by_number: dict[int, HubBackend] = {}
        self._by_spec: dict[bytes, HubBackend] = {}
        self._by_group: dict[str, HubBackend] = {}

    def __len__(self) -> int:
        return len(self._by_number)

    def __iter__(self) -> Iterator[HubBackend]:
        return iter(self._by_number.values())

    def get(self, number: int) -> HubBackend | None:
        """The backend of this number, if there is one now."""
        return self._by_number.get(number)

    def custom(self, group: str) -> CustomSpec | None:
        """The user's sampler a group is for; None for the group of the built-in ones."""
        backend = self._by_group.get(group)
        return backend.spec if backend and isinstance(backend.spec, CustomSpec) else None

    def find(self, spec: Spec) -> HubBackend | None:
        """The backend of an equal spec."""
        return self._by_spec.get(_key(spec))

    def create(self, spec: Spec) -> HubBackend:
        """A new backend, held by nobody yet; the spec has been checked."""
        self._last += 1
        backend = HubBackend(self._last, spec, group_of(spec))
        self._by_number[backend.number] = backend
        self._by_spec[_key(spec)] = backend
        if backend.group != BUILT_IN:
            self._by_group[backend.group] = backend
        return backend

    def remove(self, backend: HubBackend) -> None:
        """Nobody wants it any more."""
        del self._by_number[backend.number]
        del self._by_spec[_key(backend.spec)]
        self._by_group.pop(backend.group, None)


def group_of(spec: Spec) -> str:
    """The name of the group that serves a spec: the same for equal specs, also another time."""
    return kind_of(spec).group(spec)


def check_spec(spec: Spec, graph: GraphView) -> None:
    """ValueError unless this graph can be sampled so."""
    if (nbytes := len(_key(spec))) > LARGEST_SPEC:
        raise ValueError(f"the spec has {nbytes} bytes; at most {LARGEST_SPEC} are taken")
    check(spec, graph)
    # Made by whoever asks, once, and shared: every worker would make its own otherwise.
    if lacking := missing(spec, graph):
        raise ValueError(
            f"the hub has no {', '.join(lacking)}, which this spec needs: make it with "
            "graph.derived() first, and send it along"
        )


def _key(spec: Spec) -> bytes:
    return msgspec.msgpack.encode(spec, order="deterministic")
