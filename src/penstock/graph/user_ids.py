"""The ids that users gave their nodes: read from what users pass, and found among a graph's arrays.

Everything else in a graph numbers nodes from 0. Here "ids" are the users', text or numbers of 64
bits, and "nodes" are numbers. `kernels.id_table` leads from one to the other; this module does not
know where a graph's arrays are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from penstock.graph.inventory import Shaped
from penstock.graph.schema import KEYS, OFFSETS, TEXT, ArrayKey, Arrays
from penstock.graph.tensors import as_numpy, is_tensor
from penstock.kernels.id_table import Keys, Text

Array: TypeAlias = npt.NDArray[Any]
# The users' ids as an array: of int64, or of objects that are strings.
UserIdArray: TypeAlias = npt.NDArray[np.int64] | npt.NDArray[np.object_]
IdKind: TypeAlias = Literal["int64", "text"]
OnMissing: TypeAlias = Literal["raise", "skip"]

ON_MISSING: Final = ("raise", "skip")
_EXPECTED: Final = "expected strings, or integers of 64 bits"


class UserIds:
    """Ids as users know them, which `penstock.ids` marks so that nobody takes them for numbers."""

    def __init__(self, given: Any) -> None:
        self.given = given

    def __repr__(self) -> str:
        return f"ids({self.given!r:.80})"


def ids(given: Any) -> UserIds:
    """Mark integers as the users' own ids, where integers mean the numbers of nodes otherwise.

    `input_nodes` and the like take both. Strings can only be ids; an integer alone does not say
    which of the two it is, and most graphs have a node 17 and an id 17 that is another one.

    Args:
        given: The ids: an array, a tensor or a list of integers, or of strings.

    Returns:
        What loaders take for nodes: `input_nodes=penstock.ids([9017, 9003])`, or with a type
            `("user", penstock.ids([9017, 9003]))`.

    Examples:
        >>> import penstock as ps
        >>> graph = ps.Graph.from_coo([[0, 1], [1, 2]], node_ids=[9003, 9017, 9001])
        >>> with ps.NeighborLoader(graph, [2], ps.ids([9017]), num_workers=0) as loader:
        ...     print([graph.names(batch).tolist() for batch in loader])
        [[9017, 9003]]
    """
    return UserIds(given)


def are_user_ids(given: Any) -> bool:
    """Return whether what was given for nodes are users' ids: marked, or a list of strings."""
    if isinstance(given, UserIds):
        return True
    if isinstance(given, list | tuple):
        return len(given) > 0 and all(isinstance(each, str) for each in given[:2])
    if is_tensor(given) or not hasattr(given, "__array__"):
        return False
    return _is_text(np.asarray(given))


def keys_of(label: str, given: Any) -> Keys:
    """Return users' ids as keys.

    Args:
        label: The argument's name.
        given: An array, a tensor or a list; what pandas or pyarrow have, too.

    Raises:
        ValueError: They are neither text nor integers; the error names the first that is not.
    """
    if isinstance(given, UserIds):
        given = given.given
    if isinstance(given, Text):
        return given
    if isinstance(given, str) or given is None:
        raise ValueError(f"{label} is {given!r}; {_EXPECTED}, in a list or an array")
    array = _array(label, given)
    if array.ndim != 1:
        raise ValueError(f"{label} has shape {list(array.shape)}; expected one dimension")
    if _is_text(array):
        return Text.of(array.tolist(), label)
    if array.dtype == object:
        array = _integers(label, array)
    if len(array) == 0 and array.dtype.kind == "f":  # an empty list has no type
        return np.empty(0, np.int64)
    if array.dtype.kind not in "iu":
        raise ValueError(f"{label} has dtype {array.dtype}; {_EXPECTED}")
    if array.dtype == np.uint64 and (array > 2**63 - 1).any():
        at = int(np.argmax(array > 2**63 - 1))
        raise ValueError(f"{label}[{at}] is {array[at]}; expected at most {2**63 - 1}")
    return np.require(array, np.int64, ["C", "A"])


