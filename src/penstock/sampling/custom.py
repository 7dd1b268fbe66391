"""Samplers that users write: how they are found, called and checked.

    class Walks:
        input_kind = "link"                                     # seeds are [2, n]; else nodes [n]
        columns = ("time",)                                     # if anything comes with the inputs

        def __init__(self, graph, *, length): ...
        def sample(self, seeds, *, seed, epoch, index, columns): ...     # -> arrays by name

A sampler is named in text, "module:Class" or "/path/to/file.py:Class", and made once per process
with the graph and the spec's options. It may return any arrays; `n_id`, `edge_index` and `e_id`
mean what they mean in every batch and are checked (of a heterogeneous graph, under the names of
`sampling.names`); the attributes that the spec asks for are gathered by them. The same arguments
must give the same arrays, so whoever draws random numbers makes them from
`penstock.kernels.batch_key(seed, epoch, index)`.

What a class declares stands in the spec, too, where everybody can read it without the class.

Whatever goes wrong in the user's code is a `SamplingError` that shows the user's lines. This module
knows no processes.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType, TracebackType
from typing import Any, Final, Protocol, TypeVar

import msgspec
import numpy as np

from penstock.errors import SamplingError
from penstock.graph import Graph
from penstock.graph.dtypes import dtype_name
from penstock.graph.inventory import repeated
from penstock.graph.schema import EDGE, NODE
from penstock.graph.view import GraphView
from penstock.kernels import first_outside, name_hash
from penstock.kernels.arrays import Array, Ids
from penstock.sampling.attributes import columns_of
from penstock.sampling.batches import Batches
from penstock.sampling.buffered import BufferedBatches, Sampled
from penstock.sampling.kinds import InputKind, SamplingKind
from penstock.sampling.names import Owner, parsed, qualified, type_name
from penstock.sampling.normalize import plain
from penstock.sampling.request import Request
from penstock.sampling.spec import CustomSpec, Feed

# A message must stay one: what an exception has to say may be as long as it likes.
LONGEST_TRACEBACK: Final = 16_000
# The same holds for what is said of a batch.
MOST_ARRAYS: Final = 4096
LONGEST_NAME: Final = 255
# Nobody knows how much a user's sampler returns.
LIKELY_BYTES: Final = 64 << 20
# Attributes of a sampler's class that are fields of its spec; the first two are what it is called
# with, and must be the same in both.
DECLARATIONS: Final = ("input_kind", "columns", "node_attributes", "edge_attributes")
_CALLED_WITH: Final = DECLARATIONS[:2]

_PENSTOCK: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_Result = TypeVar("_Result")


class CustomKind(SamplingKind[CustomSpec]):
    """Samplers of users. None is loaded before its first batch: only workers run users' code."""

    def users_code(self, spec: CustomSpec) -> str | None:
        """The sampler."""
        return spec.sampler

    def group(self, spec: CustomSpec) -> str:
        """Workers of its own: a user's code may end them."""
        if spec == CustomSpec(sampler=spec.sampler):
            return spec.sampler
        key = msgspec.msgpack.encode(spec, order="deterministic")
        return f"{spec.sampler}~{hashlib.sha256(key).hexdigest()[:8]}"

    def input_kind(self, spec: CustomSpec) -> InputKind:
        """As the sampler declares."""
        return InputKind(spec.input_kind)

    def columns(self, spec: CustomSpec) -> tuple[str, ...]:
        """Those that the sampler is handed."""
        return spec.columns

    def with_options(self, spec: CustomSpec, options: Mapping[str, Any]) -> CustomSpec:
        """Options are the sampler's."""
        return msgspec.structs.replace(spec, options={**spec.options, **options})

    def check(self, spec: CustomSpec, graph: GraphView) -> None:
        """ValueError unless a sampler can be found by this name, and has what it declares."""
        module, colon, name = spec.sampler.rpartition(":")
        if not colon or not module or not name.isidentifier():
            raise ValueError(
                f"sampler is {spec.sampler!r}; expected 'module:Class' or '/path/to/file.py:Class'"
            )
        for column in repeated(spec.columns):
            raise ValueError(f"columns has {column!r} twice: each has a name of its own")
        if "" in spec.columns:
            raise ValueError("columns has ''; expected a name for each")
        columns_of(graph, spec)

    def check_inputs(
        self,
        spec: CustomSpec,
        graph: GraphView,
        feed: Feed,
        columns: Mapping[str, Array],
        tables: Mapping[str, Array],
    ) -> None:
        """ValueError unless all columns are there that the sampler reads."""
        for name in spec.columns:
            if name not in columns:
                there = ", ".join(map(repr, columns)) or "none"
                raise ValueError(
                    f"columns has no {name!r}, which {spec.sampler} reads; there are: {there}"
                )

    def draws(self, spec: CustomSpec, graph: GraphView, inputs: int, of: Owner) -> float:
        """Nobody knows."""
        return 0.0

    def batches(self, spec: CustomSpec, graph: Graph) -> Batches:
        """What the sampler returns is checked, and written then."""
        return _CustomBatches(graph, spec)

    def likely_bytes(self, spec: CustomSpec, graph: Graph, inputs: int, of: Owner) -> int:
        """The same for all."""
        return LIKELY_BYTES


