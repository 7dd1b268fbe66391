"""Kinds of sampling: the interface of a kind, and the lookup of the kind of a spec.

A kind is one class, a `SamplingKind`, in its own module; nothing outside that module depends on
which kind a spec has. A spec's class names its kind, which is imported at first use, so that a
worker that samples neighbourhoods does not wait for other kinds.
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
from penstock.graph.schema import EdgeType
from penstock.graph.view import GraphView
from penstock.kernels.arrays import Array
from penstock.sampling.batches import Batches
from penstock.sampling.labels import tell_once
from penstock.sampling.names import Owner
from penstock.sampling.normalize import settled
from penstock.sampling.spec import Direction, Feed, SamplingSpec

# The time of one uniform draw, with the row of attributes for its result.
_SECONDS_A_DRAW: Final = 5e-8
# A wrong guess must not keep a channel waiting for long.
_MOST_SECONDS: Final = 1.0

_Spec = TypeVar("_Spec", bound=SamplingSpec)


class InputKind(Enum):
    """What an input is; sampling depends on it."""

    NODE = "node"
    LINK = "link"
    SUBGRAPH = "subgraph"

    @classmethod
    def named(cls, kind: str | InputKind) -> InputKind:
        """Return the kind of this name."""
        name = kind.value if isinstance(kind, cls) else str(kind).lower()
        if name not in (there := [member.value for member in cls]):
            raise ValueError(f"input_kind is {kind!r}; expected one of {', '.join(there)}")
        return cls(name)

    @classmethod
    def of(cls, spec: SamplingSpec) -> InputKind:
        """Return what a spec samples from."""
        return kind_of(spec).input_kind(spec)


class SamplingKind(ABC, Generic[_Spec]):
    """One kind of sampling: its checks, needs, bounds and batches.

    It has no state: every method gets a spec. A kind implements at least its checks, the cost of a
    batch and what makes batches; the other methods have defaults that fit most kinds.
    """

    # Tables that `make_tables` adds to those that a user gives.
    made_tables: ClassVar[frozenset[str]] = frozenset()
    # Whether edges are drawn by whoever has the row of a node, or degrees are needed: then a row
    # must be in one place. Others read rows that may be put together from several parts.
    draws_from_rows: ClassVar[bool] = True

    # --- properties of a spec ------------------------------------------------------------------

    def input_kind(self, spec: _Spec) -> InputKind:
        """Return what a spec samples from."""
        return InputKind.NODE

    def columns(self, spec: _Spec) -> tuple[str, ...]:
        """Return the names of columns that inputs may have: arrays with a row for each input."""
        return ()

    def tables(self, spec: _Spec) -> tuple[str, ...]:
        """Return the names of tables that inputs may have: arrays for the inputs as a whole."""
        return ()

    def node_columns(self, spec: _Spec) -> Mapping[str, str]:
        """Return the columns that hold ids of nodes (-1: none), with their node type."""
        return {}

    def is_disjoint(self, spec: _Spec) -> bool:
        """Return whether the nodes of a batch belong to trees."""
        return False

    def users_code(self, spec: _Spec) -> str | None:
        """Return the name of the user's code that is run; None if there is none."""
        return None

    def group(self, spec: _Spec) -> str:
        """Return the worker group that serves a spec; "" is the one for all built-in kinds.

        Equal specs always have the same group.
        """
        return ""

    def bare(self, spec: _Spec, *, edges: bool = True) -> _Spec:
        """Return a spec of the same batches without attributes of nodes.

        Args:
            spec: The spec.
            edges: Whether to leave out attributes of edges, too.
        """
        without = {"edge_attributes": ()} if edges else {}
        return msgspec.structs.replace(spec, node_attributes=(), **without)

    def with_options(self, spec: _Spec, options: Mapping[str, Any]) -> _Spec:
        """Return a spec with these options, which are its fields.

        Raises:
            ValueError: There is no such field.
        """
        options = dict(options)
        if "edge_dir" in options and "direction" not in options:  # the loaders' word for it
            spec = _along(spec, options.pop("edge_dir"))
        there = type(spec).__struct_fields__
        for name in options:
            if name not in there:
                raise ValueError(
                    f"sampler_options has {name!r}; {type(spec).__name__} has {', '.join(there)}"
                )
        return msgspec.structs.replace(spec, **options)

    # --- columns and tables --------------------------------------------------------------------

    def make_tables(
        self, spec: _Spec, columns: Mapping[str, Any], tables: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the tables of a feed, made from what a user gave."""
        return dict(tables)

    def check_inputs(
        self,
        spec: _Spec,
        graph: GraphView,
        feed: Feed,
        columns: Mapping[str, Array],
        tables: Mapping[str, Array],
    ) -> None:
        """Raise `ValueError` unless these inputs, with columns and tables, fit a spec.

        Their names have been checked. Called when a channel is opened, so that batches do not fail
        one after the other in a worker. Checks forms, not contents.
        """

    def check_values(self, spec: _Spec, graph: GraphView, columns: Mapping[str, Array]) -> None:
        """Raise `ValueError` for an invalid value in a column.

        Reads all values, so it is for callers that have them.
        """

    # --- a spec with a graph -------------------------------------------------------------------

    @abstractmethod
    def check(self, spec: _Spec, graph: GraphView) -> None:
        """Raise `ValueError` unless this graph can be sampled by the spec. Reads no array."""

    def needs(self, spec: _Spec, graph: GraphView) -> Sequence[DerivedArrays]:
        """Return the derived arrays that a graph needs before it can be sampled by the spec."""
        return ()

    def left_out(self, spec: _Spec, graph: GraphView) -> tuple[EdgeType, ...]:
        """Return the label edge types that are not walked, and that a user may wonder about."""
        return ()

    @abstractmethod
    def draws(self, spec: _Spec, graph: GraphView, inputs: int, of: Owner) -> float:
        """Return the work of a batch of so many inputs of a type, in uniform draws, roughly.

        0 if it is not known.
        """

    @abstractmethod
    def batches(self, spec: _Spec, graph: Graph) -> Batches:
        """Return what makes the batches of a spec. `ValueError` if it does not fit this graph."""

    def likely_bytes(self, spec: _Spec, graph: Graph, inputs: int, of: Owner) -> int:
        """Return room for any batch of so many inputs, or for nearly any. Reads sizes only."""
        return self.batches(spec, graph).likely_bytes(inputs, of)


_loaded: dict[type[SamplingSpec], SamplingKind[Any]] = {}


def kind_of(spec: _Spec) -> SamplingKind[_Spec]:
    """Return the kind of a spec."""
    found = _loaded.get(type(spec))
    if found is None:
        module, _, name = type(spec).kind.partition(":")
        found = getattr(importlib.import_module(f"penstock.sampling.{module}"), name)()
        _loaded[type(spec)] = found
    return found


def check(spec: SamplingSpec, graph: GraphView) -> None:
    """Raise `ValueError`, naming type, hop and value, unless the graph can be sampled so."""
    spec = settled(spec)
    kind_of(spec).check(spec, graph)
    _check_direction(spec, graph)
    _check_rows(graph)


def direction_of(spec: SamplingSpec) -> Direction | None:
    """Return which edges a spec follows; None if only a user's sampler knows."""
    if kind_of(spec).users_code(spec) is not None:
        return None
    hops = getattr(spec, "neighbors", spec)
    return getattr(hops, "direction", "in")  # those without a choice follow in-edges


def _along(spec: _Spec, direction: Any) -> _Spec:
    """Return a spec that follows edges in this direction; also one of links or anchors."""
    if "neighbors" in type(spec).__struct_fields__:
        hops = _along(spec.neighbors, direction)  # type: ignore[attr-defined]
        return msgspec.structs.replace(spec, neighbors=hops)
    if "direction" in type(spec).__struct_fields__:
        return msgspec.structs.replace(spec, direction=direction)
    raise ValueError(
        f"sampler_options['edge_dir'] is {direction!r}; {type(spec).__name__} has no choice of it"
    )


def _check_direction(spec: SamplingSpec, graph: GraphView) -> None:
    """Raise `ValueError` for a direction along which a part lacks edges of its nodes."""
    asked = direction_of(spec)
    if asked is not None and kind_of(spec).draws_from_rows:
        graph.check_side(asked)
    if graph.part is None or asked is None or asked in graph.part.sides:
        return
    end, (there,) = graph.part.edges, graph.part.sides
    raise ValueError(
        f"direction (edge_dir) is {asked!r}, and the graph is a part that was cut by {end}: it has "
        f"the {there}-edges of its nodes and not all {asked}-edges, so neighbours would be "
        f"missing; expected {there!r}"
    )


def _check_rows(graph: GraphView) -> None:
    """Raise `ValueError` for a part that lacks the edges of its nodes' neighbours."""
    part = graph.part
    if part is not None and part.of > 1 and part.is_compact:
        raise ValueError(
            f"the graph is {part}: its nodes have neighbours in other parts, whose edges are "
            "missing here. Sample from the store of all parts (penstock.connect), or within the "
            "part: its within() has the edges with both ends in it"
        )


def tell_left_out(spec: SamplingSpec, graph: GraphView) -> None:
    """Log once which label edge types of a graph are not walked; for the user's process."""
    tell_once(kind_of(spec).left_out(spec, graph))


def needs_of(spec: SamplingSpec, graph: GraphView) -> Sequence[DerivedArrays]:
    """Return the derived arrays that a graph needs before it can be sampled by the spec."""
    return kind_of(spec).needs(spec, graph)


def prepare(spec: SamplingSpec, graph: GraphView) -> None:
    """Compute the derived arrays that a spec needs and that do not exist yet."""
    graph.prepare(needs_of(spec, graph))


def missing(spec: SamplingSpec, graph: GraphView) -> list[str]:
    """Return the names of derived arrays that a spec needs and that nobody has computed."""
    return [key_text(key) for key in graph.lacking(needs_of(spec, graph))]


def seconds_of(spec: SamplingSpec, graph: GraphView, inputs: int, of: Owner) -> float:
    """Return the likely cost of a batch of so many inputs, roughly; 0 if it is not known.

    Good enough for the first batch: after that, the measured cost is used.
    """
    # The order of arguments matters: if the product is NaN, the maximum is returned.
    return min(_MOST_SECONDS, kind_of(spec).draws(spec, graph, inputs, of) * _SECONDS_A_DRAW)
