"""How a process that makes batches finds a sampler that a user wrote, and what it is made with.

A worker is a fresh interpreter, so it imports the class again, by name. A class of the script that
is run is found by the script's file, if importing that file runs nothing else; otherwise, as with
a class of a notebook, its source is written to a module of its own (`sampler_source`). In this
process a class is used as it is.
"""

from __future__ import annotations

import ast
import os
import sys
import weakref
from collections.abc import Mapping
from enum import Enum
from typing import Any, Final, get_args

import msgspec
import numpy as np

from penstock.client.channel.inputs import together
from penstock.client.sampler_source import module_with
from penstock.graph import Graph
from penstock.graph.shared import ArrayHandle, SharedArray
from penstock.graph.tensors import floats, is_array, plain
from penstock.sampling.custom import check_plain, declared, name_here
from penstock.sampling.normalize import settled
from penstock.sampling.option_arrays import MARK, each_array, mapped
from penstock.sampling.spec import BuiltInSpec, CustomSpec, Spec

_CALL: Final = (
    "expected a spec, such as NeighborSpec(num_neighbors=(15, 10)), or the class of a sampler"
)


class Where(Enum):
    """Where batches are made, which decides how a sampler is found."""

    HERE = "this process"
    WORKERS = "workers of this host"
    SERVER = "workers of a server"


def spec_of(
    config: Any, where: Where = Where.WORKERS, options: Mapping[str, Any] | None = None
) -> Spec:
    """Return a sampling configuration that other processes can read.

    Classes become names, lists become tuples, and arrays among options are put into shared memory,
    which lives as long as the spec. What the class of a user's sampler declares becomes part of its
    spec, and so do the attributes of an instance. `options` are those of a class.
    """
    if isinstance(config, type):
        if issubclass(config, get_args(Spec)):
            raise ValueError(f"sampling_config is the class {config.__name__} itself; {_CALL}")
        spec = settled(_spec_by(config, where, options), f"{config.__qualname__}.")
        return _custom(spec, where, "options")
    if options is not None:
        raise ValueError(
            f"options are given, but the sampler is a {type(config).__name__} that is made "
            "already: give its class"
        )
    if isinstance(config, CustomSpec):
        sampler = _portable(config.sampler, where)
        return _custom(settled(msgspec.structs.replace(config, sampler=sampler)), where, "options")
    if isinstance(config, BuiltInSpec):
        return settled(config)
    if hasattr(config, "sample"):
        return _spec_of_instance(config, where)
    raise ValueError(f"sampling_config is {config!r}; {_CALL}")


def is_same(one: Spec, other: Spec) -> bool:
    """Return whether two specs sample alike; arrays among options count by what is in them."""
    if not isinstance(one, CustomSpec) or not isinstance(other, CustomSpec):
        return one == other
    plain_one, plain_other = (msgspec.structs.replace(each, arrays=()) for each in (one, other))
    if plain_one != plain_other or len(one.arrays) != len(other.arrays):
        return False
    forms = [[(each.dtype, each.shape) for each in spec.arrays] for spec in (one, other)]
    return forms[0] == forms[1] and all(
        np.array_equal(mine.reshape(-1).view(np.uint8), its.reshape(-1).view(np.uint8))
        for mine, its in zip(mapped(one.arrays), mapped(other.arrays), strict=True)
    )


def _spec_by(
    sampler: type[Any], where: Where, options: Mapping[str, Any] | None = None
) -> CustomSpec:
    if options is not None and not isinstance(options, Mapping):
        raise ValueError(f"options is {options!r}; expected names and values")
    given = dict(options or {})
    return CustomSpec(sampler=name_of(sampler, where), options=given, **declared(sampler))


def _spec_of_instance(sampler: Any, where: Where) -> CustomSpec:
    """Return a spec by which other processes make an instance with the same attributes."""
    kind = type(sampler)
    if not hasattr(sampler, "__dict__"):
        raise ValueError(
            f"sampler is a {kind.__name__}, whose attributes cannot be listed (it has __slots__); "
            "expected its class"
        )
    # Workers set `graph` themselves: see `CustomSpec.from_state`.
    state = {name: value for name, value in vars(sampler).items() if name != "graph"}
    for name, value in state.items():
        if isinstance(value, Graph):
            raise ValueError(
                f"the attribute {name!r} of the {kind.__name__} is a Graph: an instance has the "
                "graph that is sampled as its attribute 'graph', wherever batches are made"
            )
    spec = msgspec.structs.replace(_spec_by(kind, where), options=state, from_state=True)
    return _custom(settled(spec, f"{kind.__qualname__}."), where, f"the {kind.__name__}'s state")


