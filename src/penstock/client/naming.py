"""The name by which a worker finds a sampler that a user wrote.

A worker is a fresh interpreter: it imports the class again, by name. One that lives in the script
being run is found by the script's file, since no other process has a `__main__` like it.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import msgspec

from penstock.sampling.spec import CustomSpec, Spec


def spec_of(config: Spec | type[Any]) -> Spec:
    """A sampling configuration as others can read it: classes become names."""
    if isinstance(config, type):
        return CustomSpec(sampler=name_of(config))
    if isinstance(config, CustomSpec):
        return msgspec.structs.replace(config, sampler=_portable(config.sampler))
    return config


def name_of(sampler: type[Any]) -> str:
    """ "module:Class" or "/path/to/script.py:Class"."""
    if "." in sampler.__qualname__:
        raise ValueError(
            f"{sampler.__qualname__} is defined inside a function or a class, where no worker can "
            "find it: move it to the top level of its module"
        )
    return _portable(f"{sampler.__module__}:{sampler.__qualname__}")


def search_path() -> tuple[str, ...]:
    """Where this process finds modules, for others that may stand elsewhere."""
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
