"""Samplers that users write: how they are found, called and checked.

    class Walks:
        input_kind = "link"                                     # seeds are [2, n]; else nodes [n]
        columns = ("time",)                                     # if anything comes with the inputs

        def __init__(self, graph, *, length): ...
        def sample(self, seeds, *, seed, epoch, index, columns): ...     # -> arrays by name

A sampler is named as text, "module:Class" or "/path/to/file.py:Class", and created once per process
with the graph and the spec's options. It may return any arrays; `n_id`, `edge_index` and `e_id`
have their usual meaning and are checked (for a heterogeneous graph, under the names of
`sampling.names`); the attributes that the spec asks for are gathered by them. The same arguments
must give the same arrays, so a sampler must derive its random numbers from
`penstock.kernels.batch_key(seed, epoch, index)`.

The declarations of a class are repeated in the spec, where they can be read without the class.

Any exception in the user's code becomes a `SamplingError` that shows the user's lines. This module
knows no processes.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import itertools
import os
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType, TracebackType
from typing import Any, Final, Protocol, TypeVar

import msgspec
import numpy as np

from penstock.errors import SamplingError, suggestion
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
from penstock.sampling.option_arrays import mapped, with_arrays
from penstock.sampling.request import Request
from penstock.sampling.spec import CustomSpec, Feed, Spec

# An exception's text may have any length, but must fit into a message.
LONGEST_TRACEBACK: Final = 16_000
# The description of a batch must fit into a message, too.
MOST_ARRAYS: Final = 4096
LONGEST_NAME: Final = 255
# It is not known how much a user's sampler returns.
LIKELY_BYTES: Final = 64 << 20
# Attributes of a sampler's class that are fields of its spec. The first two decide how it is
# called, and must be the same in both.
DECLARATIONS: Final = ("input_kind", "columns", "node_attributes", "edge_attributes")
_CALLED_WITH: Final = DECLARATIONS[:2]

_PENSTOCK: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_Result = TypeVar("_Result")


class CustomKind(SamplingKind[CustomSpec]):
    """Users' samplers. None is loaded before its first batch: only workers run users' code."""

    def users_code(self, spec: CustomSpec) -> str | None:
        """Return the sampler's name."""
        return spec.sampler

    def group(self, spec: CustomSpec) -> str:
        """Return a separate worker group: a user's code may end its workers."""
        if spec == CustomSpec(sampler=spec.sampler):
            return spec.sampler
        key = msgspec.msgpack.encode(spec, order="deterministic")
        return f"{spec.sampler}~{hashlib.sha256(key).hexdigest()[:8]}"

    def input_kind(self, spec: CustomSpec) -> InputKind:
        """Return the kind that the sampler declares."""
        return InputKind(spec.input_kind)

    def columns(self, spec: CustomSpec) -> tuple[str, ...]:
        """Return the columns that the sampler is called with."""
        return spec.columns

    def with_options(self, spec: CustomSpec, options: Mapping[str, Any]) -> CustomSpec:
        """Return the spec with these options for the sampler."""
        return msgspec.structs.replace(spec, options={**spec.options, **options})

    def check(self, spec: CustomSpec, graph: GraphView) -> None:
        """Raise `ValueError` unless the sampler's name and declarations are valid."""
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
        """Raise `ValueError` unless all columns that the sampler reads are given."""
        for name in spec.columns:
            if name not in columns:
                there = ", ".join(map(repr, columns)) or "none"
                raise ValueError(
                    f"columns has no {name!r}, which {spec.sampler} reads; there are: {there}"
                )

    def draws(self, spec: CustomSpec, graph: GraphView, inputs: int, of: Owner) -> float:
        """Return 0: the work is not known."""
        return 0.0

    def batches(self, spec: CustomSpec, graph: Graph) -> Batches:
        """Return batches that check what the sampler returns before writing it."""
        return _CustomBatches(graph, spec)

    def likely_bytes(self, spec: CustomSpec, graph: Graph, inputs: int, of: Owner) -> int:
        """Return a constant: the size is not known."""
        return LIKELY_BYTES


