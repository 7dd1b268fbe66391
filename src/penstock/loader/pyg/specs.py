"""Turn PyG's sampling arguments into specs, and refuse what PyG refuses, in PyG's words."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import fields
from numbers import Real
from typing import Any

from torch_geometric.sampler import NegativeSampling, NumNeighbors
from torch_geometric.sampler.base import NegativeSamplingMode, SubgraphType
from torch_geometric.typing import EdgeTypeStr

from penstock.errors import suggestion
from penstock.graph import EdgeType
from penstock.graph.view import GraphView
from penstock.loader.pyg.options import flag
from penstock.loader.pyg.tensors import array_of
from penstock.loader.source.sources import DataSource
from penstock.sampling.kinds import check
from penstock.sampling.labels import label_edge_types
from penstock.sampling.normalize import settled
from penstock.sampling.spec import Direction, LinkSpec, NeighborSpec


def negatives_of(neg_sampling: Any, neg_sampling_ratio: float | None = None) -> Any:
    """Return a `NegativeSampling` from one, a dict, a tuple or a ratio (binary); or None."""
    if neg_sampling_ratio is not None and neg_sampling_ratio != 0.0:
        return _negatives("neg_sampling_ratio", "binary", neg_sampling_ratio)
    match neg_sampling:
        case None | NegativeSampling():
            return neg_sampling
        case Mapping():
            return _negatives("neg_sampling", **neg_sampling)
        case list() | tuple():
            return _negatives("neg_sampling", *neg_sampling)
        case _:
            return _negatives("neg_sampling", neg_sampling)


def _negatives(argument: str, *given: Any, **named: Any) -> Any:
    """Return a `NegativeSampling` of what the argument has; PyG's errors get its name."""
    names = [each.name for each in fields(NegativeSampling)]
    if len(given) > len(names) or not {"mode", *names} >= named.keys():
        unknown = [*named.keys() - set(names), *given[len(names) :]][0]
        near = suggestion(unknown, names)
        raise TypeError(f"{argument} has {unknown!r}; expected {', '.join(names)}{near}")
    values = dict(zip(names, given, strict=False)) | named
    mode, amount = values.get("mode"), values.get("amount", 1)
    modes = [each.value for each in NegativeSamplingMode]
    if getattr(mode, "value", mode) not in modes:
        raise ValueError(
            f"{mode!r} is not a valid NegativeSamplingMode: the mode of {argument} is {mode!r}; "
            f"expected {' or '.join(map(repr, modes))}{suggestion(mode, modes)}"
        )
    if isinstance(amount, bool) or not isinstance(amount, Real):
        raise TypeError(
            f"{argument} has the amount {amount!r}; expected a number of negatives for each "
            "positive, above 0"
        )
    try:
        return NegativeSampling(**values)
    except ValueError as error:
        said = str(error).rstrip(".")
        raise ValueError(f"{said}: {argument} has the amount {amount!r}") from None


def check_weights(graph: GraphView, kind: EdgeType, negatives: Any) -> dict[str, Any]:
    """Return the weights of nodes to draw by, as tables; ValueError unless each node has one.

    In triplet mode only destinations are drawn, so weights of sources are ignored, as in PyG.
    """
    tables = {}
    for name, end in (("src_weight", kind[0]), ("dst_weight", kind[2])):
        weight = getattr(negatives, name)
        if weight is None or (name == "src_weight" and negatives.is_triplet()):
            continue
        tables[name] = array_of(weight)
        if tables[name].size != graph.num_nodes(end):
            raise ValueError(
                "The 'weight' attribute in 'NegativeSampling' needs to match the number of nodes "
                f"{graph.num_nodes(end)} (got {tables[name].size}): {name}"
            )
    return tables


