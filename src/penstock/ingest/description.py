"""What users say about a build, as plain data: the same words in TOML and in Python.

`described` reads a TOML file or mappings; what it returns has been checked as far as that is
possible without a look at the tables.
"""

from __future__ import annotations

import datetime as dt
import os
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, TypeVar

import msgspec

from penstock.errors import suggestion
from penstock.graph import check
from penstock.graph.codec import STORED
from penstock.graph.dtypes import SUPPORTED
from penstock.graph.schema import EDGE, NODE, EdgeType
from penstock.ingest.cutting.words import COLUMN, Cutting, cutting_of

Format: TypeAlias = Literal["parquet", "csv", "arrow", "npy", "npz"]
OnMissing: TypeAlias = Literal["raise", "skip"]
Choice: TypeAlias = Literal["keep", "drop", "refuse"]
Way: TypeAlias = Literal["column", "random", "hash", "time"]

_ROOM_OF_TOML: Final = ("nodes", "edges", "memory", "parts")
# What may be said of the reading of CSV: DuckDB's words.
CSV_WORDS: Final = (
    "all_varchar",
    "comment",
    "dateformat",
    "decimal_separator",
    "delim",
    "encoding",
    "escape",
    "header",
    "names",
    "null_padding",
    "nullstr",
    "quote",
    "skip",
    "timestampformat",
    "types",
)


