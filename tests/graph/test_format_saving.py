"""Where a graph may be saved, and what others see meanwhile."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.graph.folder import MANIFEST
from penstock.graph.format import content_version, read, verify, write
from penstock.graph.schema import NODE, ArrayKey
from tests.graph.format_graphs import as_data, data_files, entries, saved_data, tiny

pytestmark = pytest.mark.usefixtures("no_leaks")

ROOT = Path(__file__).parents[2]
X = ArrayKey("node", NODE, "x")


def child(program: str, *arguments: object) -> subprocess.Popen[str]:
    """A fresh interpreter that knows the format."""
    preamble = """
import sys
from penstock.graph.format import write
from tests.graph.format_graphs import tiny
"""
    return subprocess.Popen(
        [sys.executable, "-c", preamble + program, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


# --- where ---------------------------------------------------------------------------------------


def test_an_empty_folder_may_be_saved_into(tmp_path: Path) -> None:
    write(tmp_path, *tiny())
    assert saved_data(tmp_path) == as_data(*tiny())


def test_a_link_to_a_graph_may_be_saved_through(tmp_path: Path) -> None:
    write(tmp_path / "x.graph", *tiny(0))
    (tmp_path / "current").symlink_to("x.graph")
    write(tmp_path / "current", *tiny(1))
    assert saved_data(tmp_path / "x.graph") == as_data(*tiny(1))


def test_a_path_that_is_empty_is_not_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for use in (lambda: write("", *tiny()), lambda: read(""), lambda: verify("")):
        with pytest.raises(ValueError, match=r"^path is empty; expected the folder of a graph$"):
            use()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years")
    with pytest.raises(FileExistsError, match=r"the folder holds thesis\.tex, and no graph"):
        write(tmp_path, *tiny())
    assert entries(tmp_path) == ["thesis.tex"]


def test_a_folder_with_a_foreign_manifest_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_text('{"name": "web app"}')
    with pytest.raises(FileExistsError, match="names no format"):
        write(tmp_path, *tiny())
    assert (tmp_path / MANIFEST).read_text() == '{"name": "web app"}'


def test_a_graph_of_a_newer_format_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_text('{"format": "penstock-graph", "format_version": 5}')
    with pytest.raises(FileExistsError, match="written by a newer Penstock"):
        write(tmp_path, *tiny())


def test_a_plain_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "x.graph").write_text("mine")
    with pytest.raises(FileExistsError, match="here is a file"):
        write(tmp_path / "x.graph", *tiny())
    assert (tmp_path / "x.graph").read_text() == "mine"


def test_a_path_whose_parent_is_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        write(tmp_path / "nowhere" / "x.graph", *tiny())


def test_a_damaged_graph_may_be_replaced(tmp_path: Path) -> None:
    path = tmp_path / "x.graph"
    write(path, *tiny(0))
    good = (path / MANIFEST).read_text()
    (path / MANIFEST).write_text(good.replace('"num_nodes":5', '"num_nodes":6'))
    write(path, *tiny(1))
    assert saved_data(path) == as_data(*tiny(1))
    assert entries(path) == ["data", "manifest.json"]


def test_files_of_a_damaged_graph_stay_until_it_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "x.graph"
    write(path, *tiny(0))
    good = (path / MANIFEST).read_text()
    (path / MANIFEST).write_text(good.replace('"num_nodes":5', '"num_nodes":6'))
    before = data_files(path)

    def fail(*_: int) -> None:
        raise OSError("no")

    with pytest.raises(OSError, match="no"):
        write(path, *tiny(1), fail)
    assert data_files(path) == before


def test_files_that_are_not_ours_are_never_removed(tmp_path: Path) -> None:
    path = tmp_path / "x.graph"
    write(path, *tiny(0))
    foreign = [path / "README", path / "data-mine", data_files(path)[0].parent / "notes"]
    for file in foreign:
        file.write_text("keep")
    write(path, *tiny(1))
    assert [file.read_text() for file in foreign] == ["keep"] * 3


# --- over itself ---------------------------------------------------------------------------------


def test_a_graph_may_be_saved_over_the_folder_it_was_opened_from(tmp_path: Path) -> None:
    path = tmp_path / "x.graph"
    first = write(path, *tiny())
    opened = read(path)
    assert write(path, opened.schema, opened.arrays) == first
    assert saved_data(path) == as_data(opened.schema, opened.arrays) == as_data(*tiny())


def test_a_handle_of_a_replaced_graph_never_maps_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "x.graph"
    write(path, *tiny(0))
    pickled = pickle.dumps(read(path).arrays[X])
    write(path, *tiny(1))
    with pytest.raises(FileNotFoundError):
        pickle.loads(pickled)


# --- two at once ---------------------------------------------------------------------------------


def test_a_second_saver_is_refused_while_the_first_is_at_it(tmp_path: Path) -> None:
    program = """
