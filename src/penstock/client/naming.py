"""The name by which a worker finds a sampler that a user wrote.

A worker is a fresh interpreter, so it imports the class again, by name. A class that lives in the
script being run is found by the script's file, since no other process has the same `__main__`.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Final, get_args

import msgspec
import numpy as np

from penstock.sampling.custom import declared
from penstock.sampling.normalize import settled
from penstock.sampling.spec import BuiltInSpec, CustomSpec, Spec

_CALL: Final = (
    "expected a spec, such as NeighborSpec(num_neighbors=(15, 10)), or the class of a sampler"
)


def spec_of(config: Any) -> Spec:
    """Return a sampling configuration that other processes can read.

    Classes become names, and lists become tuples. What the class of a user's sampler declares
    becomes part of its spec.
    """
    if isinstance(config, type):
        if issubclass(config, get_args(Spec)):
            raise ValueError(f"sampling_config is the class {config.__name__} itself; {_CALL}")
        spec = CustomSpec(sampler=name_of(config), **declared(config))
        return settled(spec, f"{config.__qualname__}.")
    if isinstance(config, CustomSpec):
        return _custom(settled(config))
    if isinstance(config, BuiltInSpec):
        return settled(config)
    if hasattr(config, "sample"):
        raise ValueError(
            f"sampling_config is {config!r}, a sampler that is made already; expected its class, "
            f"{type(config).__name__}, which every worker makes one of, or a CustomSpec"
        )
    raise ValueError(f"sampling_config is {config!r}; {_CALL}")


def _custom(spec: CustomSpec) -> CustomSpec:
    """Return the spec with options that can be sent to other processes."""
    for name, value in spec.options.items():
        try:
            msgspec.msgpack.encode({name: value}, enc_hook=_number)
        except (TypeError, ValueError, OverflowError, RecursionError):
            raise ValueError(
                f"options[{name!r}] is {value!r}; expected what can be sent to workers: numbers, "
                "text, lists, mappings"
            ) from None
    options = msgspec.to_builtins(spec.options, enc_hook=_number)
    return msgspec.structs.replace(spec, sampler=_portable(spec.sampler), options=options)


def _number(value: object) -> object:
    """Return a NumPy scalar as a plain number."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{value!r} is no plain data")


def name_of(sampler: type[Any]) -> str:
    """Return a sampler class's name: "module:Class" or "/path/to/script.py:Class"."""
    if "." in sampler.__qualname__:
        raise ValueError(
            f"{sampler.__qualname__} is defined inside a function or a class, where no worker can "
            "find it: move it to the top level of its module"
        )
    return _portable(f"{sampler.__module__}:{sampler.__qualname__}")


def search_path() -> tuple[str, ...]:
    """Return this process's module search path, made absolute: others may have another folder."""
    return tuple(dict.fromkeys(os.path.abspath(entry) for entry in sys.path))


def _portable(name: str) -> str:
    module, colon, member = name.rpartition(":")
    if not colon or not module or not member:
        raise ValueError(f"sampler is {name!r}; expected 'module:Class' or '/path/file.py:Class'")
    if module == "__main__":
        return f"{_main_script()}:{member}"
    return f"{os.path.abspath(module)}:{member}" if module.endswith(".py") else name


def _main_script() -> str:
    main = sys.modules["__main__"]
    if (spec := getattr(main, "__spec__", None)) is not None:  # python -m package.module
        return str(spec.name)
    file: str | None = getattr(main, "__file__", None)
    if file is None or not os.path.isfile(file):
        raise ValueError(
            "the sampler was defined interactively, where no worker can find it: "
            "put it into a file that can be imported"
        )
    return os.path.abspath(file)
