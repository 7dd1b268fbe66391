"""Checksums of an array, of a manifest and of a graph as a whole.

All are made from the native 128-bit digest (docs/digest.md), combined as docs/format.md says. This
module knows nothing about files.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from penstock import kernels
from penstock.graph.schema import SLOTS, ArrayKey, Arrays, PartNote, Schema

# Arrays are digested in pieces, so that an array larger than memory is read once to be both
# digested and written, and progress can be reported. The size is part of the format: another size
# gives other checksums.
PIECE_NBYTES: Final = 16 << 20

Bytes = npt.NDArray[np.uint8]


class Summed(Protocol):
    """Anything that has the form of an array and its checksum."""

    @property
    def dtype(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def checksum(self) -> str: ...


def pieces(array: npt.NDArray[Any]) -> Iterator[Bytes]:
    """Yield the bytes of a contiguous array piece by piece; for an empty one, one empty piece."""
    flat = array.reshape(-1).view(np.uint8)
    for start in range(0, max(flat.nbytes, 1), PIECE_NBYTES):
        yield flat[start : start + PIECE_NBYTES]


def sum_of_bytes(data: bytes) -> str:
    """Return the digest of `data`, in hexadecimal."""
    return kernels.digest(np.frombuffer(data, np.uint8)).hex()


def sum_of_pieces(digests: Sequence[bytes]) -> str:
    """Return the checksum of an array from the digests of its pieces."""
    return digests[0].hex() if len(digests) == 1 else sum_of_bytes(b"".join(digests))


def sum_of_array(array: npt.NDArray[Any]) -> str:
    """Return the checksum of the array's bytes. Its dtype and shape are not part of it."""
    return sum_of_pieces([kernels.digest(piece) for piece in pieces(array)])


def content_version(schema: Schema, arrays: Arrays) -> str:
    """Return a graph's version: a digest of its content, wherever it is stored. Reads all of it."""
    described = {
        key: (array.dtype, array.shape, sum_of_array(array.array))
        for key, array in arrays.items()
        if counts(key, schema.part)
    }
    return _version(schema, described)


def version_from_sums(schema: Schema, arrays: Mapping[ArrayKey, Summed]) -> str:
    """Return the version of a graph, given the checksums of its arrays."""
    described = {
        key: (array.dtype, array.shape, array.checksum)
        for key, array in arrays.items()
        if counts(key, schema.part)
    }
    return _version(schema, described)


def version_within(version: str) -> str:
    """Return the version of a part alone (`Graph.within`), given that of the part."""
    return sum_of_bytes(f"within {version}".encode())


def counts(key: ArrayKey, part: PartNote | None = None) -> bool:
    """Return whether the array is content: derived arrays only repeat other arrays.

    A csr is a derived array, too, but in a part that was cut by source.
    """
    if key.group == "csr":
        return part is not None and part.is_compact and "out" in part.sides
    return key.group != "aid" and (key.group, key.name) != ("ids", SLOTS)


def in_order(keys: Iterable[ArrayKey]) -> list[ArrayKey]:
    """Return the keys in the order in which arrays enter a version."""
    return sorted(keys, key=_order)


def _order(key: ArrayKey) -> tuple[str, tuple[str, ...], str]:
    return key.group, _parts(key.type), key.name


def _version(schema: Schema, arrays: Mapping[ArrayKey, tuple[str, tuple[int, ...], str]]) -> str:
    identity: dict[str, object] = {
        "content": 1,
        "is_hetero": schema.is_hetero,
        "nodes": [[info.name, info.num_nodes, info.attributes] for info in schema.nodes],
        "edges": [[info.name, info.num_edges, info.attributes] for info in schema.edges],
        "attributes": schema.attributes,
        "arrays": [
            [key.group, _parts(key.type), key.name, *arrays[key]] for key in in_order(arrays)
        ],
    }
    if schema.part is not None:
        identity["part"] = msgspec.to_builtins(schema.part)
    if schema.codecs:
        codecs = sorted(schema.codecs, key=lambda each: _order(each.key))
        identity["codecs"] = msgspec.to_builtins(codecs)
    return sum_of_bytes(_canonical_json(identity))


def _parts(name: str | tuple[str, ...]) -> tuple[str, ...]:
    return (name,) if isinstance(name, str) else tuple(name)


def _canonical_json(value: object) -> bytes:
    # The standard library's encoder: its output does not depend on which packages are installed.
    try:
        text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"schema.attributes: not plain JSON: {error}") from None
    return text.encode("ascii")
