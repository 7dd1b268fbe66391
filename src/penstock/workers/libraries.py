"""Names of native libraries: which are loaded, and which of them more than once.

Two copies of one library in a process (two OpenMP runtimes, two C++ libraries) are a common cause
of crashes that cannot be explained from the Python side.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePath
from typing import Final

# Wheels contain libraries with unique names: libgomp-a34b3233.so.1.0.0.
_UNIQUE: Final = re.compile(r"(-[0-9a-f]{6,})+$")
_EXTENSION: Final = re.compile(r"\.(cpython-|abi3|pypy)[^/]*$")


def short_names(paths: Iterable[str]) -> list[str]:
    """Return their names, each once, without those of Python itself."""
    names = (PurePath(path).name for path in paths if "/lib-dynload/" not in path)
    return sorted({_EXTENSION.sub("", name) for name in names})


def loaded_twice(paths: Iterable[str]) -> dict[str, list[str]]:
    """Return libraries of which several copies are loaded, each with the paths of its copies.

    Extension modules are left out: those of two packages may well have the same name.
    """
    copies: dict[str, list[str]] = {}
    for path in dict.fromkeys(paths):
        name = PurePath(path).name
        if name.startswith("lib") and not _EXTENSION.search(name):
            copies.setdefault(_UNIQUE.sub("", name.split(".so")[0]), []).append(path)
    return {name: found for name, found in copies.items() if len(found) > 1}
