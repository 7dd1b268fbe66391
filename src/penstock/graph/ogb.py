"""Reads datasets of the Open Graph Benchmark from their folders, without the package `ogb`.

A dataset is a folder such as `dataset/ogbn_arxiv`. Its `raw` has the graph: compressed CSV files
without a header, one per array, in folders by type if the graph has types; or `.npz` files. Its
`split` has a folder for each way to split: ids of nodes, or of links to predict.

Datasets for nodes and for links are read. Those of many small graphs are not.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from penstock.graph.coo import CooArguments, draft_from_coo
from penstock.graph.draft import Draft
from penstock.graph.progress import Report
from penstock.graph.schema import EDGE, NODE, EdgeType
from penstock.graph.torch_file import read_torch_file

Array: TypeAlias = npt.NDArray[Any]

# What files are called there, and here.
_SPLITS: Final = {"train": "train", "valid": "val", "test": "test"}
_RENAMED: Final = {
    "node_feat": "x",
    "node_label": "y",
    "edge_feat": "edge_attr",
    "species": "node_species",
}
# Undirected graphs of which a folder has one direction of each edge.
_ONE_WAY: Final = {"ogbn_products", "ogbn_proteins", "ogbl_ppa", "ogbl_collab", "ogbl_ddi"}
# Arrays that say where links begin and end, in datasets for links.
_ENDS: Final = (("source_node", "target_node"), ("head", "tail"))
_LINES: Final = 1 << 16  # of a file, at a time
_INTEGERS: Final = b"0123456789+-, \t\r\n"


@dataclass(eq=False)
class _Dataset:
    """What was found in a folder, by type; a graph without types has one, without a name."""

    num_nodes: dict[str, int] = field(default_factory=dict)
    edges: dict[EdgeType, Array] = field(default_factory=dict)
    of_nodes: dict[str, dict[str, Array]] = field(default_factory=dict)
    of_edges: dict[EdgeType, dict[str, Array]] = field(default_factory=dict)
    splits: dict[str, dict[str, Array]] = field(default_factory=dict)
    links: dict[EdgeType, dict[str, Array]] = field(default_factory=dict)

    @property
    def is_hetero(self) -> bool:
        return NODE not in self.num_nodes

    def add_reverses(self) -> None:
        """Put the reverse of each edge right behind it, with the same attributes."""
        for name, ends in self.edges.items():
            if name[0] != name[2]:
                raise ValueError(f"reverse is True, but edges {name!r} join nodes of two types")
            self.edges[name] = np.stack([ends, ends[::-1]], axis=2).reshape(2, -1)
            columns = self.of_edges.get(name, {})
            self.of_edges[name] = {key: each.repeat(2, axis=0) for key, each in columns.items()}


def draft_from_ogb(path: Path, split: str | None, reverse: bool | None, report: Report) -> Draft:
    """Return the draft of the graph in a dataset's folder.

    Args:
        path: The folder, with `raw` and `split` in it.
        split: The folder of `split` to be read. None: the only one.
        reverse: Whether every edge leads back, too. None: as `ogb` does.
        report: Called with bytes read, and those of all files.
    """
    raw = path / "raw"
    if not raw.is_dir():
        near = [each.name for each in path.glob("ogb*") if (each / "raw").is_dir()]
        hint = f"; there is {', '.join(sorted(near))}" if near else ""
        raise FileNotFoundError(
            f"{raw} is not there; expected the folder of a dataset as ogb leaves it, such as "
            f"dataset/ogbn_arxiv{hint}"
        )
    files = _Files(path, report)
    found = _read_raw(raw, files)
    if reverse or (reverse is None and path.resolve().name.removesuffix("_pyg") in _ONE_WAY):
        found.add_reverses()
    _read_split(path, split, found, files)
    return _draft_of(found)


def _draft_of(found: _Dataset) -> Draft:
    draft = draft_from_coo(_arguments(found))
    for edge_type, links in found.links.items():
        owner = edge_type if any(edge_type) else NODE
        for name, array in links.items():
            draft.add_attribute(owner, name, name, array)
    return draft


def _arguments(found: _Dataset) -> CooArguments:
    def given(by_type: Mapping[Any, Any]) -> Any:
        if found.is_hetero:
            return by_type or None
        return next(iter(by_type.values()), None)

    return CooArguments(
        edge_index=given(found.edges),
        num_nodes=given(found.num_nodes),
        node_ids=None,
        node_columns={},
        splits={name: given(ids) for name, ids in found.splits.items()},
        edge_columns={"edge_weight": None},
        node_attrs=given(found.of_nodes),
        edge_attrs=given(found.of_edges),
        graph_attrs=None,
    )


# --- the graph -----------------------------------------------------------------------------------


def _read_raw(raw: Path, files: _Files) -> _Dataset:
    if (raw / "triplet-type-list.csv.gz").exists():
        return _read_types(raw, files)
    if (raw / "edge.csv.gz").exists():
        return _read_plain(raw, files)
    if (raw / "data.npz").exists():
        return _read_plain_npz(raw, files)
    if (raw / "edge_index_dict.npz").exists():
        return _read_types_npz(raw, files)
    raise FileNotFoundError(
        f"{raw} has none of edge.csv.gz, data.npz, triplet-type-list.csv.gz and "
        "edge_index_dict.npz: it is not the raw folder of an OGB dataset for nodes or links"
    )


def _read_plain(raw: Path, files: _Files) -> _Dataset:
    found = _Dataset()
    found.num_nodes[NODE] = _one_graph(raw, files.table(raw / "num-node-list.csv.gz"))
    found.edges[EDGE] = _pairs(raw / "edge.csv.gz", files)
    found.of_nodes[NODE] = files.columns(raw, "node", "species")
    found.of_edges[EDGE] = files.columns(raw, "edge")
    return found


def _read_types(raw: Path, files: _Files) -> _Dataset:
    found = _Dataset()
    counts = files.named(raw / "num-node-dict.csv.gz")
    for name in sorted(counts):
        found.num_nodes[name] = int(counts[name])
        columns = files.columns(raw / "node-feat" / name, "node")
        columns |= files.columns(raw / "node-label" / name, "node")
        if columns:
            found.of_nodes[name] = columns
    for triple in sorted(files.words(raw / "triplet-type-list.csv.gz")):
        if len(triple) != 3:
            raise ValueError(f"{raw / 'triplet-type-list.csv.gz'} has {triple}; expected 3 names")
        edge_type = (triple[0], triple[1], triple[2])
        folder = raw / "relations" / "___".join(edge_type)
        found.edges[edge_type] = _pairs(folder / "edge.csv.gz", files)
        if columns := files.columns(folder, "edge"):
            found.of_edges[edge_type] = columns
    return found


def _read_plain_npz(raw: Path, files: _Files) -> _Dataset:
    found, arrays = _Dataset(), files.arrays(raw / "data.npz")
    found.num_nodes[NODE] = _one_graph(raw, arrays.pop("num_nodes_list"))
    arrays.pop("num_edges_list", None)
    found.edges[EDGE] = arrays.pop("edge_index")
    if (labels := raw / "node-label.npz").exists():
        arrays |= files.arrays(labels)
    for kind, columns in (
        ("node_", found.of_nodes.setdefault(NODE, {})),
        ("edge_", found.of_edges.setdefault(EDGE, {})),
    ):
        for name in [each for each in arrays if each.startswith(kind)]:
            columns[_RENAMED.get(name, name)] = _column(arrays.pop(name))
    return found


def _read_types_npz(raw: Path, files: _Files) -> _Dataset:
    found = _Dataset()
    for name, count in sorted(files.arrays(raw / "num_nodes_dict.npz").items()):
        found.num_nodes[name] = _one_graph(raw, count)
    for name, ends in sorted(files.arrays(raw / "edge_index_dict.npz").items()):
        found.edges[_triple(name)] = ends
    for path in sorted(raw.glob("*.npz")):
        name = path.stem.replace("-", "_").removesuffix("_dict")
        if not name.startswith(("node_", "edge_")) or name == "edge_index":
            continue
        for owner, array in files.arrays(path).items():
            column = {_RENAMED.get(name, name): _column(array)}
            if name.startswith("node_"):
                found.of_nodes.setdefault(owner, {}).update(column)
            else:
                found.of_edges.setdefault(_triple(owner), {}).update(column)
    return found


def _triple(name: str) -> EdgeType:
    source, relation, destination = name.split("___")
    return source, relation, destination


def _pairs(path: Path, files: _Files) -> Array:
    table = files.table(path)
    if not len(table):
        return np.empty((2, 0), np.int64)
    if table.ndim != 2 or table.shape[1] != 2 or table.dtype != np.int64:
        raise ValueError(
            f"{path} has {list(table.shape)} {table.dtype}; expected two integers a row"
        )
    return table.T


def _one_graph(raw: Path, counts: Array) -> int:
    if counts.size != 1:
        raise ValueError(
            f"{raw} has {counts.size} graphs; a dataset for nodes or links has one. Datasets of "
            "many small graphs are not read here"
        )
    return int(counts.reshape(-1)[0])


def _column(array: Array) -> Array:
    """Return an array with a row for each node or edge; a single column becomes a vector."""
    return array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array


# --- splits --------------------------------------------------------------------------------------


def _read_split(path: Path, split: str | None, found: _Dataset, files: _Files) -> None:
    there = sorted(each.name for each in path.glob("split/*") if each.is_dir())
    if split is None:
        if not there:
            return
        if len(there) > 1:
            raise ValueError(f"{path / 'split'} has {', '.join(there)}: say which, by split=")
        split = there[0]
    folder = path / "split" / split
    if not folder.is_dir():
        raise ValueError(f"split is {split!r}; there are: {', '.join(there) or 'none'}")
    given = _torch_splits(folder, files)
    if given is None:
        _read_nodes(folder, found, files)
    elif any(isinstance(each, Mapping) and _has_links(each) for each in given.values()):
        for name, links in given.items():
            _add_links(folder, found, _SPLITS[name], links)
    else:
        for name, ids in given.items():
            typed = ids if isinstance(ids, Mapping) else {NODE: ids}
            found.splits[_SPLITS[name]] = {
                key: np.asarray(each, np.int64) for key, each in typed.items()
            }


def _torch_splits(folder: Path, files: _Files) -> dict[str, Any] | None:
    """Return what files of torch say of a split; None if there are none."""
    if (whole := folder / "split_dict.pt").exists():
        given = files.by_torch(whole)
        return {name: given[name] for name in _SPLITS if name in given}
    paths = {name: folder / f"{name}.pt" for name in _SPLITS}
    there = {name: files.by_torch(each) for name, each in paths.items() if each.exists()}
    return there or None


def _read_nodes(folder: Path, found: _Dataset, files: _Files) -> None:
    owners = found.num_nodes if found.is_hetero else {NODE: 0}
    for owner in owners:
        for name, ours in _SPLITS.items():
            path = folder / owner / f"{name}.csv.gz"
            if path.exists():
                ids = files.table(path).reshape(-1).astype(np.int64)
                found.splits.setdefault(ours, {})[owner] = ids


def _has_links(given: Mapping[str, Any]) -> bool:
    return "edge" in given or any(one in given and other in given for one, other in _ENDS)


def _add_links(folder: Path, found: _Dataset, split: str, given: Mapping[str, Any]) -> None:
    """Add the links of a split, which belong to their edge types as a whole."""
    everything: dict[EdgeType, Any] = {EDGE: slice(None)}
    kinds = _chosen_by_type(folder, found, given) if found.is_hetero else everything
    for edge_type, chosen in kinds.items():
        links = found.links.setdefault(edge_type, {})
        for name, array in _told(given):
            rows = array[:, chosen] if name == "links" else array[chosen]
            links[f"{split}_{name}"] = np.ascontiguousarray(rows)


def _told(given: Mapping[str, Any]) -> Iterator[tuple[str, Array]]:
    """Yield the arrays of a split by our names: `links`, [2, n], and what is told of each."""
    ends = next(((one, other) for one, other in _ENDS if one in given), None)
    if ends is not None:
        yield "links", np.stack([np.asarray(given[end], np.int64) for end in ends])
    else:
        yield "links", np.asarray(given["edge"], np.int64).reshape(-1, 2).T
    for name, value in given.items():
        if name in (*(ends or ()), "edge") or name.endswith("_type"):
            continue
        array = np.asarray(value)
        if name == "edge_neg":
            yield "links_neg", np.ascontiguousarray(array.reshape(-1, 2).T)
        elif name == "year":
            yield "links_time", array.reshape(-1)
        else:
            yield f"links_{name}", array


def _chosen_by_type(
    folder: Path, found: _Dataset, given: Mapping[str, Any]
) -> dict[EdgeType, Array]:
    """Return which links of a split are of which edge type: by the number of their relation."""
    relation = np.asarray(given.get("relation", ()))
    kinds = {}
    for edge_type, columns in found.of_edges.items():
        numbers = np.unique(columns.get("edge_reltype", ()))
        if len(numbers) == 1:
            kinds[edge_type] = np.flatnonzero(relation == numbers[0])
    told = sum(map(len, kinds.values()))
    if not len(relation) or told != len(relation):
        raise ValueError(
            f"{folder} has {len(relation)} links with relations, of which {told} are of the edge "
            "types by their edge_reltype; expected all of them"
        )
    return kinds


# --- files ---------------------------------------------------------------------------------------


class _Files:
    """Reads a dataset's files, and tells how many bytes of them have been read."""

    def __init__(self, path: Path, report: Report) -> None:
        self._report = report
        self._done = 0
        parts = [*path.glob("raw/**/*"), *path.glob("split/**/*")]
        self._total = sum(each.stat().st_size for each in parts if each.is_file())

    def columns(self, folder: Path, kind: str, *others: str) -> dict[str, Array]:
        """Return the arrays of a folder whose files begin with a word, by our names."""
        found = {}
        for path in sorted(folder.glob("*.csv.gz")):
            name = path.name.removesuffix(".csv.gz").replace("-", "_")
            if name.startswith(f"{kind}_") or name in others:
                found[_RENAMED.get(name, name)] = _column(self.table(path))
        return found

    def table(self, path: Path) -> Array:
        """Return the numbers of a file, a row for each line: int64, or float32 if any is none."""
        pieces, first = [], 0
        with open(path, "rb") as packed, gzip.open(packed) as file:
            try:
                while lines := list(islice(file, _LINES)):
                    pieces.append(_numbers(path, first, lines))
                    first += len(lines)
                    self._report(self._done + packed.tell(), self._total)
            except (gzip.BadGzipFile, EOFError) as error:
                raise ValueError(f"{path} is damaged or cut short: {error}") from None
        self._count(path)
        if not pieces:
            return np.empty(0, np.int64)
        if any(each.dtype != np.int64 for each in pieces):
            pieces = [each.astype(np.float32, copy=False) for each in pieces]
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def words(self, path: Path) -> list[list[str]]:
        """Return the words of a file, line by line."""
        with gzip.open(path, "rt") as file:
            found = [line.strip().split(",") for line in file if line.strip()]
        self._count(path)
        return found

    def named(self, path: Path) -> dict[str, str]:
        """Return the only line of a file, by the names above it."""
        names, *values = self.words(path)
        if len(values) != 1 or len(values[0]) != len(names):
            raise ValueError(
                f"{path} has {len(values)} lines below the names; a dataset for nodes or links "
                "has one graph, with a number for each name"
            )
        return dict(zip(names, values[0], strict=True))

    def arrays(self, path: Path) -> dict[str, Array]:
        """Return the arrays of an `.npz` file."""
        with np.load(path, allow_pickle=False) as file:
            found = dict(file)
        self._count(path)
        return found

    def by_torch(self, path: Path) -> Any:
        """Return what a file of torch has."""
        found = read_torch_file(path)
        self._count(path)
        return found

    def _count(self, path: Path) -> None:
        self._done += path.stat().st_size
        self._report(self._done, self._total)


def _numbers(path: Path, first: int, lines: list[bytes]) -> Array:
    """Return lines of a file as an array, [lines, columns]."""
    whole = not b"".join(lines).translate(None, _INTEGERS)
    dtype = np.int64 if whole else np.float32
    try:
        return np.loadtxt(lines, dtype, delimiter=",", ndmin=2, comments=None)
    except ValueError as error:
        raise ValueError(
            f"{path}, lines {first + 1} to {first + len(lines)}: {error}; expected numbers with "
            "commas between them"
        ) from None