class Sampler(Protocol):
    """What a user writes."""

    def sample(self, seeds: Ids, **batch: Any) -> Mapping[str, Array]:
        """The arrays of one batch, the same whenever the arguments are.

        These are `seed`, `epoch` and `index`, and `columns` where the sampler declares any.
        """


def load(spec: CustomSpec, graph: Graph) -> Sampler:
    """Makes the sampler that a spec names."""
    return called(f"making {spec.sampler}", lambda: _made(spec, graph))


def _made(spec: CustomSpec, graph: Graph) -> Sampler:
    found = find(spec.sampler)
    _check_declared(spec, declared(found))
    return found(graph, **spec.options)


def declared(sampler: Any) -> dict[str, Any]:
    """What a sampler's class declares, as fields of a spec. What an instance has is not of these:
    methods, properties, slots."""
    found = {name: getattr(sampler, name) for name in DECLARATIONS if hasattr(sampler, name)}
    return {name: value for name, value in found.items() if not hasattr(value, "__get__")}


def _check_declared(spec: CustomSpec, declarations: Mapping[str, Any]) -> None:
    """`SamplingError` if the sampler would be called with other things than it is made for."""
    for name in _CALLED_WITH:
        value, said = plain(declarations.get(name)), getattr(spec, name)
        if name in declarations and value != said:
            raise SamplingError(
                f"{spec.sampler} declares {name} = {value!r}, and the spec says {said!r}: "
                f"give CustomSpec({name}={value!r}), or the class itself"
            )


def sampled(
    sampler: Sampler,
    seeds: Ids,
    columns: Mapping[str, Array],
    *,
    seed: int,
    epoch: int,
    index: int,
) -> Any:
    """What a sampler returns for a batch; `SamplingError` shows what went wrong."""
    more = {"columns": columns} if columns else {}
    return called(
        f"sampling batch {index} of epoch {epoch}",
        lambda: sampler.sample(seeds, seed=seed, epoch=epoch, index=index, **more),
    )


def find(name: str) -> Callable[..., Sampler]:
    """The class that "module:Class" or "/path/to/file.py:Class" names. Runs the user's module."""
    place, _, attribute = name.rpartition(":")
    if not place or not attribute:
        raise SamplingError(
            f"sampler is {name!r}; expected 'module:Class' or '/path/to/file.py:Class'"
        )
    module = from_file(place) if place.endswith(".py") else importlib.import_module(place)
    found: Callable[..., Sampler] | None = getattr(module, attribute, None)
    if found is None:
        there = ", ".join(sorted(word for word in vars(module) if not word.startswith("_")))
        raise SamplingError(f"{place} has no {attribute!r}; it has: {there or 'nothing'}")
    return found


def from_file(path: str) -> ModuleType:
    """The module in a file, which may be the user's main script: it is not `__main__` here.

    Its folder is searched for what it imports, as when it is run.
    """
    path = os.path.abspath(path)
    # Files of one name in different folders are different modules.
    stem = os.path.basename(path).removesuffix(".py").replace(".", "_")
    name = f"{stem}_{name_hash([path]):x}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None, "a path that ends in .py has a loader"
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    if os.path.dirname(path) not in sys.path:
        sys.path.append(os.path.dirname(path))
    # Where dataclasses and pickle look for the module of a class.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def called(doing: str, work: Callable[[], _Result]) -> _Result:
    """What the user's code returns; `SamplingError` with its traceback if it raises.

    `sys.exit()` in a sampler must fail a batch, not end a process that has others to make. A
    Ctrl-C is not the sampler's, and what to do without memory is not known here.
    """
    try:
        return work()
    except (KeyboardInterrupt, MemoryError, SamplingError):
        raise
    except BaseException as error:
        raise SamplingError(f"{doing} failed\n{told(error)}") from error


