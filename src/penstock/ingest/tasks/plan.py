"""Which tasks a build has, and what cannot be built by tasks."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.graph.schema import EdgeType, owner_of
from penstock.ingest.description import Description, EdgeTable, NodeTable, edges_label, nodes_label
from penstock.ingest.found import Tables, columns_of_edges, columns_of_nodes
from penstock.ingest.tasks.edges import depends_on_all, passes_of
from penstock.ingest.tasks.spread import sides_of
from penstock.ingest.tasks.task import NBYTES_OF_EDGE, Run, num_ranges, runs_of


def check_tasks(said: Description) -> None:
    """Raise an error for what cannot be built by tasks on many hosts.

    Raises:
        ValueError: Something is asked for that one process has to do.
    """
    if said.cutting is None:
        raise ValueError("parts is None, and on Ray a graph is built in parts: say how many")
    if said.cutting.by_neighbours:
        raise ValueError(
            f"parts.method is {said.cutting.method!r}, which goes through all edges of the graph "
            "again and again, in one process: on Ray, take 'range', 'hash', or a column with the "
            "part of each node, which may come from another run; or build without Ray"
        )
    tables: dict[str, NodeTable | EdgeTable] = {
        nodes_label(name): table for name, table in said.nodes.items()
    }
    tables |= {edges_label(kind): table for kind, table in said.edges.items()}
    for label, table in tables.items():
        if table.data is not None:
            raise ValueError(
                f"{label}.data is a table in memory, which other hosts do not have: write it to "
                "Parquet files in a folder that all hosts share, and give 'files'"
            )


def check_files(found: Tables) -> None:
    """Raise an error for files that have to be read from their beginning.

    Raises:
        ValueError: There is CSV.
    """
    if found.unread:
        raise ValueError(
            f"{', '.join(found.unread)}: the files are CSV, which one process reads from its "
            "beginning: turn it into several Parquet files, or build without Ray"
        )


def node_runs(said: Description, found: Tables, cpus: int) -> dict[str, list[Run]]:
    """Return the files of each table of nodes, as tasks read them."""
    return {
        name: runs_of(found.nodes[name], _names(columns_of_nodes(table)), cpus)
        for name, table in said.nodes.items()
    }


def edge_runs(said: Description, found: Tables, cpus: int) -> dict[EdgeType, list[Run]]:
    """Return the files of each table of edges, as tasks read them."""
    return {
        kind: runs_of(found.edges[kind], _names(columns_of_edges(table)), cpus)
        for kind, table in said.edges.items()
    }


def tasks_of(said: Description, found: Tables, memory: int, cpus: int) -> dict[str, int]:
    """Return how many tasks each step would have, about: rows may be left out."""
    assert said.cutting is not None
    check_files(found)
    nodes, edges = node_runs(said, found, cpus), edge_runs(said, found, cpus)
    per_table = sum(map(len, edges.values()))
    sorts = 0
    for kind, table in said.edges.items():
        rows, sides = found.edges[kind].num_rows, sides_of(said.cutting)
        for each in {each.kind: each for each in passes_of(kind, table)}.values():
            for side in sides:
                name = owner_of(each.kind, side)
                size = found.nodes[name].num_rows if name in found.nodes else rows
                sorts += num_ranges(size, NBYTES_OF_EDGE * rows, memory, cpus)
    return {
        "number nodes": len(said.nodes) + len(found.nodes_without_table()),
        "look up edges": per_table,
        "decide which rows are edges": sum(map(depends_on_all, said.edges.values())),
        "give out edges": per_table,
        "sort edges": sorts,
        "give out attributes": sum(map(len, nodes.values())) + per_table,
        "write parts": said.cutting.n,
    }


def _names(columns: Sequence[tuple[str, str]]) -> list[str]:
    return [column for _, column in columns]
