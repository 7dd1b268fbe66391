"""Check that a user's sampler can run in a pool: to run in one's own tests.

    def test_walks_conform():
        check_sampler("my_samplers:Walks", graph, options={"length": 5})

Workers are fresh interpreters that come and go. A batch is made by any free worker, and again if it
dies: so the result must not depend on the worker, on the time, or on earlier batches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from penstock.client.channel.inputs import column_of
from penstock.client.naming import spec_of
from penstock.errors import PenstockError
from penstock.graph import Graph
from penstock.kernels import first_outside
from penstock.kernels.arrays import Array, Ids, as_ids, check_integer
from penstock.sampling.columns import check_names
from penstock.sampling.custom import Sampler, called, declared, find, load
from penstock.sampling.spec import CustomSpec
from penstock.testing import fresh
from penstock.testing.batches import (
    Arrays,
    SamplerTask,
    TravellingArray,
    first_difference,
    in_words,
    made,
)

_BATCH = 16


class NotConforming(AssertionError):
    """A rule is broken.

    Args:
        message: What is wrong.
        first: A sampler's arrays.
        second: Arrays that should be the same.

    Examples:
        >>> from penstock.testing import NotConforming
        >>> issubclass(NotConforming, AssertionError)
        True
    """

    def __init__(
        self,
        message: str,
        first: Mapping[str, Array] = MappingProxyType({}),
        second: Mapping[str, Array] = MappingProxyType({}),
    ) -> None:
        super().__init__(message)
        self.first = first
        self.second = second


def check_sampler(
    sampler: str | type[Any] | CustomSpec | Sampler,
    graph: Graph,
    *,
    seeds: npt.ArrayLike | None = None,
    columns: Mapping[str, npt.ArrayLike] | None = None,
    options: Mapping[str, Any] | None = None,
    batches: int = 3,
) -> None:
    """Raise `NotConforming`, which says what is wrong, unless a sampler keeps the rules.

    A fresh interpreter must find it by its name, and make it with the graph and the options,
    without importing torch. Its batches must have arrays that are valid for the graph. The same
    arguments must give the same bytes, from the same object, from another one, and in another
    process, in any order. It must not write to its seeds or columns.

    Args:
        sampler: As for a loader: "module:Class", "/path/to/file.py:Class", the class, an instance,
            or a spec with both name and options.
        graph: What it samples.
        seeds: Nodes [n], or links [2, n] for a sampler that declares these. By default nodes of the
            first type, or edges of the first type.
        columns: A row for each seed, for each column that the sampler declares.
        options: The sampler's options; arrays may be among them.
        batches: How many batches the seeds are cut into.

    Raises:
        NotConforming: A rule is broken.
        ValueError: An argument is not valid; the error names it.

    Examples:
        >>> from pathlib import Path
        >>> import penstock as ps
        >>> from penstock.testing import check_sampler
        >>> _ = Path("alone.py").write_text('''
        ... class Alone:
        ...     def __init__(self, graph): ...
        ...     def sample(self, seeds, *, seed, epoch, index):
        ...         return {"n_id": seeds}
        ... ''')
        >>> graph = ps.Graph.from_coo([[0, 1, 2], [1, 2, 0]], num_nodes=3)
        >>> check_sampler(f"{Path('alone.py').resolve()}:Alone", graph)
    """
    spec = _spec_of(sampler, options)
    count = check_integer(batches, "batches", 1, 2**31)
    given = _some(spec, graph, count) if seeds is None else _checked(spec, graph, seeds)
    tasks = _tasks(given, _columns(spec, columns or {}, given.shape[-1]), count)
    backwards = tasks[::-1]
    one = _made(spec, graph)
    first = _batches(spec, one, graph, tasks)
    _check_same(spec, first, _batches(spec, one, graph, backwards), "made again by the same object")
    other = _batches(spec, _made(spec, graph), graph, backwards)
    _check_same(spec, first, other, "made by a new object")
    try:
        away = fresh.batches_of(spec, graph, backwards)
    except PenstockError as error:
        raise NotConforming(f"{spec.sampler} fails in a fresh interpreter: {error}") from None
    _check_same(spec, first, away, "made in a fresh interpreter")


def _spec_of(
    sampler: str | type[Any] | CustomSpec | Sampler, options: Mapping[str, Any] | None
) -> CustomSpec:
    try:
        config = _named(sampler) if isinstance(sampler, str) else sampler
        if isinstance(config, CustomSpec) and options is not None:
            config, options = msgspec.structs.replace(config, options=dict(options)), None
        spec = spec_of(config, options=options)
    except (ValueError, PenstockError) as error:
        raise NotConforming(str(error)) from None
    if not isinstance(spec, CustomSpec):
        raise ValueError(f"sampler is a {type(spec).__name__}, which is not a user's own")
    return spec


def _named(name: str) -> CustomSpec:
    """Return the spec of a name, with what its class declares."""
    spec = spec_of(CustomSpec(sampler=name))
    assert isinstance(spec, CustomSpec)
    found = called(f"making {spec.sampler}", lambda: find(spec.sampler))
    return msgspec.structs.replace(spec, **declared(found))


def _some(spec: CustomSpec, graph: Graph, batches: int) -> Ids:
    """Return a few nodes, or edges, from all over the graph."""
    links = spec.input_kind == "link"
    there = graph.num_edges(graph.edge_types[0]) if links else graph.num_nodes(graph.node_types[0])
    if there == 0:
        what = "edges" if links else "nodes"
        raise ValueError(f"the graph has no {what} of its first type: give seeds of another")
    places = np.unique(np.linspace(0, there - 1, batches * _BATCH, dtype=np.int64))
    return graph.edge_index(graph.edge_types[0])[:, places] if links else places


def _checked(spec: CustomSpec, graph: Graph, seeds: npt.ArrayLike) -> Ids:
    most = max(map(graph.num_nodes, graph.node_types))
    if spec.input_kind != "link":
        return _checked_ids(seeds, "seeds", most)
    ends = np.asarray(seeds)
    if ends.ndim != 2 or len(ends) != 2:
        raise ValueError(f"seeds have shape {list(ends.shape)}; expected links, [2, n]")
    return np.stack([_checked_ids(row, f"seeds[{end}]", most) for end, row in enumerate(ends)])


def _checked_ids(seeds: npt.ArrayLike, name: str, most: int) -> Ids:
    ids = as_ids(seeds, name)
    bad = first_outside(ids, most)
    if bad >= 0:
        raise ValueError(f"{name}[{bad}] is {ids[bad]}; expected 0 <= id < {most}")
    return ids


def _columns(
    spec: CustomSpec, columns: Mapping[str, npt.ArrayLike], count: int
) -> dict[str, Array]:
    check_names("columns", columns, spec.columns)
    given = {name: column_of(name, column) for name, column in columns.items()}
    for name in spec.columns:
        if name not in given:
            raise ValueError(f"columns has no {name!r}, which {spec.sampler} reads")
        if given[name].ndim < 1 or len(given[name]) != count:
            shape = list(given[name].shape)
            raise ValueError(
                f"columns[{name!r}] has shape {shape}; expected a row for each of {count} seeds"
            )
    return given


def _tasks(seeds: Ids, columns: Mapping[str, Array], batches: int) -> list[SamplerTask]:
    """Cut the seeds into batches of two epochs; none is empty, unless all are."""
    places = np.arange(seeds.shape[-1])
    cut = [part for part in np.array_split(places, batches) if len(part)] or [places]
    return [
        SamplerTask(
            seeds=TravellingArray.of(seeds[..., part]),
            columns={name: TravellingArray.of(rows[part]) for name, rows in columns.items()},
            seed=7,
            epoch=index % 2,
            index=index,
        )
        for index, part in enumerate(cut)
    ]


def _made(spec: CustomSpec, graph: Graph) -> Sampler:
    try:
        sampler = load(spec, graph)
    except PenstockError as error:
        raise NotConforming(str(error)) from None
    if not callable(getattr(sampler, "sample", None)):
        raise NotConforming(f"{spec.sampler} has no method 'sample'")
    return sampler


def _batches(
    spec: CustomSpec, sampler: Sampler, graph: Graph, tasks: Sequence[SamplerTask]
) -> dict[int, Arrays]:
    try:
        return made(sampler, graph, tasks)
    except PenstockError as error:
        raise NotConforming(f"{spec.sampler}: {error}") from None


def _check_same(
    spec: CustomSpec, first: Mapping[int, Arrays], second: Mapping[int, Arrays], how: str
) -> None:
    found = first_difference(first, second)
    if found is None:
        return
    index, one, other = found
    raise NotConforming(
        f"{spec.sampler}: batch {index}, {how} from the same arguments, is another one: "
        f"{in_words(first[index], second[index])}. Draw random numbers from "
        "penstock.kernels.batch_key(seed, epoch, index), and keep nothing from batch to batch",
        one,
        other,
    )