def wait(*_):
    print("saving", flush=True)
    sys.stdin.readline()

write(sys.argv[1], *tiny(0), wait)
"""
    path = tmp_path / "x.graph"
    with child(program, path) as first:
        assert first.stdin is not None
        assert first.stdout is not None
        assert first.stdout.readline() == "saving\n"
        with pytest.raises(BlockingIOError, match=r"another process is saving.*x\.graph"):
            write(path, *tiny(1))
        first.communicate("\n" * 100)
    assert (first.returncode, saved_data(path)) == (0, as_data(*tiny(0)))
    write(path, *tiny(1))
    assert saved_data(path) == as_data(*tiny(1))


def test_a_saver_that_was_killed_locks_nobody_out(tmp_path: Path) -> None:
    program = """
def stop(*_):
    print("saving", flush=True)
    sys.stdin.read()

write(sys.argv[1], *tiny(0), stop)
"""
    with child(program, tmp_path / "x.graph") as first:
        assert first.stdout is not None
        first.stdout.readline()
        first.kill()
    write(tmp_path / "x.graph", *tiny(1))
    assert saved_data(tmp_path / "x.graph") == as_data(*tiny(1))


def test_a_saver_in_another_thread_or_call_is_refused_too(tmp_path: Path) -> None:
    def save_again(*_: int) -> None:
        write(tmp_path / "x.graph", *tiny(1))

    with pytest.raises(BlockingIOError):
        write(tmp_path / "x.graph", *tiny(0), save_again)


def replaced_at_first_look(
    path: Path, monkeypatch: pytest.MonkeyPatch, times: int = 1
) -> list[Path]:
    """Saves another graph just when a reader, having read the manifest, turns to the files."""
    real, seen = os.stat, list[Path]()

    def stat(file: Any, *args: Any, **kwargs: Any) -> os.stat_result:
        if str(file).endswith(".bin") and len(seen) < times:
            seen.append(file)
            write(path, *tiny(len(seen)))
        return real(file, *args, **kwargs)

    monkeypatch.setattr(os, "stat", stat)
    return seen


def test_a_reader_whose_files_a_save_takes_away_gets_the_new_graph(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.graph"
    write(path, *tiny(0))
    seen = replaced_at_first_look(path, monkeypatch, times=3)
    opened = read(path)
    assert (len(seen), as_data(opened.schema, opened.arrays)) == (3, as_data(*tiny(3)))


def test_a_verifier_whose_files_a_save_takes_away_verifies_the_new_graph(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.graph"
    write(path, *tiny(0))
    replaced_at_first_look(path, monkeypatch)
    assert verify(path) == content_version(*tiny(1))


def test_readers_of_a_graph_that_is_saved_again_and_again_see_whole_graphs(
    tmp_path: Path,
) -> None:
    program = """
while True:
    for seed in (0, 1):
        write(sys.argv[1], *tiny(seed))
"""
    path = tmp_path / "x.graph"
    write(path, *tiny(0))
    whole = [as_data(*tiny(0)), as_data(*tiny(1))]
    versions = {content_version(*tiny(0)), content_version(*tiny(1))}
    seen: list[int] = []
    with child(program, path) as saver:
        while len(seen) < 40 or len(set(seen)) < 2:
            opened = read(path)
            seen.append(whole.index(as_data(opened.schema, opened.arrays)))
            assert verify(path) in versions
        saver.kill()
    assert verify(path) in versions
