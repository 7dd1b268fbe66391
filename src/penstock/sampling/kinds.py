"""Kinds of sampling: what anybody may ask of a spec, and which class answers.

A kind is one class, a `SamplingKind`, in a module of its own; nothing outside that module looks at
which kind of spec it has. A spec's class names its kind, which is loaded when a spec asks for it,
so that a worker that samples neighbourhoods does not wait for the rest.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, ClassVar, Final, Generic, TypeVar

import msgspec

from penstock.graph import Graph
from penstock.graph.derived import DerivedArrays
from penstock.graph.inventory import key_text
from penstock.graph.view import GraphView
from penstock.kernels.arrays import Array
from penstock.sampling.batches import Batches
from penstock.sampling.names import Owner
from penstock.sampling.normalize import settled
from penstock.sampling.spec import Feed, SamplingSpec

# What one uniform draw takes, with the row of attributes that comes of it.
_SECONDS_A_DRAW: Final = 5e-8
# A guess must not keep a channel waiting for long.
_MOST_SECONDS: Final = 1.0

_Spec = TypeVar("_Spec", bound=SamplingSpec)


class InputKind(Enum):
    """What an input is, on which sampling depends."""

    NODE = "node"
    LINK = "link"
    SUBGRAPH = "subgraph"

    @classmethod
    def named(cls, kind: str | InputKind) -> InputKind:
        """The kind that is meant."""
        name = kind.value if isinstance(kind, cls) else str(kind).lower()
        if name not in (there := [member.value for member in cls]):
            raise ValueError(f"input_kind is {kind!r}; expected one of {', '.join(there)}")
        return cls(name)

    @classmethod
    def of(cls, spec: SamplingSpec) -> InputKind:
        """What a spec samples from."""
        return kind_of(spec).input_kind(spec)


class SamplingKind(ABC, Generic[_Spec]):
    """One kind of sampling: its checks, needs, bounds and batches.

    It has no state: everything is asked about a spec. A kind says at least what it checks, what a
    batch costs and what makes batches; the other answers are those of most kinds.
    """

    # Tables that `make_tables` adds to those a user knows of.
    made_tables: ClassVar[frozenset[str]] = frozenset()

    # --- what a spec says ----------------------------------------------------------------------

    def input_kind(self, spec: _Spec) -> InputKind:
        """What a spec samples from."""
        return InputKind.NODE

    def columns(self, spec: _Spec) -> tuple[str, ...]:
        """Names of what may come with the inputs, a row for each."""
        return ()

    def tables(self, spec: _Spec) -> tuple[str, ...]:
        """Names of what may come with the inputs as a whole."""
        return ()

    def node_columns(self, spec: _Spec) -> Mapping[str, str]:
        """The columns that hold ids of nodes (-1: none), with the type of these."""
        return {}

    def is_disjoint(self, spec: _Spec) -> bool:
        """Whether the nodes of a batch belong to trees."""
        return False

    def users_code(self, spec: _Spec) -> str | None:
        """The code of a user's that is run, by its name; None where all of it is ours."""
        return None

    def group(self, spec: _Spec) -> str:
        """The group of workers that serves a spec, "" being the one that serves all built-in kinds.

        Equal specs have the same, also another time.
        """
        return ""

    def bare(self, spec: _Spec) -> _Spec:
        """A spec of the same batches without attributes."""
        return msgspec.structs.replace(spec, node_attributes=(), edge_attributes=())

    def with_options(self, spec: _Spec, options: Mapping[str, Any]) -> _Spec:
        """A spec with these options, which are its fields.

        Raises:
            ValueError: There is no such field.
        """
        there = type(spec).__struct_fields__
        for name in options:
            if name not in there:
                raise ValueError(
                    f"sampler_options has {name!r}; {type(spec).__name__} has {', '.join(there)}"
                )
        return msgspec.structs.replace(spec, **options)

    # --- what comes with the inputs ------------------------------------------------------------

    def make_tables(
        self, spec: _Spec, columns: Mapping[str, Any], tables: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The tables of a feed, of what a user gave."""
        return dict(tables)

    def check_inputs(
        self,
        spec: _Spec,
        graph: GraphView,
        feed: Feed,
        columns: Mapping[str, Array],
        tables: Mapping[str, Array],
    ) -> None:
        """ValueError unless these inputs, with what comes with them, go with a spec.

        Their names are known to be right. Looked at when a channel is opened, so that nothing fails
        batch after batch in a worker: forms, not what stands there.
        """

    def check_values(self, spec: _Spec, graph: GraphView, columns: Mapping[str, Array]) -> None:
        """ValueError for a value in a column that cannot be. Reads all: for who has them."""

    # --- what is done with a graph -------------------------------------------------------------

    @abstractmethod
    def check(self, spec: _Spec, graph: GraphView) -> None:
        """ValueError unless this graph can be sampled so. Reads no array."""

    def needs(self, spec: _Spec, graph: GraphView) -> Sequence[DerivedArrays]:
        """What must be made of a graph, once, before it can be sampled so."""
        return ()

    @abstractmethod
    def draws(self, spec: _Spec, graph: GraphView, inputs: int, of: Owner) -> float:
        """How many uniform draws a batch of so many inputs of a type is about as much work as.

        0 where nobody knows.
        """

    @abstractmethod
    def batches(self, spec: _Spec, graph: Graph) -> Batches:
        """What makes the batches of a spec. ValueError if it makes no sense for this graph."""

    def likely_bytes(self, spec: _Spec, graph: Graph, inputs: int, of: Owner) -> int:
        """Room for any batch of so many inputs, or for nearly any. Reads sizes only."""
        return self.batches(spec, graph).likely_bytes(inputs, of)


_loaded: dict[type[SamplingSpec], SamplingKind[Any]] = {}


def kind_of(spec: _Spec) -> SamplingKind[_Spec]:
    """The kind of a spec."""
    found = _loaded.get(type(spec))
    if found is None:
        module, _, name = type(spec).kind.partition(":")
        found = getattr(importlib.import_module(f"penstock.sampling.{module}"), name)()
        _loaded[type(spec)] = found
    return found


def check(spec: SamplingSpec, graph: GraphView) -> None:
    """ValueError unless this graph can be sampled so: names the type, the hop and the value."""
    spec = settled(spec)
    kind_of(spec).check(spec, graph)


def needs_of(spec: SamplingSpec, graph: GraphView) -> Sequence[DerivedArrays]:
    """What must be made of a graph, once, before a spec can be acted on."""
    return kind_of(spec).needs(spec, graph)


def prepare(spec: SamplingSpec, graph: GraphView) -> None:
    """Makes what a spec needs, where it is not there yet."""
    graph.prepare(needs_of(spec, graph))


def missing(spec: SamplingSpec, graph: GraphView) -> list[str]:
    """In words, what a spec needs and nobody has made."""
    return [key_text(key) for key in graph.lacking(needs_of(spec, graph))]


def seconds_of(spec: SamplingSpec, graph: GraphView, inputs: int, of: Owner) -> float:
    """What a batch of so many inputs is likely to cost, roughly; 0 where nobody knows.

    Good enough for the first one: after that, what batches have cost is known.
    """
    # In this order, which also holds against what is no number.
    return min(_MOST_SECONDS, kind_of(spec).draws(spec, graph, inputs, of) * _SECONDS_A_DRAW)