def neighbor_spec(
    source: DataSource,
    num_neighbors: Any,
    *,
    replace: bool = False,
    subgraph_type: Any = "directional",
    disjoint: bool = False,
    temporal_strategy: str = "uniform",
    time_attr: str | None = None,
    weight_attr: str | None = None,
    directed: bool = True,
    edge_dir: str | None = None,
    asked_by: str = "NeighborLoader",
) -> NeighborSpec:
    """Make the spec of `NeighborLoader`'s arguments; `asked_by` is the class named in warnings."""
    if not flag("directed", directed):
        subgraph_type = _induced(asked_by)
    if weight_attr is not None and source.is_pair:
        raise NotImplementedError(
            f"'weight_attr' argument not yet supported within '{asked_by}' for "
            "'(FeatureStore, GraphStore)' inputs"
        )
    if weight_attr is not None and time_attr is None:
        _check_there(source.graph, weight_attr)
    if temporal_strategy not in (strategies := ("uniform", "last")):
        raise ValueError(
            f"No valid temporal strategy found: temporal_strategy is {temporal_strategy!r}; "
            f"expected 'uniform' or 'last'{suggestion(temporal_strategy, strategies)}"
        )
    fanouts, by_type = _fanouts(source.graph, num_neighbors)
    spec = NeighborSpec(
        num_neighbors=fanouts,
        by_type=by_type,
        replace=flag("replace", replace),
        disjoint=flag("disjoint", disjoint),
        direction=direction(source.graph, edge_dir),
        subgraph_type=_subgraph_type(subgraph_type),
        weight_attr=weight_attr,
        time_attr=time_attr,
        # Without times the strategy has no effect; PyG accepts either of the two then, and so do
        # we.
        temporal_strategy="uniform" if time_attr is None else temporal_strategy,  # type: ignore[arg-type]
    )
    check(spec, source.graph)
    return spec


def direction(graph: GraphView, edge_dir: Any) -> Direction:
    """Return which edges to follow; None: in-edges, or those that the part of a graph has."""
    if edge_dir is None:
        return "in" if graph.part is None or "in" in graph.part.sides else "out"
    if edge_dir not in ("in", "out"):
        near = suggestion(edge_dir, ("in", "out"))
        raise ValueError(f"edge_dir is {edge_dir!r}; expected 'in' or 'out'{near}")
    return edge_dir  # type: ignore[no-any-return]


def link_spec(
    source: DataSource,
    neighbors: NeighborSpec,
    *,
    neg_sampling: Any = None,
    neg_sampling_ratio: float | None = None,
    strict: bool = False,
    exclude: Any = None,
    rev_edge_types: Any = None,
) -> LinkSpec:
    """Make the spec of `LinkNeighborLoader`'s arguments. Weights come with the inputs."""
    negatives = negatives_of(neg_sampling, neg_sampling_ratio)
    if flag("strict", strict) and negatives is None:
        raise ValueError("strict is True, and there are no negatives to check: give neg_sampling")
    drawn: dict[str, Any] = (
        {}
        if negatives is None
        else {"negatives": negatives.mode.value, "amount": float(negatives.amount)}
    )
    spec = settled(
        LinkSpec(
            neighbors=neighbors,
            strict=bool(strict),
            exclude=exclude,
            rev_edge_types=rev_types_of(rev_edge_types),
            **drawn,
        )
    )
    check(spec, source.graph)
    return spec


def rev_types_of(given: Any) -> Any:
    """Return reverse edge types as a spec has them: one alone is a list of one, as in PyG."""
    is_one = isinstance(given, list | tuple) and len(given) == 3 and isinstance(given[0], str)
    return (tuple(given),) if is_one else given


def _check_there(graph: GraphView, weight_attr: str) -> None:
    """Raise KeyError, as PyG does, for a weight attribute that no edges have."""
    there = [name for kind in graph.edge_types for name in graph.edge_attributes(kind)]
    if weight_attr not in there:
        raise KeyError(
            f"Tried to collect '{weight_attr}' but did not find any occurrences of it in any edge "
            f"type: weight_attr is {weight_attr!r}, and edges have {sorted(set(there))}"
            f"{suggestion(weight_attr, there)}"
        )


def _subgraph_type(given: Any) -> Any:
    try:
        return SubgraphType(given).value
    except ValueError as error:
        there = [each.value for each in SubgraphType]
        raise ValueError(
            f"{error}: subgraph_type is {given!r}; expected {', '.join(map(repr, there))}"
            f"{suggestion(given, there)}"
        ) from None


