"""CSV is read as it is, and all of it: not everything that DuckDB guesses is left to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import penstock as ps

EDGES = {"data": {"s": [0], "t": [0]}, "source": "s", "target": "t"}
KIND = ("b", "r", "b")
JANUARY = 1704067200 * 10**9


def read(folder: Path, *texts: str, name: str = "n*.csv", **words: Any) -> tuple[Any, Any]:
    """The ids and the times of nodes from files with these texts."""
    for at, text in enumerate(texts):
        (folder / f"n{at}.csv").write_text(text)
    nodes = {"files": str(folder / name), "id": "id", **words}
    with ps.build(folder / "g", nodes={"a": nodes}, edges={KIND: EDGES}) as graph:
        times = graph.node_attribute("time", "a").tolist() if "time" in words else None
        return graph.ids("a").tolist(), times


def test_a_name_with_brackets_is_no_pattern(tmp_path: Path) -> None:
    """A file was read that nobody had named."""
    (tmp_path / "n1.csv").write_text("id\n6\n")
    (tmp_path / "n[1].csv").write_text("id\n5\n")
    assert read(tmp_path, name="n[1].csv")[0] == [5]


def test_the_name_of_a_folder_is_no_column(tmp_path: Path) -> None:
    folder = tmp_path / "id=9"
    folder.mkdir()
    assert read(folder, "id,x\n5,1\n")[0] == [5]


def test_day_and_month_are_not_told_by_other_files(tmp_path: Path) -> None:
    """CONTRACT 77: 03/02/2024 was in March or in February, by the rows beside it."""
    texts = ("id,at\n5,02/13/2024\n", "id,at\n6,03/02/2024\n")
    with pytest.raises(ValueError, match=r"dates are %m/%d/%Y in .*n0.csv and %d/%m/%Y in .*n1"):
        read(tmp_path, *texts, time="at")
    given = read(tmp_path, *texts, time="at", csv={"dateformat": "%m/%d/%Y"})
    whole = read(tmp_path, texts[0] + "6,03/02/2024\n", name="n0.csv", time="at")
    assert given == whole == ([5, 6], [1707782400 * 10**9, 1709337600 * 10**9])


def test_dates_that_cannot_be_mixed_up_may_be_beside_each_other(tmp_path: Path) -> None:
    texts = ("id,at\n1,2024-01-01\n", "id,at\n2,01/01/2024\n")
    assert read(tmp_path, *texts, time="at") == ([1, 2], [JANUARY, JANUARY])


def test_moments_without_a_zone_are_in_utc_wherever_this_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    text = "id,at\n7,2024-01-01 00:00:00\n8,2024-01-01 02:00:00+02\n"
    assert read(tmp_path, text, time="at") == ([7, 8], [JANUARY, JANUARY])


def test_a_row_that_begins_like_a_comment_is_not_lost(tmp_path: Path) -> None:
    text = "id,x\na,1\n#b\nc,3\n"
    with pytest.raises(ValueError, match="has no column 'id'"):
        read(tmp_path, text)
    assert read(tmp_path, text, csv={"comment": "#"})[0] == ["a", "c"]
    assert read(tmp_path, text.replace("#b", "#b,2"))[0] == ["a", "#b", "c"]


def test_short_rows_at_the_beginning_are_not_lost(tmp_path: Path) -> None:
    words = {"csv": {"names": ["id", "x"]}}
    with pytest.raises(ValueError, match=r"n0\.csv"):
        read(tmp_path, "1\n2,3\n4,5\n", **words)
    assert read(tmp_path, "1,1\n2,3\n4,5\n", **words)[0] == [1, 2, 4]


@pytest.mark.parametrize("second", ["", "id\n2\n"])
def test_a_file_that_lacks_a_column_is_named(second: str, tmp_path: Path) -> None:
    """CONTRACT 77"""
    with pytest.raises(ValueError, match=r"n1\.csv: there is no column .*\"x\""):
        read(tmp_path, "id,x\n1,1\n", second, features={"x": "x"})


@pytest.mark.soak
def test_a_long_file_is_read_in_little_memory(tmp_path: Path) -> None:
    """CONTRACT 77: the buffers that DuckDB takes by itself are more than the least memory."""
    rows = b"".join(b"%d,%d,%s\n" % (at, at + 1, b"x" * 4000) for at in range(1, 22_000))
    (tmp_path / "e.csv").write_bytes(b"s,t,note\n" + rows)
    edges = {"files": str(tmp_path / "e.csv"), "source": "s", "target": "t"}
    with ps.build(tmp_path / "g", edges=edges, memory="64MiB") as graph:
        assert graph.num_edges() == 21_999