class Sampler(Protocol):
    """The interface of a user's sampler."""

    def sample(self, seeds: Ids, **batch: Any) -> Mapping[str, Array]:
        """Return the arrays of one batch, the same for the same arguments.

        These are `seed`, `epoch` and `index`, and `columns` if the sampler declares any.
        """


def load(spec: CustomSpec, graph: Graph) -> Sampler:
    """Create the sampler that a spec names."""
    return called(f"making {spec.sampler}", lambda: _made(spec, graph))


def _made(spec: CustomSpec, graph: Graph) -> Sampler:
    found = find(spec.sampler)
    _check_declared(spec, declared(found))
    try:
        options = with_arrays(spec.options, mapped(spec.arrays))
    except FileNotFoundError:
        raise SamplingError(
            f"options of {spec.sampler} have arrays in shared memory that is gone: the process "
            "that made it has ended, or has closed its loader"
        ) from None
    return _again(found, graph, options) if spec.from_state else found(graph, **options)


def _again(sampler: Any, graph: Graph, state: Mapping[str, Any]) -> Sampler:
    """Return an instance with the state of another one, in this process."""
    made: Any = sampler.__new__(sampler)
    vars(made).update(state, graph=graph)
    return made  # type: ignore[no-any-return]


# Classes that were given here, and that cannot be imported: of a notebook, of a function. Whoever
# samples by one keeps it alive.
_known: Final[weakref.WeakValueDictionary[str, type[Any]]] = weakref.WeakValueDictionary()


def name_here(sampler: type[Any]) -> str:
    """Return a name by which `find` finds a class in this process, wherever it is defined."""
    module, name = sampler.__module__, sampler.__name__
    if module != "__main__" and getattr(sys.modules.get(module), name, None) is sampler:
        return f"{module}:{name}"
    for number in itertools.count(1):
        is_first = number == 1 and module == "__main__"
        chosen = f"{module}:{name}" if is_first else f"{module}~{number}:{name}"
        if _known.setdefault(chosen, sampler) is sampler:
            return chosen
    raise AssertionError


def check_plain(spec: Spec) -> None:
    """Raise `ValueError` for options that only processes of one host can share."""
    if isinstance(spec, CustomSpec) and spec.arrays:
        raise ValueError(
            f"options of {spec.sampler} have arrays, which workers of a server cannot map: let the "
            "sampler read them from a file that the server has, or from attributes of the graph"
        )


def declared(sampler: Any) -> dict[str, Any]:
    """Return the declarations of a sampler's class, as fields of a spec.

    Attributes of instances are not among them: methods, properties, slots.
    """
    found = {name: getattr(sampler, name) for name in DECLARATIONS if hasattr(sampler, name)}
    return {name: value for name, value in found.items() if not hasattr(value, "__get__")}


def _check_declared(spec: CustomSpec, declarations: Mapping[str, Any]) -> None:
    """Raise `SamplingError` if the spec's input kind or columns are not those declared."""
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
    """Return what a sampler returns for a batch; `SamplingError` shows what went wrong."""
    more = {"columns": columns} if columns else {}
    return called(
        f"sampling batch {index} of epoch {epoch}",
        lambda: sampler.sample(seeds, seed=seed, epoch=epoch, index=index, **more),
    )


def find(name: str) -> Callable[..., Sampler]:
    """Return the class that the name of a sampler refers to. Runs the user's module."""
    place, _, attribute = name.rpartition(":")
    if not place or not attribute:
        raise SamplingError(
            f"sampler is {name!r}; expected 'module:Class' or '/path/to/file.py:Class'"
        )
    if (known := _known.get(name)) is not None:
        return known
    module = from_file(place) if place.endswith(".py") else importlib.import_module(place)
    found: Callable[..., Sampler] | None = getattr(module, attribute, None)
    if found is None:
        words = sorted(word for word in vars(module) if not word.startswith("_"))
        there, near = ", ".join(words), suggestion(attribute, words)
        raise SamplingError(f"{place} has no {attribute!r}; it has: {there or 'nothing'}{near}")
    return found