def _custom(spec: CustomSpec, where: Where, label: str) -> CustomSpec:
    """Return the spec with options that can be sent to other processes."""
    given: list[tuple[str, Any]] = []

    def take(where_found: str, value: Any) -> object | None:
        if not is_array(value) or isinstance(value, np.generic):
            return None
        given.append((where_found, value))
        return {MARK: len(spec.arrays) + len(given) - 1}

    options = each_array(spec.options, label, take)
    for name, value in options.items():
        try:
            msgspec.msgpack.encode({name: value}, enc_hook=_number)
        except (TypeError, ValueError, OverflowError, RecursionError):
            raise ValueError(
                f"{label}[{name!r}] is {spec.options[name]!r}; expected what can be sent to "
                "workers: numbers, text, lists, mappings, arrays"
            ) from None
    spec = msgspec.structs.replace(
        spec,
        options=msgspec.to_builtins(options, enc_hook=_number),
        arrays=(*spec.arrays, *_shared(given)),
    )
    if where is Where.SERVER:
        check_plain(spec)
    return spec


def _shared(given: list[tuple[str, Any]]) -> list[ArrayHandle]:
    """Return handles of arrays in shared memory, which lives as long as these handles."""
    ours = {label: value for label, value in given if isinstance(value, SharedArray)}
    copied = {}
    for label, value in given:
        if label not in ours:
            found = plain(label, value)
            copied[label] = floats(found.array, found.dtype)
    shared: dict[str, SharedArray] = ours | (together(copied) if copied else {})
    handles = [shared[label].path_handle() for label, _ in given]
    for handle, (label, _) in zip(handles, given, strict=True):
        weakref.finalize(handle, _let_go, shared[label].segment)
    return handles


def _let_go(segment: object) -> None:
    """Do nothing: a finalizer holds what it is called with until then."""


def _number(value: object) -> object:
    """Return a NumPy scalar as a plain number."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{value!r} is no plain data")


def name_of(sampler: type[Any], where: Where = Where.WORKERS) -> str:
    """Return a sampler class's name: "module:Class" or "/path/to/script.py:Class"."""
    if where is Where.HERE:
        return name_here(sampler)
    if "." in sampler.__qualname__:
        raise ValueError(
            f"{sampler.__qualname__} is defined inside a function or a class, where no worker can "
            "find it: move it to the top level of its module, or use num_workers=0"
        )
    if sampler.__module__ == "__main__":
        return _name_in_main(sampler, where)
    return f"{sampler.__module__}:{sampler.__qualname__}"


def search_path() -> tuple[str, ...]:
    """Return this process's module search path, made absolute: others may have another folder."""
    return tuple(dict.fromkeys(os.path.abspath(entry) for entry in sys.path))


def _portable(name: Any, where: Where) -> Any:
    if not isinstance(name, str):
        return name  # `settled` says what is wrong with it
    module, colon, member = name.rpartition(":")
    if not colon or not module or not member:
        raise ValueError(f"sampler is {name!r}; expected 'module:Class' or '/path/file.py:Class'")
    if module == "__main__":
        found = getattr(sys.modules["__main__"], member, None)
        if not isinstance(found, type):
            raise ValueError(f"sampler is {name!r}; the program that is run has no such class")
        return name_of(found, where)
    return f"{os.path.abspath(module)}:{member}" if module.endswith(".py") else name


def _name_in_main(sampler: type[Any], where: Where) -> str:
    main = sys.modules["__main__"]
    spec, file = getattr(main, "__spec__", None), str(getattr(main, "__file__", ""))
    if os.path.isfile(file) and (where is Where.SERVER or _has_guard(file)):
        module = os.path.abspath(file) if spec is None else str(spec.name)  # python -m module
        return f"{module}:{sampler.__qualname__}"
    if where is Where.SERVER:
        raise ValueError(
            f"{sampler.__qualname__} was defined interactively, where no server can find it: a "
            "server runs the samplers that it was started with, by their names"
        )
    return f"{module_with(sampler)}:{sampler.__qualname__}"


def _has_guard(file: str) -> bool:
    """Return whether a script has `if __name__ == "__main__":`, so that it can be imported."""
    with open(file, "rb") as script:
        tree = ast.parse(script.read())
    return any(
        isinstance(node, ast.If)
        and {"__name__", "__main__"}
        <= {getattr(part, "id", getattr(part, "value", None)) for part in ast.walk(node.test)}
        for node in tree.body
    )