def as_array(keys: Keys) -> UserIdArray:
    """Return keys as users see them: int64, or objects that are strings."""
    if not isinstance(keys, Text):
        return keys
    found = np.empty(len(keys), object)
    found[:] = keys.strings()
    return found


def kind_of(keys: Keys) -> IdKind:
    """Return of which kind keys are."""
    return "text" if isinstance(keys, Text) else "int64"


def kind_among(arrays: Mapping[ArrayKey, Shaped], node_type: str) -> IdKind | None:
    """Return of which kind the ids of a node type are; None if it has none."""
    if ArrayKey("ids", node_type, KEYS) in arrays:
        return "int64"
    return "text" if ArrayKey("ids", node_type, OFFSETS) in arrays else None


def keys_among(arrays: Arrays, node_type: str) -> Keys:
    """Return the ids of a node type, which it has."""
    numbers = arrays.get(ArrayKey("ids", node_type, KEYS))
    if numbers is not None:
        return numbers.array
    offsets, text = (arrays[ArrayKey("ids", node_type, name)] for name in (OFFSETS, TEXT))
    return Text(offsets.array, text.array)


def arrays_of(node_type: str, keys: Keys) -> dict[ArrayKey, Array]:
    """Return the arrays in which a graph keeps the ids of a node type."""
    if isinstance(keys, Text):
        named: dict[str, Array] = {OFFSETS: keys.offsets, TEXT: keys.data}
        return {ArrayKey("ids", node_type, name): array for name, array in named.items()}
    return {ArrayKey("ids", node_type, KEYS): keys}


def taken(keys: Keys, rows: npt.NDArray[np.int64]) -> Keys:
    """Return the keys in some rows."""
    return keys.take(rows) if isinstance(keys, Text) else keys[rows]


def piece_of(keys: Keys, begin: int, end: int) -> Keys:
    """Return consecutive keys, in the memory of all."""
    if isinstance(keys, Text):
        return Text(keys.offsets[begin : end + 1], keys.data)
    return keys[begin:end]


def pieces_of(keys: Keys, most: int) -> Iterator[Keys]:
    """Yield keys in order, `most` at a time; text has bytes of its own in each piece."""
    for begin in range(0, len(keys), most):
        rows = np.arange(begin, min(begin + most, len(keys)))
        yield taken(keys, rows)


def joined(pieces: Sequence[Keys], kind: IdKind) -> Keys:
    """Return the keys of all pieces, which are of this kind, one after the other.

    The offsets of each piece begin at 0, and its text ends where they do.
    """
    if kind == "int64":
        return np.concatenate([np.empty(0, np.int64), *(np.asarray(each) for each in pieces)])
    texts = [each for each in pieces if isinstance(each, Text)]
    ends = np.cumsum([0, *(len(each.data) for each in texts)])
    offsets = [each.offsets[1:] + start for each, start in zip(texts, ends, strict=False)]
    whole = np.concatenate([np.zeros(1, np.int64), *offsets])
    return Text(whole, np.concatenate([np.empty(0, np.uint8), *(each.data for each in texts)]))


def _array(label: str, given: Any) -> Array:
    if isinstance(given, list | tuple):  # NumPy would turn 1 into "1" beside a string
        found = np.empty(len(given), object)
        found[:] = given
        return found
    if is_tensor(given):
        return as_numpy(label, given.detach().cpu())
    return np.asarray(given)


def _is_text(array: Array) -> bool:
    """Return whether the first element says that these are strings, of NumPy or of Python."""
    if array.dtype.kind in "UT":
        return True
    return array.dtype == object and array.size > 0 and isinstance(array.flat[0], str)


def _integers(label: str, array: npt.NDArray[np.object_]) -> npt.NDArray[np.int64]:
    """Return Python's integers as an array; an error names the first object that is none."""
    for at, each in enumerate(array):
        is_integer = isinstance(each, int | np.integer) and not isinstance(each, bool)
        if not is_integer:
            raise ValueError(f"{label}[{at}] is {each!r:.60}; {_EXPECTED}")
        if not -(2**63) <= each < 2**63:
            raise ValueError(f"{label}[{at}] is {each}; expected an integer of 64 bits")
    return array.astype(np.int64)
