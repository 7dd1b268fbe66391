"""Damaged, foreign and future folders: the file is named, and what is wrong with it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import GraphFormatError
from penstock.graph.checksum import sum_of_bytes
from penstock.graph.folder import MANIFEST
from penstock.graph.format import read, verify, write
from penstock.graph.schema import NODE, ArrayKey
from tests.graph.format_graphs import Parts, data_files, library, saved_data, shared, tiny

Json = Any


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A saved graph to damage."""
    write(tmp_path / "x.graph", *library())
    return tmp_path / "x.graph"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved graph whose manifest property tests overwrite at each example."""
    folder = tmp_path_factory.mktemp("model") / "x.graph"
    write(folder, *library())
    (folder.parent / "good.json").write_bytes((folder / MANIFEST).read_bytes())
    return folder


def signed(content: Json) -> bytes:
    """A manifest with this content, whose own sum is right."""
    raw = json.dumps(content).encode()
    head = {"format": "penstock-graph", "format_version": 1, "checksum": sum_of_bytes(raw)}
    return json.dumps(head).encode()[:-1] + b', "content": ' + raw + b"}"


def content_of(manifest: Path) -> Json:
    return json.loads(manifest.read_bytes())["content"]


def rewrite(path: Path, change: Callable[[Json], None]) -> None:
    """Changes the content of a manifest as a faulty writer would: its own sum is right."""
    content = content_of(path / MANIFEST)
    change(content)
    (path / MANIFEST).write_bytes(signed(content))


def entry(content: Json, group: str, name: str) -> Json:
    return next(
        entry
        for entry in content["arrays"]
        if (entry["key"]["group"], entry["key"]["name"]) == (group, name)
    )


def complaint(path: Path, what: Callable[[Path], object] = read) -> str:
    with pytest.raises(GraphFormatError) as caught:
        what(path)
    return str(caught.value)


# --- the data ------------------------------------------------------------------------------------


def test_a_flipped_byte_in_any_file_is_named_by_verify(path: Path) -> None:
    for file in data_files(path):
        good = file.read_bytes()
        for position in {0, len(good) // 2, len(good) - 1} if good else set():
            bad = bytearray(good)
            bad[position] ^= 0x10
            file.write_bytes(bad)
            assert complaint(path, verify).startswith(f"{file}: damaged: the sum of")
        file.write_bytes(good)
    verify(path)


def test_a_flipped_byte_far_into_a_large_file_is_named(tmp_path: Path) -> None:
    schema, arrays = tiny()
    big = shared({ArrayKey("node", NODE, "big"): np.zeros((5, 8 << 20), np.int8)})
    write(tmp_path / "x.graph", *Parts(schema, {**arrays, **big}))
    file = next((tmp_path / "x.graph").glob("data-*/*-node-big.bin"))
    with open(file, "r+b") as opened:
        opened.seek(33 << 20)
        opened.write(b"\1")
    assert str(file) in complaint(tmp_path / "x.graph", verify)


def test_opening_does_not_check_sums(path: Path) -> None:
    file = next(path.glob("data-*/*-node-paper-y.bin"))
    file.write_bytes(bytes(len(file.read_bytes())))
    assert read(path).arrays[ArrayKey("node", "paper", "y")].array.sum() == 0


@pytest.mark.parametrize("look", [read, verify])
def test_a_truncated_file_is_named_with_what_it_needs(
    look: Callable[[Path], object], path: Path
) -> None:
    for file in data_files(path):
        good = file.read_bytes()
        if good:
            os.truncate(file, len(good) - 1)
            said = complaint(path, look)
            assert said.startswith(f"{file}: cut short: ")
            assert said.endswith(f"needs {len(good)} bytes, there are {len(good) - 1}")
        file.write_bytes(good)


def test_a_file_that_is_too_long_is_named(path: Path) -> None:
    for file in data_files(path):
        good = file.read_bytes()
        file.write_bytes(good + b"\0")
        assert complaint(path).startswith(f"{file}: too long: ")
        file.write_bytes(good)


@pytest.mark.parametrize("look", [read, verify])
def test_a_missing_file_is_named(look: Callable[[Path], object], path: Path) -> None:
    for file in data_files(path):
        good = file.read_bytes()
        file.unlink()
        assert complaint(path, look) == f"{file}: missing, though the manifest names it"
        file.write_bytes(good)


def test_a_missing_generation_is_told_by_its_first_file(path: Path) -> None:
    first = data_files(path)[0]
    shutil.rmtree(first.parent)
    assert complaint(path).startswith(f"{first}: missing")


def test_a_folder_in_place_of_a_file_is_named(path: Path) -> None:
    file = data_files(path)[0]
    file.unlink()
    file.mkdir()
    assert complaint(path) == f"{file}: not a regular file"


def test_a_pipe_in_place_of_a_file_does_not_hang_the_reader(path: Path) -> None:
    file = data_files(path)[0]
    file.unlink()
    os.mkfifo(file)
    assert complaint(path) == f"{file}: not a regular file"


def test_a_file_in_place_of_the_generation_is_named(path: Path) -> None:
    generation = data_files(path)[0].parent
    shutil.rmtree(generation)
    generation.touch()
    assert complaint(path) == f"{generation}: not a folder"


# --- the folder ----------------------------------------------------------------------------------


def test_a_path_that_is_not_there_is_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no graph here.*nowhere"):
        read(tmp_path / "nowhere")


def test_a_plain_file_is_no_graph(tmp_path: Path) -> None:
    (tmp_path / "x.npy").touch()
    assert complaint(tmp_path / "x.npy").endswith("x.npy: a file, and a saved graph is a folder")


def test_an_empty_folder_is_no_graph(tmp_path: Path) -> None:
    assert complaint(tmp_path) == f"{tmp_path}: an empty folder, not a saved graph"


def test_a_foreign_folder_is_told_by_what_is_in_it(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv", "c.csv", "d.csv"):
        (tmp_path / name).touch()
    assert complaint(tmp_path).endswith("no manifest.json, but a.csv, b.csv, c.csv …")


def test_a_first_save_that_did_not_end_is_told_as_such(path: Path) -> None:
    (path / MANIFEST).rename(path / "manifest.json.tmp")
    assert "no manifest.json: its first save has not ended" in complaint(path)


def test_a_folder_in_place_of_the_manifest_is_named(path: Path) -> None:
    (path / MANIFEST).unlink()
    (path / MANIFEST).mkdir()
    assert complaint(path) == f"{path / MANIFEST}: a folder, not a manifest"


# --- the manifest --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "not JSON, or cut short: Input data was truncated"),
        (b"\0\0\0\0", "not JSON, or cut short"),
        (b"PK\x03\x04", "not JSON, or cut short"),
        (b'{"format": "\xff"}', "not JSON, or cut short"),
        (b'{"format": ' + b"[" * 100_000, "not JSON, or cut short"),
        (b"[1, 2]", "not a manifest as expected"),
        (b"{}", "not the manifest of a Penstock graph: it names no format"),
        (b'{"name": "web app"}', "not the manifest of a Penstock graph: it names no format"),
        (b'{"format": "dgl"}', "not the manifest of a Penstock graph: it has format 'dgl'"),
        (b'{"format": "penstock-graph"}', "format version None is none there ever was"),
        (
            b'{"format": "penstock-graph", "format_version": true}',
            "format version True is none there ever was",
        ),
        (
            b'{"format": "penstock-graph", "format_version": 0}',
            "format version 0 is none there ever was",
        ),
        (
            b'{"format": "penstock-graph", "format_version": 7, "whatever": []}',
            "written by a newer Penstock: format 7, this one reads up to 4",
        ),
        (b'{"format": "penstock-graph", "format_version": 1}', "not a manifest as expected"),
    ],
)
def test_a_manifest_that_is_none_of_ours_is_named(data: bytes, said: str, path: Path) -> None:
    (path / MANIFEST).write_bytes(data)
    assert complaint(path).startswith(f"{path / MANIFEST}: {said}")


def test_a_truncated_manifest_is_named_wherever_it_ends(path: Path) -> None:
    good = (path / MANIFEST).read_bytes()
    for length in range(0, len(good) - 2, 7):
        (path / MANIFEST).write_bytes(good[:length])
        assert complaint(path).startswith(f"{path / MANIFEST}: not JSON, or cut short")


def test_a_change_to_the_manifest_is_found_by_its_own_sum(path: Path) -> None:
    good = (path / MANIFEST).read_bytes()
    (path / MANIFEST).write_bytes(good.replace(b'"num_nodes":9', b'"num_nodes":8'))
    assert complaint(path).startswith(f"{path / MANIFEST}: damaged: the sum of its content is")


def set_file(content: Json, name: str) -> None:
    entry(content, "node", "y")["file"] = name


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda c: entry(c, "node", "y").update(dtype="complex64"),
            "node/paper/y has unknown dtype 'complex64'",
        ),
        (lambda c: entry(c, "node", "y").update(dtype=7), "Expected `str`, got `int`"),
        (lambda c: entry(c, "node", "y").update(shape=[-9]), "Expected `int` >= 0"),
        (lambda c: entry(c, "node", "y").update(shape=[2**64]), "not a manifest as expected"),
        (lambda c: entry(c, "node", "y").update(shape=[8]), "one row per node, 9 in all"),
        (lambda c: set_file(c, "../../secret"), "has file '../../secret', not a name"),
        (lambda c: set_file(c, "/etc/passwd"), "has file '/etc/passwd', not a name"),
        (lambda c: set_file(c, ".."), "has file '..', not a name"),
        (lambda c: set_file(c, "0001-x.bin\n"), "not a name Penstock gives"),
        (lambda c: set_file(c, c["arrays"][0]["file"]), "is given to two arrays"),
        (lambda c: c.update(generation="../data-0123456789abcdef"), "not a name Penstock gives"),
        (lambda c: c.update(generation=""), "not a name Penstock gives"),
        (lambda c: c["arrays"].pop(0), "csc/author-writes-paper/indptr is missing"),
        (lambda c: c["arrays"].append(c["arrays"][0]), "occurs twice"),
        (lambda c: entry(c, "node", "y")["key"].update(group="nodes"), "Invalid enum value"),
        (lambda c: entry(c, "node", "y")["key"].update(type="book"), "no type 'book'"),
        (lambda c: c["schema"]["nodes"].pop(0), "needs node type 'paper'"),
        (lambda c: c["schema"].pop("edges"), "missing required field `edges`"),
    ],
)
def test_a_manifest_that_makes_no_sense_is_refused(
    change: Callable[[Json], None], said: str, path: Path
) -> None:
    rewrite(path, change)
    told = complaint(path)
    assert told.startswith(f"{path / MANIFEST}: ")
    assert said in told


def test_a_shape_no_array_can_have_is_refused(path: Path) -> None:
    rewrite(path, lambda c: entry(c, "edge", "time").update(shape=[0, 2**62, 2**62]))
    assert "edge-paper-cites-paper-time.bin" in complaint(path)


def test_a_version_that_is_not_of_the_content_is_found_by_verify(path: Path) -> None:
    rewrite(path, lambda c: c.update(version="0" * 32))
    assert complaint(path, verify) == (f"{path / MANIFEST}: its version is not that of its content")


def test_fields_a_later_writer_adds_are_no_error(path: Path) -> None:
    before = saved_data(path)
    rewrite(path, lambda c: c.update(mood="good"))
    assert saved_data(path) == before


@given(
    flips=st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), min_size=1, max_size=4)
)
def test_flipped_bytes_of_a_manifest_are_an_error_or_make_no_difference(
    flips: list[tuple[int, int]], model: Path
) -> None:
    good = (model.parent / "good.json").read_bytes()
    bad = bytearray(good)
    for position, value in flips:
        bad[position % len(bad)] = value
    assert_harmless(model, bytes(bad))


@given(data=st.data())
def test_a_manifest_with_a_part_cut_out_or_put_in_is_an_error_or_makes_no_difference(
    data: st.DataObject, model: Path
) -> None:
    good = (model.parent / "good.json").read_bytes()
    start = data.draw(st.integers(0, len(good)))
    end = data.draw(st.integers(start, len(good)))
    assert_harmless(model, good[:start] + data.draw(st.binary(max_size=8)) + good[end:])


def assert_harmless(model: Path, manifest: bytes) -> None:
    (model / MANIFEST).write_bytes((model.parent / "good.json").read_bytes())
    good = read(model)
    (model / MANIFEST).write_bytes(manifest)
    try:
        opened = read(model)
    except GraphFormatError:
        return
    assert (opened.schema, opened.version) == (good.schema, good.version)
    assert opened.arrays.keys() == good.arrays.keys()


leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@given(data=st.data(), value=values)
def test_any_value_anywhere_in_a_signed_manifest_opens_or_is_refused(
    data: st.DataObject, value: Json, model: Path
) -> None:
    content = json.loads((model.parent / "good.json").read_bytes())["content"]
    holder, place = data.draw(st.sampled_from(list(places(content))))
    if data.draw(st.booleans()):
        holder[place] = value
    else:
        del holder[place]
    (model / MANIFEST).write_bytes(signed(content))
    with suppress(GraphFormatError):
        read(model)


def places(value: Json) -> Iterator[tuple[Json, Any]]:
    """Every place in a JSON value, as what holds it and its key there."""
    inside = value.items() if isinstance(value, dict) else enumerate(value)
    for key, part in list(inside):
        yield value, key
        if isinstance(part, dict | list):
            yield from places(part)