def told(error: BaseException) -> str:
    """The traceback from the user's first line on; of a long one, its two ends."""
    import traceback  # here, where a batch has failed: a worker starts without it

    frames = _from_the_user(error.__traceback__) or error.__traceback__
    text = "".join(traceback.format_exception(type(error), error, frames)).rstrip()
    return sayable(text)


def sayable(text: str) -> str:
    """As it can go into a message: any characters made Unicode, and of much only the two ends."""
    text = text.encode(errors="backslashreplace").decode()
    if len(text) <= LONGEST_TRACEBACK:
        return text
    half = LONGEST_TRACEBACK // 2
    return f"{text[:half]}\n… {len(text) - 2 * half} characters left out …\n{text[-half:]}"


def _from_the_user(frames: TracebackType | None) -> TracebackType | None:
    """Without the frames of ours, and of the import system, that stand before the user's."""
    while frames is not None and _is_ours(frames.tb_frame.f_code.co_filename):
        frames = frames.tb_next
    return frames


def _is_ours(filename: str) -> bool:
    return filename.startswith((_PENSTOCK, "<frozen importlib")) or filename == importlib.__file__


# --- batches of a sampler ------------------------------------------------------------------------


class _CustomBatches(BufferedBatches):
    """The batches of a user's sampler."""

    def __init__(self, graph: Graph, spec: CustomSpec) -> None:
        self._calls = _SamplerCalls(graph, spec)
        super().__init__(graph, spec, self._calls)

    def load(self) -> None:
        """Makes the sampler; `SamplingError` shows what went wrong."""
        self._calls.load()

    def cut(self, request: Request) -> Sampled:
        """What the sampler returned, none of which has the name of an attribute to be gathered."""
        found = super().cut(request)
        for column, _ in self._chosen(found):
            if column.name in found.arrays:
                raise _no_batch(f"{column.name!r} is an attribute that the spec asks for")
        return found


class _SamplerCalls:
    """Calls a user's sampler, which is made with the first batch: that can tell what came of it."""

    own: frozenset[str] = frozenset()

    def __init__(self, graph: Graph, spec: CustomSpec) -> None:
        self._graph = graph
        self._spec = spec
        self._sampler: Sampler | None = None

    def load(self) -> Sampler:
        """The sampler, made when first asked for."""
        if self._sampler is None:
            self._sampler = load(self._spec, self._graph)
        return self._sampler

    def cut(self, request: Request) -> Sampled:
        """What the sampler returns."""
        result = sampled(
            self.load(),
            request.seeds.copy(),  # the user may do anything to it
            {name: request.columns[name].copy() for name in self._spec.columns},
            seed=request.seed,
            epoch=request.epoch,
            index=request.index,
        )
        arrays = checked(result, self._graph)
        return Sampled(
            {qualified(self._owner(request), "input_id"): request.positions, **arrays},
            self._ids("n_id", self._graph.node_types, "node_attributes", arrays),
            self._ids("e_id", self._graph.edge_types, "edge_attributes", arrays),
            self._facts(request),
        )

    def likely_bytes(self, inputs: int, of: Owner) -> int:
        """Room for what the sampler returns, most likely."""
        return LIKELY_BYTES

    def likely_nodes(self, inputs: int, of: Owner) -> Sequence[int]:
        """Nobody knows; the room is for all."""
        return [0] * len(self._graph.node_types)

    def likely_edges(self, inputs: int, of: Owner) -> Sequence[int]:
        """Likewise."""
        return [0] * len(self._graph.edge_types)

    def _owner(self, request: Request) -> Owner:
        """The type of the inputs."""
        return request.edge_type if self._spec.input_kind == "link" else request.node_type

    def _ids(
        self, name: str, owners: Sequence[Owner], wanted: str, arrays: Mapping[str, Array]
    ) -> list[Ids | None]:
        """By type, whose attributes are gathered; types that are not mentioned have no rows."""
        found = [arrays.get(qualified(owner, name)) for owner in owners]
        if getattr(self._spec, wanted) and all(ids is None for ids in found):
            raise _no_batch(f"it has no {name!r}, by which {wanted} are gathered")
        return found

    def _facts(self, request: Request) -> dict[str, Any]:
        facts: dict[str, Any] = {"batch_size": request.num_inputs}
        if self._graph.is_hetero:
            owner = self._owner(request)
            facts["input_type"] = owner if isinstance(owner, str) else type_name(owner)
        return facts


