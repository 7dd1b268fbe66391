"""Arrays among the options of a user's sampler, which lie in shared memory and not in the spec.

In the options, a mark stands for each array; the spec has their handles beside the options. So a
spec stays small, and all workers of a host map the same memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from penstock.graph.shared import ArrayHandle, SharedArray
from penstock.kernels.arrays import Array

# A mapping with this key alone stands for the array of that number.
MARK: Final = "$array"


def each_array(value: Any, label: str, take: Callable[[str, Any], object | None]) -> Any:
    """Return `value` with what `take(label, value)` returns for its parts, where that is not None.

    Args:
        value: Numbers, text, lists and mappings, with arrays among them.
        label: The user's name for it.
        take: Called with every part that is no list and no mapping, and its label.
    """
    match value:
        case Mapping():
            return {key: each_array(part, f"{label}[{key!r}]", take) for key, part in value.items()}
        case list() | tuple():
            return [each_array(part, f"{label}[{at}]", take) for at, part in enumerate(value)]
    taken = take(label, value)
    return value if taken is None else taken


def with_arrays(value: Any, arrays: Sequence[Array]) -> Any:
    """Return options with the arrays in the places of their marks."""
    match value:
        case {"$array": int(number), **rest} if not rest:
            return arrays[number]
        case Mapping():
            return {key: with_arrays(part, arrays) for key, part in value.items()}
        case list() | tuple():
            return [with_arrays(part, arrays) for part in value]
    return value


def mapped(handles: Sequence[ArrayHandle]) -> list[Array]:
    """Return the arrays, read-only; `FileNotFoundError` if their process has ended."""
    return [SharedArray.attach(handle).array for handle in handles]
