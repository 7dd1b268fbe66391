"""Folders of parts, compared file by file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import penstock as ps
from penstock.graph.folder import load_manifest
from penstock.graph.partition.partition import Parts

# A save gives its generation a name of its own, and the manifest's sum is of that name, too.
GENERATION = re.compile(rb"data-[0-9a-f]{16}")
OWN_SUM = re.compile(rb'"checksum":"[0-9a-f]{32}"')


def contents(folder: Path) -> dict[str, bytes]:
    """All files of a folder of parts, by their paths: nothing in them is of one save alone."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_dir():
            continue
        data, name = path.read_bytes(), path.relative_to(folder).as_posix().encode()
        if path.name == "manifest.json":
            load_manifest(path.parent)  # whose sum is right
            data = OWN_SUM.sub(b"", GENERATION.sub(b"data", data), count=1)
        found[GENERATION.sub(b"data", name).decode()] = data
    return found


def same_parts(folder: Path, parts: dict[str, Any], **tables: Any) -> Parts:
    """Build parts, and the whole graph, which is cut; compare all files. Return the parts built."""
    words = {"method": "range", **parts}
    method = words.pop("method")
    with ps.build(folder / "whole", **tables) as graph:
        cut = graph.partition(path=folder / "cut", method=given(graph, method, words["n"]), **words)
    built = ps.build(folder / "built", **tables, parts=parts)
    expected, found = contents(folder / "cut"), contents(folder / "built")
    assert list(found) == list(expected)
    assert [name for name in expected if found[name] != expected[name]] == []
    assert built == [folder / "built" / path.name for path in cut]
    for figure in ("num_edges", "edges_cut", "balance"):
        assert getattr(built, figure) == getattr(cut, figure)
    return built


def given(graph: ps.Graph, method: Any, parts: int) -> Any:
    """The method by which a graph is cut as by a column: that of the attribute "shard"."""
    if not isinstance(method, str) or method != "column":
        return method
    found = {name: graph.node_attribute("shard", name or None) for name in graph.node_types}
    return found if graph.is_hetero else found[""]