def from_file(path: str) -> ModuleType:
    """Return the module in a file, which may be the user's main script: it is not `__main__` here.

    Its folder is added to the import path, as when it is run.
    """
    path = os.path.abspath(path)
    # Files with the same name in different folders are different modules.
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
    # Dataclasses and pickle look here for the module of a class.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def called(doing: str, work: Callable[[], _Result]) -> _Result:
    """Return what the user's code returns; `SamplingError` with its traceback if it raises.

    `sys.exit()` in a sampler must fail a batch, not end a process that has other batches to make. A
    Ctrl-C does not come from the sampler, and a lack of memory is handled by the caller.
    """
    try:
        return work()
    except (KeyboardInterrupt, MemoryError, SamplingError):
        raise
    except BaseException as error:
        raise SamplingError(f"{doing} failed\n{traceback_of(error)}") from error


def traceback_of(error: BaseException) -> str:
    """Return the traceback from the user's first line on; if it is long, its two ends."""
    import traceback  # imported on failure only: a worker starts without it

    frames = _from_the_user(error.__traceback__) or error.__traceback__
    text = "".join(traceback.format_exception(type(error), error, frames)).rstrip()
    return fit_for_message(text)


def fit_for_message(text: str) -> str:
    """Return text that fits a message: as valid Unicode, and only the two ends if it is long."""
    text = text.encode(errors="backslashreplace").decode()
    if len(text) <= LONGEST_TRACEBACK:
        return text
    half = LONGEST_TRACEBACK // 2
    return f"{text[:half]}\n… {len(text) - 2 * half} characters left out …\n{text[-half:]}"


def _from_the_user(frames: TracebackType | None) -> TracebackType | None:
    """Skip the frames of Penstock and of the import system before the user's."""
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
        """Create the sampler; `SamplingError` shows what went wrong."""
        self._calls.load()

    def cut(self, request: Request) -> Sampled:
        """Return the sampler's result; none of it may have the name of a gathered attribute."""
        found = super().cut(request)
        for each in self._chosen(found):
            if each.column.name in found.arrays:
                raise _no_batch(f"{each.column.name!r} is an attribute that the spec asks for")
        return found


class _SamplerCalls:
    """Calls a user's sampler. It is created with the first batch, which can report a failure."""

    own: frozenset[str] = frozenset()

    def __init__(self, graph: Graph, spec: CustomSpec) -> None:
        self._graph = graph
        self._spec = spec
        self._sampler: Sampler | None = None

    def load(self) -> Sampler:
        """Return the sampler, created at first use."""
        if self._sampler is None:
            self._sampler = load(self._spec, self._graph)
        return self._sampler

    def cut(self, request: Request) -> Sampled:
        """Return what the sampler returns, checked."""
        result = sampled(
            self.load(),
            request.seeds.copy(),  # the user's code may change it
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
        """Return room for what the sampler returns, most likely."""
        return LIKELY_BYTES

    def likely_nodes(self, inputs: int, of: Owner) -> Sequence[int]:
        """Return zeros: the numbers are not known, and `likely_bytes` covers everything."""
        return [0] * len(self._graph.node_types)

    def likely_edges(self, inputs: int, of: Owner) -> Sequence[int]:
        """Return zeros, as `likely_nodes`."""
        return [0] * len(self._graph.edge_types)

    def _owner(self, request: Request) -> Owner:
        """Return the type of the inputs."""
        return request.edge_type if self._spec.input_kind == "link" else request.node_type

    def _ids(
        self, name: str, owners: Sequence[Owner], wanted: str, arrays: Mapping[str, Array]
    ) -> list[Ids | None]:
        """Return, by type, the ids whose attributes are gathered; None for types not returned."""
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
    """Return the arrays of a batch, in the order given; `SamplingError` if they are invalid."""
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
    return str.__str__(name)  # subclasses of str, such as NumPy's, cannot be sent


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate
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