# --- what a sampler returned -------------------------------------------------------------------


def checked(result: Any, graph: GraphView) -> dict[str, Array]:
    """The arrays of a batch, in the order given; `SamplingError` if they make none."""
    try:
        arrays = _as_arrays(result)
        for name, array in arrays.items():
            _check_ids(name, array, arrays, graph)
    except ValueError as error:
        raise _no_batch(error) from None
    return arrays


def _no_batch(why: object) -> SamplingError:
    return SamplingError(f"what the sampler returned is no batch: {why}")


def _as_arrays(result: Any) -> dict[str, Array]:
    if not isinstance(result, Mapping):
        raise ValueError(f"it is {_kind(result)}, not a mapping from names to arrays")
    if len(result) > MOST_ARRAYS:
        raise ValueError(f"it has {len(result)} arrays; a batch may have {MOST_ARRAYS}")
    arrays = {}
    for given, value in result.items():
        name = _checked_name(given)
        if not isinstance(value, np.ndarray):
            raise ValueError(f"{name!r} is {_kind(value)}, not a NumPy array")
        try:
            dtype_name(value.dtype)
        except ValueError as error:
            raise ValueError(f"{name!r} has an {error}") from None
        arrays[name] = np.require(value, requirements=("ALIGNED", "ENSUREARRAY"))
    return arrays


def _checked_name(name: object) -> str:
    if not isinstance(name, str) or not name or not _is_unicode(name):
        raise ValueError(f"{name!r} is no name for an array")
    if len(name) > LONGEST_NAME:
        raise ValueError(f"the name {name[:20]!r}… has {len(name)} characters, not {LONGEST_NAME}")
    return str.__str__(name)  # NumPy's strings, and other kinds of str, do not travel


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # half a character
        return False
    return True


def _check_ids(name: str, array: Array, arrays: Mapping[str, Array], graph: GraphView) -> None:
    owner, attribute = parsed(name)
    match attribute:
        case "n_id":
            _check_vector(name, array)
            _check_range(name, array, graph.num_nodes(_node_type(name, owner, graph)))
        case "e_id":
            _check_vector(name, array)
            _check_range(name, array, graph.num_edges(_edge_type(name, owner, graph)))
        case "input_id":
            raise ValueError(f"{name!r} is added to every batch: the places of its seeds")
        case "edge_index":
            kind = _edge_type(name, owner, graph)
            _check_ends(name, array, arrays, (kind[0], kind[2]))
        case _:
            pass


def _check_ends(
    name: str, array: Array, arrays: Mapping[str, Array], ends: tuple[str, str]
) -> None:
    _check_integers(name, array)
    if array.ndim != 2 or len(array) != 2:
        raise ValueError(f"{name!r} has shape {list(array.shape)}, not [2, edges]")
    for row, end in enumerate(ends):
        nodes = qualified(end, "n_id")
        if nodes not in arrays:
            raise ValueError(f"{name!r} comes without {nodes!r}, whose places its ids are")
        _check_vector(nodes, arrays[nodes])
        _check_range(f"{name}[{row}]", array[row], len(arrays[nodes]))


def _check_vector(name: str, array: Array) -> None:
    _check_integers(name, array)
    if array.ndim != 1:
        raise ValueError(f"{name!r} has shape {list(array.shape)}, not one dimension")


def _check_integers(name: str, array: Array) -> None:
    if array.dtype not in (np.int64, np.int32):
        raise ValueError(f"{name!r} has dtype {array.dtype}, not int64")


def _check_range(name: str, ids: Array, bound: int) -> None:
    bad = first_outside(ids, bound)
    if bad >= 0:
        raise ValueError(f"{name}[{bad}] is {ids[bad]}; expected 0 <= id < {bound}")


def _node_type(name: str, owner: Owner, graph: GraphView) -> str:
    if isinstance(owner, str) and owner in graph.node_types:
        return owner
    raise ValueError(f"{name!r} names no node type of the graph: {_types(graph.node_types)}")


def _edge_type(name: str, owner: Owner, graph: GraphView) -> tuple[str, str, str]:
    kind = EDGE if owner == NODE else owner
    if not isinstance(kind, str) and kind in graph.edge_types:
        return kind
    raise ValueError(f"{name!r} names no edge type of the graph: {_types(graph.edge_types)}")


def _types(names: tuple[Owner, ...]) -> str:
    return ", ".join(map(repr, names)) if any(map(any, names)) else "it has no types"


def _kind(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
