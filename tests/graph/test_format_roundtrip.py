"""Saving and opening: everything comes back, mapped, under readable names."""

from __future__ import annotations

import json
import os
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.graph.format import read, verify, write
from penstock.graph.manifest import FILE_NAME, file_name
from penstock.graph.schema import EDGE, NODE, ArrayKey, EdgeTypeInfo, NodeTypeInfo, Schema
from penstock.graph.shared import SharedArray
from tests.graph.format_graphs import (
    WRITES,
    Parts,
    as_data,
    data_files,
    entries,
    library,
    saved_data,
    shared,
    tiny,
)

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.mark.parametrize("make", [tiny, library])
def test_everything_comes_back(make: Callable[[], Parts], tmp_path: Path) -> None:
    parts = make()
    write(tmp_path / "x.graph", *parts)
    assert saved_data(tmp_path / "x.graph") == as_data(*parts)


def test_the_order_of_types_comes_back(tmp_path: Path) -> None:
    write(tmp_path / "x.graph", *library())
    assert [info.name for info in read(tmp_path / "x.graph").schema.nodes] == ["paper", "author"]


def test_the_order_of_arrays_comes_back(tmp_path: Path) -> None:
    parts = library()
    write(tmp_path / "x.graph", *parts)
    assert list(read(tmp_path / "x.graph").arrays) == list(parts.arrays)


def test_arrays_are_mapped_read_only_and_aligned(tmp_path: Path) -> None:
    write(tmp_path / "x.graph", *library())
    arrays = [array.array for array in read(tmp_path / "x.graph").arrays.values()]
    assert not any(array.flags.writeable for array in arrays)
    assert all(array.ctypes.data % 64 == 0 for array in arrays if array.nbytes)


def test_an_opened_array_pickles_as_its_path(tmp_path: Path) -> None:
    write(tmp_path / "x.graph", *tiny())
    opened = read(tmp_path / "x.graph").arrays[ArrayKey("node", NODE, "x")]
    there = pickle.loads(pickle.dumps(opened))
    assert (there.array.tobytes(), len(pickle.dumps(opened)) < 600) == (
        opened.array.tobytes(),
        True,
    )


def test_a_relative_path_is_understood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write("x.graph", *tiny())
    opened = read("x.graph")
    monkeypatch.chdir("/")
    assert as_data(opened.schema, opened.arrays) == as_data(*tiny())
    assert pickle.loads(pickle.dumps(next(iter(opened.arrays.values())))).nbytes > 0


def test_files_have_readable_names(tmp_path: Path) -> None:
    write(tmp_path / "x.graph", *library())
    names = [file.name for file in data_files(tmp_path / "x.graph")]
    assert names[0] == "0000-csc-author-writes-paper-indptr.bin"
    assert "0009-node-paper-y.bin" in names
    assert "0010-node-paper-wide-name_of_.bin" in names


def test_a_saved_folder_holds_a_manifest_and_one_generation(tmp_path: Path) -> None:
    write(tmp_path / "x.graph", *tiny())
    assert entries(tmp_path / "x.graph") == ["data", "manifest.json"]


def test_a_file_is_the_raw_bytes_of_its_array(tmp_path: Path) -> None:
    parts = tiny()
    write(tmp_path / "x.graph", *parts)
    x = next((tmp_path / "x.graph").glob("data-*/*-node-x.bin"))
    assert x.read_bytes() == parts.arrays[ArrayKey("node", NODE, "x")].array.tobytes()


@given(
    key=st.builds(
        ArrayKey,
        st.sampled_from(["node", "edge"]),
        st.text() | st.tuples(st.text(), st.text(), st.text()),
        st.text(),
    )
)
def test_every_key_gives_a_file_name_that_is_one_plain_name(key: ArrayKey) -> None:
    name = file_name(3, key)
    assert FILE_NAME.fullmatch(name)
    assert re.fullmatch(r"[\w.-]{1,100}", name, re.ASCII)


def test_keys_that_read_alike_are_kept_apart(tmp_path: Path) -> None:
    schema, arrays = tiny()
    alike = {
        ArrayKey("node", NODE, name): np.full((5, 1), value, np.float32)
        for value, name in enumerate(["a b", "a_b", "a/b", "A b"])
    }
    parts = Parts(schema, {**arrays, **shared(alike)})
    write(tmp_path / "x.graph", *parts)
    assert saved_data(tmp_path / "x.graph") == as_data(*parts)


def test_a_graph_with_nothing_in_it_can_be_saved(tmp_path: Path) -> None:
    schema = Schema(False, (NodeTypeInfo(NODE, 0),), (EdgeTypeInfo(EDGE, 0),))
    nothing: dict[ArrayKey, Any] = {
        ArrayKey("csc", EDGE, "indptr"): np.zeros(1, np.int64),
        ArrayKey("csc", EDGE, "adjacency"): np.empty((0, 2), np.int32),
    }
    parts = Parts(schema, shared(nothing))
    write(tmp_path / "x.graph", *parts)
    assert saved_data(tmp_path / "x.graph") == as_data(*parts)


