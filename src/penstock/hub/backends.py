"""Backends: the ways of sampling that ranks have asked for, each with a number and a worker group.

Equal specs share one backend. One group of workers serves all built-in samplers; a user's sampler
has its own group, which is removed with its backend. A backend is held by the connections that
asked for it and by its channels. Specs are checked against the graph when the backend is made, and
not when its first batch fails.
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
# Bytes. Every worker gets the spec in a message; larger data belongs in a file.
LARGEST_SPEC: Final = 1 << 20


@dataclass(slots=True, eq=False)
class HubBackend:
    """One way of sampling. `holders` are the numbers of the connections that asked for it."""

    number: int
    spec: Spec
    group: str
    workers: int = 0  # the most that a rank asked for, if the group is its own
    follows: bool = False  # a rank gave no number, so the group is at least as large as the pool
    holders: set[int] = field(default_factory=set)
    channels: set[int] = field(default_factory=set)

    @property
    def wanted(self) -> bool:
        return bool(self.holders or self.channels)

    def group_size(self, pool: int) -> int:
        """Return how many workers its group is to have, in a pool of this size."""
        if self.group == BUILT_IN:
            return pool
        return max(self.workers, pool if self.follows else 0)


class HubBackends:
    """All backends that are in use. Numbers are increasing and never reused."""

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
        """Return the backend of this number, or None."""
        return self._by_number.get(number)

    def custom(self, group: str) -> CustomSpec | None:
        """Return the user's sampler that a group runs; None for the built-in group."""
        backend = self._by_group.get(group)
        return backend.spec if backend and isinstance(backend.spec, CustomSpec) else None

    def find(self, spec: Spec) -> HubBackend | None:
        """Return the backend with an equal spec, or None."""
        return self._by_spec.get(_key(spec))

    def create(self, spec: Spec) -> HubBackend:
        """Make a backend without holders. The caller has checked the spec."""
        self._last += 1
        backend = HubBackend(self._last, spec, group_of(spec))
        self._by_number[backend.number] = backend
        self._by_spec[_key(spec)] = backend
        if backend.group != BUILT_IN:
            self._by_group[backend.group] = backend
        return backend

    def remove(self, backend: HubBackend) -> None:
        """Remove a backend that has no holders and no channels."""
        del self._by_number[backend.number]
        del self._by_spec[_key(backend.spec)]
        self._by_group.pop(backend.group, None)


def group_of(spec: Spec) -> str:
    """Return the name of the group that serves a spec: equal for equal specs, in every boot."""
    return kind_of(spec).group(spec)


def check_spec(spec: Spec, graph: GraphView) -> None:
    """Raise ValueError if this graph cannot be sampled with this spec."""
    if (nbytes := len(_key(spec))) > LARGEST_SPEC:
        raise ValueError(f"the spec has {nbytes} bytes; at most {LARGEST_SPEC} are taken")
    check(spec, graph)
    # The rank that asks computes them once and shares them; otherwise every worker would compute
    # its own.
    if lacking := missing(spec, graph):
        raise ValueError(
            f"the hub has no {', '.join(lacking)}, which this spec needs: make it with "
            "graph.derived() first, and send it along"
        )


def _key(spec: Spec) -> bytes:
    return msgspec.msgpack.encode(spec, order="deterministic")