class Feature(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Columns that stand side by side in one array.

    Attributes:
        columns: One name, or several. One alone, of single values, gives an array of one dimension.
        dtype: The type of the array. None: that of the columns, but float32 for float64.
        store: Stored in fewer bytes: "int8", "float16" or "bfloat16"; see `penstock.quantize`.
        categories: Whether text becomes codes, by its order among all values.
    """

    columns: str | tuple[str, ...]
    dtype: str | None = None
    store: str | None = None
    categories: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The columns."""
        return (self.columns,) if isinstance(self.columns, str) else self.columns


class Split(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How nodes or links are split.

    Attributes:
        by: "column": a column says it. "random": shares, by a seed and the row number. "hash":
            shares, by the users' ids: what is in a split stays there when data grows. "time": what
            is later is held out.
        column: The column; by time, if it is another one than `time`.
        train: By column: the value or values that stand for it.
        val: Likewise; else the share of it, from 0 to 1.
        test: Likewise.
        val_from: By time: from when on it is val; instead of shares.
        test_from: By time: from when on it is test.
        seed: For "random" and "hash".
        disjoint: Of links: the share of train links that are supervision alone and no edges.
    """

    by: Way
    column: str | None = None
    train: Any = None
    val: Any = None
    test: Any = None
    val_from: Any = None
    test_from: Any = None
    seed: int = 0
    disjoint: float = 0.0


class _Rows(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What tables of nodes and of edges have in common."""

    files: str | tuple[str, ...] = ()
    data: Any = None
    format: Format | None = None
    csv: dict[str, Any] = {}
    features: dict[str, Feature] = {}
    time: str | None = None
    split: Split | None = None
    on_missing: OnMissing = "raise"


class NodeTable(_Rows, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table with a row for each node.

    Attributes:
        files: Paths or patterns (`*`, `**`), one or several.
        data: Instead of files: a table in memory.
        format: What the files are, if their names do not say it.
        csv: How to read CSV, in DuckDB's words, such as {delim = "|", nullstr = "NA"}.
        features: Arrays by name, and their columns.
        time: The column with times, kept as `time`.
        split: How nodes are split.
        on_missing: Whether rows without an id, and those whose id is there already, are an error
            ("raise") or left out and counted ("skip").
        id: The column with the users' ids. None: nodes are numbered by their rows.
        label: The column with labels, kept as `y`.
        part: The column with the number of the part that a node goes to, from 0. It is read where a
            graph is built in parts.
    """

    id: str | None = None
    label: str | None = None
    part: str | None = None


class EdgeTable(_Rows, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table with a row for each edge.

    Attributes:
        files: Paths or patterns (`*`, `**`), one or several.
        data: Instead of files: a table in memory.
        format: What the files are, if their names do not say it.
        csv: How to read CSV, in DuckDB's words.
        features: Arrays by name, and their columns.
        time: The column with times, kept as `edge_time`.
        split: How links are split.
        on_missing: Whether edges of nodes that are not there are an error ("raise"), or left out
            and counted ("skip").
        source: The column with the ids of sources.
        target: The column with the ids of destinations.
        label: The column with labels, kept as `edge_label`.
        weight: The column with weights, kept as `edge_weight`.
        reverse: Whether there are reverse edges too, of type (target, "rev_…", source).
        duplicates: Whether edges with the same ends are kept, dropped but for one, or refused.
        self_loops: Likewise, edges from a node to itself.
    """

    source: str
    target: str
    label: str | None = None
    weight: str | None = None
    reverse: bool = False
    duplicates: Choice = "keep"
    self_loops: Choice = "keep"


class Description(msgspec.Struct, frozen=True, kw_only=True):
    """All tables of a graph, by type, and where relative paths begin; and how it is cut, if so."""

    nodes: dict[str, NodeTable]
    edges: dict[EdgeType, EdgeTable]
    is_hetero: bool
    folder: Path
    memory: str | int | None = None
    cutting: Cutting | None = None


_Table = TypeVar("_Table", NodeTable, EdgeTable)


def described(
    nodes: Mapping[str, Any] | None = None,
    edges: Mapping[Any, Any] | None = None,
    spec: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    parts: int | Mapping[str, Any] | None = None,
) -> Description:
    """Return what a TOML file (or the same as a mapping) says, or what is said by `nodes`, `edges`.

    What `parts` says goes before what the file says of them, word by word.

    Raises:
        ValueError: A word is unknown, something needed is missing, or a value makes no sense.
    """
    if spec is None:
        return _described({"nodes": nodes or {}, "edges": edges or {}}, Path.cwd(), parts)
    if nodes is not None or edges is not None:
        raise ValueError("spec is given, and nodes or edges too: give the one or the others")
    if isinstance(spec, Mapping):
        return _described(spec, Path.cwd(), parts)
    path = Path(os.path.abspath(spec))
    with open(path, "rb") as file:
        try:
            return _described(tomllib.load(file), path.parent, parts)
        except (ValueError, TypeError) as error:  # tomllib's errors are ValueErrors, too
            raise ValueError(f"{os.fspath(spec)}: {error}") from None


def _described(given: Mapping[str, Any], folder: Path, parts: Any) -> Description:
    _check_words("the description", given, _ROOM_OF_TOML)
    nodes, edges = given.get("nodes", {}), given.get("edges", {})
    for name, value in (("nodes", nodes), ("edges", edges)):
        if not isinstance(value, Mapping):
            raise ValueError(f"{name} is {value!r:.80}; expected tables by type")
    if not edges:
        raise ValueError("there are no edges: give at least one table of edges")
    is_hetero = not _is_one_table(edges)
    if is_hetero and nodes and _is_one_table(nodes):
        raise ValueError("edges are given by type, and nodes are not: give nodes by type, too")
    if not is_hetero and nodes and not _is_one_table(nodes):
        raise ValueError("nodes are given by type, and edges are not: give edges by type, too")
    found_nodes, found_edges = (
        (_nodes_by_type(nodes), _edges_by_type(edges))
        if is_hetero
        else (
            {NODE: _table("nodes", nodes, NodeTable)} if nodes else {},
            {EDGE: _table("edges", edges, EdgeTable)},
        )
    )
    return Description(
        nodes=found_nodes,
        edges=found_edges,
        is_hetero=is_hetero,
        folder=folder,
        memory=given.get("memory"),
        cutting=_cutting(given.get("parts"), parts, found_nodes, found_edges),
    )


def _cutting(
    in_file: Any, given: Any, nodes: dict[str, NodeTable], edges: dict[EdgeType, EdgeTable]
) -> Cutting | None:
    """Return how the graph is cut; None if it is not."""
    if in_file is None and given is None:
        return None
    words: dict[str, Any] = {}
    for each in (in_file, given):
        words |= {} if each is None else dict(each) if isinstance(each, Mapping) else {"n": each}
    said = cutting_of(words)
    if said.method is None:
        has_column = any(table.part is not None for table in nodes.values())
        said = msgspec.structs.replace(said, method=COLUMN if has_column else "range")
    for name in _types_of(nodes, edges) if said.by_column else ():
        if name not in nodes or nodes[name].part is None:
            what = "has no table" if name not in nodes else "lacks 'part'"
            raise ValueError(
                f"parts.method is 'column', and {nodes_label(name)} {what}: name there the column "
                "with the number of the part of each node"
            )
    return said


def _types_of(nodes: Mapping[str, Any], edges: Mapping[EdgeType, Any]) -> dict[str, None]:
    ends = [end for kind in edges for end in (kind[0], kind[2])]
    return dict.fromkeys([*nodes, *ends])


def _is_one_table(given: Mapping[Any, Any]) -> bool:
    """Return whether this is a table itself, rather than tables by type."""
    has_rows = "data" in given or ("files" in given and not isinstance(given["files"], Mapping))
    return has_rows or not all(isinstance(value, Mapping) for value in given.values())


def _nodes_by_type(given: Mapping[Any, Any]) -> dict[str, NodeTable]:
    return {
        check.node_type("nodes", name): _table(f"nodes.{name}", table, NodeTable)
        for name, table in given.items()
    }


def _edges_by_type(given: Mapping[Any, Any]) -> dict[EdgeType, EdgeTable]:
    found: dict[EdgeType, EdgeTable] = {}
    for name, table in given.items():
        parts = tuple(part.strip() for part in name.split(",")) if isinstance(name, str) else name
        if not isinstance(parts, tuple) or len(parts) != 3:
            near = "" if not isinstance(name, str) else " with two commas"
            raise ValueError(
                f'edges has the type {name!r}; expected "source,relation,target"{near}, or the '
                "same as a tuple"
            )
        kind = check.edge_type("edges", parts)
        if kind in found:
            raise ValueError(f"edges has the type {','.join(kind)!r} twice")
        found[kind] = _table(edges_label(kind), table, EdgeTable)
    for kind, edge_table in found.items():
        if edge_table.self_loops != "keep" and kind[0] != kind[2]:
            raise ValueError(
                f"{edges_label(kind)}.self_loops is {edge_table.self_loops!r}, and no edge from "
                f"{kind[0]!r} to {kind[2]!r} leads to where it begins: leave it out"
            )
        if edge_table.reverse and reversed_type(kind) in found:
            raise ValueError(
                f"{edges_label(kind)} has reverse = true, and {edges_label(reversed_type(kind))} "
                "is given as well: leave one of them out"
            )
    return found


def nodes_label(node_type: str) -> str:
    """Return how a table of nodes is called in messages."""
    return f"nodes.{node_type}" if node_type else "nodes"


def edges_label(edge_type: EdgeType) -> str:
    """Return how a table of edges is called in messages."""
    return f'edges."{",".join(edge_type)}"' if any(edge_type) else "edges"


def reversed_type(edge_type: EdgeType) -> EdgeType:
    """Return the type of the reverse edges."""
    source, relation, target = edge_type
    return (target, f"rev_{relation}", source)


# --- one table -----------------------------------------------------------------------------------


def _table(label: str, given: Any, struct: type[_Table]) -> _Table:
    if not isinstance(given, Mapping):
        raise ValueError(f"{label} is {given!r:.80}; expected a table of words and values")
    _check_words(label, given, struct.__struct_fields__)
    for word in ("source", "target"):
        if word in struct.__struct_fields__ and word not in given:
            raise ValueError(f"{label} lacks {word!r}: the column with the ids of its ends")
    whole = dict(given)
    if "features" in given:
        whole["features"] = _features(label, given["features"])
    if given.get("split") is not None:
        whole["split"] = _split(label, given["split"], of_links=struct is EdgeTable)
    table = _converted(label, whole, struct)
    _check_table(label, table)
    return table


def _features(label: str, given: Any) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise ValueError(
            f'{label}.features is {given!r:.80}; expected names and columns: {{x = ["price"]}}'
        )
    found = {}
    for name, columns in given.items():
        check.attribute_name(f"{label}.features", name)
        where = f"{label}.features.{name}"
        whole = columns if isinstance(columns, Mapping) else {"columns": columns}
        _check_words(where, whole, Feature.__struct_fields__)
        if "columns" not in whole:
            raise ValueError(f"{where} lacks 'columns'")
        feature = _converted(where, whole, Feature)
        _check_feature(where, feature)
        found[name] = feature
    return found


def _check_feature(label: str, feature: Feature) -> None:
    if not feature.names:
        raise ValueError(f"{label} has no columns")
    for word, value, choices in (
        ("dtype", feature.dtype, tuple(name for name in SUPPORTED if name != "bfloat16")),
        ("store", feature.store, STORED),
    ):
        if value is not None and value not in choices:
            near = suggestion(value, choices)
            raise ValueError(
                f"{label}.{word} is {value!r}; expected one of {', '.join(choices)}{near}"
            )
    if feature.store is not None and feature.dtype not in (None, "float32", "float64"):
        raise ValueError(f"{label} is {feature.dtype}; only floats can be stored in fewer bytes")


def _split(label: str, given: Any, *, of_links: bool) -> Split:
    where = f"{label}.split"
    if isinstance(given, str):  # a column
        given = {"by": "column", "column": given}
    if not isinstance(given, Mapping):
        raise ValueError(f"{where} is {given!r:.80}; expected a column, or {{by = …}}")
    _check_words(where, given, Split.__struct_fields__)
    if "by" not in given:
        raise ValueError(f'{where} lacks \'by\': "column", "random", "hash" or "time"')
    split = _converted(where, dict(given), Split)
    _check_split(where, split, of_links=of_links)
    return split


def _check_split(label: str, split: Split, *, of_links: bool) -> None:
    if split.by == "column" and split.column is None:
        raise ValueError(f"{label} is by column, and lacks 'column'")
    if split.by in ("random", "hash") and split.column is not None:
        raise ValueError(f"{label} is by {split.by}, and has a column: leave it out")
    if split.by in ("random", "hash", "time"):
        _check_shares(label, split)
    if not 0 <= split.disjoint < 1:
        raise ValueError(f"{label}.disjoint is {split.disjoint}; expected a share below 1")
    if split.disjoint and not of_links:
        raise ValueError(f"{label}.disjoint is for links; nodes have no supervision edges")
    for word in ("val_from", "test_from"):
        value = getattr(split, word)
        if value is None:
            continue
        if split.by != "time":
            raise ValueError(f"{label} is by {split.by}, and has {word!r}, which is for times")
        if isinstance(value, bool) or not isinstance(value, int | float | dt.date):
            raise ValueError(f"{label}.{word} is {value!r}; expected a date or a number")


def _check_shares(label: str, split: Split) -> None:
    if split.train is not None:
        raise ValueError(f"{label}.train is what val and test leave: leave it out")
    shares = {"val": split.val, "test": split.test}
    for word, share in shares.items():
        is_number = isinstance(share, int | float) and not isinstance(share, bool)
        if share is not None and not (is_number and 0 <= share <= 1):
            raise ValueError(f"{label}.{word} is {share!r}; expected a share from 0 to 1")
    has_cuts = split.val_from is not None or split.test_from is not None
    if all(share is None for share in shares.values()) and not has_cuts:
        more = ", or val_from and test_from" if split.by == "time" else ""
        raise ValueError(f"{label} holds out nothing: give val and test, such as 0.1{more}")
    if has_cuts and any(share is not None for share in shares.values()):
        raise ValueError(f"{label} has shares and times: give the ones or the others")
    if sum(share or 0 for share in shares.values()) > 1:
        raise ValueError(f"{label}: val and test are more than all")


def _check_table(label: str, table: NodeTable | EdgeTable) -> None:
    if (table.data is None) == (not table.files):
        raise ValueError(
            f"{label} has {'neither' if table.data is None else 'both'} files {_nor(table)} data; "
            "expected one of the two"
        )
    for word in table.csv:
        if word not in CSV_WORDS:
            near = suggestion(word, CSV_WORDS)
            raise ValueError(
                f"{label}.csv has the word {word!r}{near or '; there are: ' + ', '.join(CSV_WORDS)}"
            )
    split = table.split
    if split is not None and split.by == "time" and split.column is None and table.time is None:
        raise ValueError(f"{label}.split is by time, and there is no time: name its column")
    taken = {"time", "y"} if isinstance(table, NodeTable) else {"edge_time", "edge_weight"}
    for name in table.features:
        if name in taken:
            raise ValueError(
                f"{label}.features has the name {name!r}, under which a graph keeps something else "
                "(label, time, weight): take another one"
            )


def _nor(table: NodeTable | EdgeTable) -> str:
    return "nor" if table.data is None else "and"


def _check_words(label: str, given: Mapping[Any, Any], words: Iterable[str]) -> None:
    known = tuple(words)
    for word in given:
        if word not in known:
            near = suggestion(word, known) or f"; there are: {', '.join(known)}"
            raise ValueError(f"{label} has the word {word!r}, which is not known{near}")


_Struct = TypeVar("_Struct", bound=msgspec.Struct)


def _converted(label: str, given: Mapping[str, Any], struct: type[_Struct]) -> _Struct:
    try:
        return msgspec.convert(given, struct, strict=True)
    except msgspec.ValidationError as error:
        what, _, place = str(error).partition(" - at `$")
        raise ValueError(f"{label}{place.rstrip('`')}: {what.replace('`', '')}") from None