def test_opening_reads_none_of_the_data(tmp_path: Path) -> None:
    """A quarter of a terabyte of nothing: reading it would outlast every limit."""
    schema, arrays = tiny()
    write(tmp_path / "x.graph", schema, arrays)
    rows = 1 << 36
    huge = msgspec.structs.replace(schema, nodes=(NodeTypeInfo(NODE, rows),))
    grow(tmp_path / "x.graph", huge, rows)
    opened = read(tmp_path / "x.graph")
    assert opened.arrays[ArrayKey("node", NODE, "x")].shape == (rows, 1)


def grow(path: Path, schema: Schema, rows: int) -> None:
    """Makes the files as long as a graph of so many nodes needs them, with holes for contents."""
    from penstock.graph.folder import MANIFEST, load_manifest
    from penstock.graph.manifest import encode

    manifest = load_manifest(path)
    lengths = {"indptr": (rows + 1,), "x": (rows, 1), "adjacency": (12, 2)}
    grown = tuple(
        msgspec.structs.replace(entry, shape=lengths[entry.key.name]) for entry in manifest.arrays
    )
    for entry in grown:
        os.truncate(path / manifest.generation / entry.file, entry.nbytes)
    changed = msgspec.structs.replace(manifest, schema=schema, arrays=grown)
    (path / MANIFEST).write_bytes(encode(changed))


def test_progress_is_told_in_bytes_up_to_the_whole(tmp_path: Path) -> None:
    schema, arrays = tiny()
    big = SharedArray.create((5, 8 << 20), "int8")
    parts = Parts(schema, {**arrays, ArrayKey("node", NODE, "big"): big})
    total = sum(array.nbytes for array in parts.arrays.values())
    written: list[tuple[int, int]] = []
    verified: list[tuple[int, int]] = []
    write(tmp_path / "x.graph", *parts, lambda *told: written.append(told))
    verify(tmp_path / "x.graph", lambda *told: verified.append(told))
    for told in (written, verified):
        assert told == sorted(told)
        assert told[-1] == (total, total)
        assert len(told) > len(parts.arrays)


def test_arrays_of_several_pieces_come_back(tmp_path: Path) -> None:
    schema, arrays = tiny()
    big = np.random.default_rng(0).integers(0, 256, (5, 7_000_003), np.uint8)
    parts = Parts(schema, {**arrays, **shared({ArrayKey("node", NODE, "big"): big})})
    write(tmp_path / "x.graph", *parts)
    assert saved_data(tmp_path / "x.graph") == as_data(*parts)


def test_a_missing_csc_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    schema, arrays = library()
    del arrays[ArrayKey("csc", WRITES, "indptr")]
    with pytest.raises(ValueError, match="csc/author-writes-paper/indptr is missing"):
        write(tmp_path / "x.graph", schema, arrays)
    assert not (tmp_path / "x.graph").exists()


@pytest.mark.parametrize("value", [float("nan"), {1, 2}, b"bytes", np.int64(3)])
def test_an_attribute_that_is_not_json_is_refused(value: object, tmp_path: Path) -> None:
    schema, arrays = tiny()
    odd = msgspec.structs.replace(schema, attributes={"odd": value})
    with pytest.raises(ValueError, match="attributes"):
        write(tmp_path / "x.graph", odd, arrays)
    assert not (tmp_path / "x.graph").exists()


def test_a_name_that_is_not_text_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    schema, arrays = tiny()
    key = ArrayKey("node", NODE, "\ud800")
    with pytest.raises(ValueError, match="surrogates"):
        write(tmp_path / "x.graph", schema, {**arrays, **shared({key: np.zeros(5)})})
    assert not (tmp_path / "x.graph").exists()


def test_a_reader_that_knows_only_the_documentation_reads_it(tmp_path: Path) -> None:
    parts = library()
    write(tmp_path / "x.graph", *parts)
    content = json.loads((tmp_path / "x.graph" / "manifest.json").read_text())["content"]
    found = {}
    for entry in content["arrays"]:
        owner = entry["key"]["type"]
        place = (entry["key"]["group"], owner if isinstance(owner, str) else tuple(owner))
        file = tmp_path / "x.graph" / content["generation"] / entry["file"]
        dtype = "uint16" if entry["dtype"] == "bfloat16" else entry["dtype"]
        found[*place, entry["key"]["name"]] = np.fromfile(file, dtype).reshape(entry["shape"])
    assert found.keys() == {(key.group, key.type, key.name) for key in parts.arrays}
    for key, array in parts.arrays.items():
        np.testing.assert_array_equal(found[key.group, key.type, key.name], array.array)