def _induced(asked_by: str) -> SubgraphType:
    warnings.warn(
        f"The usage of the 'directed' argument in '{asked_by}' is deprecated. Use "
        "`subgraph_type='induced'` instead.",
        stacklevel=4,  # where the loader is made
    )
    return SubgraphType.induced


_ByType = tuple[tuple[EdgeType, tuple[int, ...]], ...]


def _fanouts(graph: GraphView, given: Any) -> tuple[tuple[int, ...], _ByType | None]:
    """Return one list of fan-outs for all edge types, or one for each."""
    if not isinstance(given, NumNeighbors | dict):
        return _hops("num_neighbors", given), None
    if isinstance(given, dict):
        given = NumNeighbors(given)
    # A copy, since `NumNeighbors` caches its first answer, whichever graph that was for.
    given = NumNeighbors(given.values, given.default)
    if not isinstance(given.values, dict):
        return _hops("num_neighbors", given.values), None
    if not graph.is_hetero:
        raise ValueError(
            "num_neighbors has a list for each edge type, but this graph has only one: give a list"
        )
    # A default is for edges to walk along: types of labels are walked if they are named.
    labels = label_edge_types(graph.edge_types)
    walked = [k for k in graph.edge_types if k not in labels or EdgeTypeStr(k) in given.values]
    _check_edge_types(graph, given)
    found = given.get_values(walked)
    return (), tuple((kind, _hops(f"num_neighbors[{kind!r}]", found[kind])) for kind in walked)


def _check_edge_types(graph: GraphView, given: NumNeighbors) -> None:
    """Raise ValueError for an edge type that the graph has not: PyG does not say which it is."""
    there = {str(EdgeTypeStr(kind)): kind for kind in graph.edge_types}
    for name in given.values:
        if name not in there:
            listed = ", ".join(map(repr, there.values()))
            kind = EdgeTypeStr(name).to_tuple()
            raise ValueError(
                "Not all edge types specified in 'num_neighbors' exist in the graph: num_neighbors "
                f"has {kind!r}; this graph has {listed}{suggestion(kind, there.values())}"
            )


def _hops(name: str, given: Any) -> tuple[int, ...]:
    try:
        return tuple(map(operator.index, _listed(given)))
    except TypeError:
        raise ValueError(f"{name} is {given!r}; expected an integer for each hop") from None


def _listed(given: Any) -> Sequence[Any]:
    return given.tolist() if hasattr(given, "tolist") else given  # type: ignore[no-any-return]


def check_node_times(graph: GraphView, input_time: Any, time_attr: str | None) -> None:
    """Raise ValueError for times without effect, or where the seeds would have no time."""
    if input_time is not None and time_attr is None:
        raise ValueError(
            "Received conflicting 'input_time' and 'time_attr' arguments: 'input_time' is set "
            "while 'time_attr' is not set."
        )
    if input_time is None and time_attr is not None and not _is_of_nodes(graph, time_attr):
        raise ValueError(
            "Seed time needs to be specified: the time attribute "
            f"'{time_attr}' is that of edges, so nodes have none; give input_time"
        )


def check_link_times(edge_label_time: Any, time_attr: str | None) -> None:
    """Raise ValueError unless both are given, or neither."""
    if (edge_label_time is not None) == (time_attr is not None):
        return
    raise ValueError(
        "Received conflicting 'edge_label_time' and 'time_attr' arguments: 'edge_label_time' is "
        f"{'set' if edge_label_time is not None else 'not set'} while 'time_attr' is "
        f"{'set' if time_attr is not None else 'not set'}. "
        "Both arguments must be provided for temporal sampling."
    )


def _is_of_nodes(graph: GraphView, time_attr: str) -> bool:
    """Return whether the time is one of nodes.

    Edges are asked, so that an attribute of neither gets the error for that.
    """
    return not any(time_attr in graph.edge_attributes(kind) for kind in graph.edge_types)
