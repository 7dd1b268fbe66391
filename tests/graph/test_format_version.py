"""The version: a digest of the content, the same in memory and on disk."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest

from penstock import kernels
from penstock.graph.checksum import PIECE_NBYTES, sum_of_array
from penstock.graph.format import content_version, read, write
from penstock.graph.schema import NODE, ArrayKey, EdgeTypeInfo, NodeTypeInfo, Schema
from penstock.graph.shared import SharedArray
from tests.graph.format_graphs import CITES, WRITES, Parts, library, shared, tiny

pytestmark = pytest.mark.usefixtures("no_leaks")


def test_the_version_is_the_same_in_memory_and_on_disk(tmp_path: Path) -> None:
    parts = library()
    written = write(tmp_path / "x.graph", *parts)
    opened = read(tmp_path / "x.graph")
    computed = content_version(opened.schema, opened.arrays)
    assert {written, opened.version, computed} == {content_version(*parts)}


def test_the_version_is_hexadecimal_and_short() -> None:
    assert bytes.fromhex(version := content_version(*tiny())).hex() == version
    assert len(version) == 32


def test_a_saved_copy_of_an_opened_graph_has_its_version(tmp_path: Path) -> None:
    first = write(tmp_path / "x.graph", *library())
    opened = read(tmp_path / "x.graph")
    assert write(tmp_path / "y.graph", opened.schema, opened.arrays) == first


def test_the_order_arrays_are_given_in_does_not_matter() -> None:
    schema, arrays = library()
    backwards = dict(reversed(list(arrays.items())))
    assert content_version(schema, backwards) == content_version(schema, arrays)


def test_the_order_attributes_are_given_in_does_not_matter() -> None:
    schema, arrays = tiny()
    versions = {
        content_version(msgspec.structs.replace(schema, attributes=attributes), arrays)
        for attributes in ({"a": 1, "b": (2,)}, {"b": [2], "a": 1})
    }
    assert len(versions) == 1


def test_a_derived_csr_does_not_matter(tmp_path: Path) -> None:
    schema, arrays = library()
    bare = {key: array for key, array in arrays.items() if key.group != "csr"}
    versions = {
        content_version(schema, arrays),
        content_version(schema, bare),
        write(tmp_path / "x.graph", schema, arrays),
        write(tmp_path / "x.graph", schema, bare),
    }
    assert len(versions) == 1


def renamed(parts: Parts) -> Parts:
    arrays = dict(parts.arrays)
    arrays[ArrayKey("node", "paper", "label")] = arrays.pop(ArrayKey("node", "paper", "y"))
    return Parts(parts.schema, arrays)


def reshaped(parts: Parts) -> Parts:
    key = ArrayKey("node", "paper", "y")
    flat = parts.arrays[key].array
    return Parts(parts.schema, {**parts.arrays, **shared({key: flat.reshape(9, 1)})})


def retyped(parts: Parts) -> Parts:
    key = ArrayKey("node", "paper", "y")
    bits = parts.arrays[key].array.view(np.float64)
    return Parts(parts.schema, {**parts.arrays, **shared({key: bits})})


def one_bit_off(parts: Parts) -> Parts:
    key = ArrayKey("edge", WRITES, "weight")
    bits = parts.arrays[key].array.copy()
    bits.view(np.uint8)[77] ^= 1
    return Parts(parts.schema, {**parts.arrays, **shared({key: bits})})


def without_a_split(parts: Parts) -> Parts:
    arrays = dict(parts.arrays)
    del arrays[ArrayKey("split", "paper", "val")]
    return Parts(parts.schema, arrays)


def types_in_another_order(parts: Parts) -> Parts:
    schema = msgspec.structs.replace(parts.schema, edges=parts.schema.edges[::-1])
    return Parts(schema, parts.arrays)


def one_more_isolated_type(parts: Parts) -> Parts:
    nodes = (*parts.schema.nodes, NodeTypeInfo("journal", 3))
    return Parts(msgspec.structs.replace(parts.schema, nodes=nodes), parts.arrays)


def another_attribute(parts: Parts) -> Parts:
    return Parts(msgspec.structs.replace(parts.schema, attributes={"name": "x"}), parts.arrays)


def another_attribute_of_a_type(parts: Parts) -> Parts:
    nodes = (msgspec.structs.replace(parts.schema.nodes[0], attributes={}), parts.schema.nodes[1])
    return Parts(msgspec.structs.replace(parts.schema, nodes=nodes), parts.arrays)


@pytest.mark.parametrize(
    "change",
    [
        another_attribute_of_a_type,
        renamed,
        reshaped,
        retyped,
        one_bit_off,
        without_a_split,
        types_in_another_order,
        one_more_isolated_type,
        another_attribute,
    ],
)
def test_any_change_of_content_changes_the_version(change: Callable[[Parts], Parts]) -> None:
    assert content_version(*change(library())) != content_version(*library())


def test_arrays_that_swap_places_change_the_version() -> None:
    schema, arrays = library()
    one, other = (ArrayKey("csc", kind, "adjacency") for kind in (WRITES, CITES))
    swapped = {**arrays, one: arrays[other], other: arrays[one]}
    assert content_version(schema, swapped) != content_version(schema, arrays)


@pytest.mark.parametrize("nbytes", [PIECE_NBYTES - 1, PIECE_NBYTES, PIECE_NBYTES + 1])
def test_the_last_byte_counts_wherever_pieces_end(nbytes: int) -> None:
    array = np.zeros(nbytes, np.uint8)
    before = sum_of_array(array)
    array[-1] = 1
    assert sum_of_array(array) != before


def test_zeros_at_the_end_count() -> None:
    sums = {sum_of_array(np.zeros(nbytes, np.uint8)) for nbytes in (0, 1, 63, 64, 65)}
    assert len(sums) == 5


def test_a_large_array_in_memory_and_on_disk_has_one_version(tmp_path: Path) -> None:
    schema, arrays = tiny()
    big = SharedArray.from_array(np.arange(5 << 20).reshape(5, -1))
    parts = Parts(schema, {**arrays, ArrayKey("node", NODE, "big"): big})
    assert write(tmp_path / "x.graph", *parts) == content_version(*parts)


def test_the_version_is_the_digest_the_documentation_describes(tmp_path: Path) -> None:
    schema, arrays = library()
    version = write(tmp_path / "x.graph", schema, arrays)
    content = json.loads((tmp_path / "x.graph" / "manifest.json").read_text())["content"]
    found = []
    for entry in content["arrays"]:
        key, owner = entry["key"], entry["key"]["type"]
        parts = [owner] if isinstance(owner, str) else owner
        rest = [entry["dtype"], entry["shape"], entry["checksum"]]
        found.append([key["group"], parts, key["name"], *rest])
    identity = {
        "content": 1,
        "is_hetero": True,
        "nodes": [["paper", 9, {"kind": "text"}], ["author", 7, {}]],
        "edges": [[list(WRITES), 20, {"since": 1450}], [list(CITES), 0, {}]],
        "attributes": schema.attributes,
        "arrays": sorted(row for row in found if row[0] != "csr"),
    }
    text = json.dumps(identity, sort_keys=True, separators=(",", ":"))
    assert kernels.digest(np.frombuffer(text.encode(), np.uint8)).hex() == version


def test_the_sum_of_several_pieces_is_the_digest_of_their_digests() -> None:
    array = np.random.default_rng(0).integers(0, 256, (40 << 20) + 5, np.uint8)
    parts = [array[start : start + (16 << 20)] for start in range(0, array.size, 16 << 20)]
    joined = b"".join(kernels.digest(part) for part in parts)
    assert sum_of_array(array) == kernels.digest(np.frombuffer(joined, np.uint8)).hex()


def test_the_version_of_a_known_graph_stays_what_it_is() -> None:
    """If this changes, graphs that were saved earlier no longer verify: a new format version."""
    schema = Schema(
        True,
        (NodeTypeInfo("a", 3, {"ü": [1, 2.5e-7, None, True, "𝛂"]}),),
        (EdgeTypeInfo(("a", "to", "a"), 4),),
        {"name": "known"},
    )
    known = {
        ArrayKey("csc", ("a", "to", "a"), "indptr"): np.array([0, 1, 1, 4]),
        ArrayKey("csc", ("a", "to", "a"), "adjacency"): np.array([2, 0, 1, 2], np.int32),
        ArrayKey("node", "a", "x"): np.arange(3 << 20, dtype=np.uint16).reshape(3, -1) * 7,
        ArrayKey("node", "a", "wide"): np.arange(9 << 20).reshape(3, -1),
        ArrayKey("split", "a", "val"): np.empty(0, np.int64),
    }
    assert content_version(schema, shared(known)) == "7fd329bb33e83a130b7754a9f8beedc9"
