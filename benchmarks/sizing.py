"""Say what a store takes: bytes on each host, and bytes that a batch moves.

    python benchmarks/sizing.py --nodes 1e9 --edges 1e11 --row-bytes 400 --servers 32

The sums follow from the format (docs/format.md) and from what servers and readers say to each other
(docs/guides/stores.md). The tables of docs/guides/cluster.md are printed by `--guide`; the tests
compare them with this, and this with graphs that are cut, saved and read.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

from penstock.hub.channels import slots_for
from penstock.options import ChannelOptions, PoolOptions

NARROW = 2**31 - 1  # up to here an id takes 4 bytes
HEADINGS = {"parts": "edges in parts", "whole": "edges whole"}


def id_bytes(largest: int) -> int:
    """Return the bytes of an id."""
    return 4 if largest <= NARROW else 8


@dataclass(frozen=True)
class Stored:
    """A graph as a store has it.

    Attributes:
        nodes: The nodes of the graph.
        edges: Its edges.
        row_bytes: Attributes of a node, with its label.
        servers: How many there are.
        replicas: How many servers each part has.
        topology: "parts" or "whole".
        edges_sorted: Edges came sorted by destination when the graph was built.
        with_book: Parts follow no rule ("locality", "streaming", an array).
        split_nodes: Nodes in splits.
    """

    nodes: int
    edges: int
    row_bytes: int
    servers: int
    replicas: int = 1
    topology: str = "parts"
    edges_sorted: bool = False
    with_book: bool = False
    split_nodes: int = 0

    @property
    def parts(self) -> int:
        return self.servers // self.replicas

    @property
    def edge_bytes(self) -> int:
        """Bytes of an edge where it is stored."""
        if self.edges_sorted:
            return id_bytes(self.nodes)
        return 2 * id_bytes(max(self.nodes, self.edges))

    @property
    def drawn_bytes(self) -> int:
        """Bytes of an edge that is drawn: the neighbour and the edge's id."""
        return self.edge_bytes + (id_bytes(self.edges) if self.edges_sorted else 0)

    def server_bytes(self) -> dict[str, float]:
        """Return what a part takes, on disk and mapped, by what it is."""
        own_nodes, own_edges = self.nodes / self.parts, self.edges / self.parts
        has_whole = self.topology == "whole"
        rows = self.nodes if has_whole else own_nodes
        edges = self.edge_bytes * (self.edges if has_whole else own_edges) + 8 * (rows + 1)
        if self.edges_sorted and not has_whole and self.parts > 1:
            edges += id_bytes(self.edges) * own_nodes
        splits = (8 + id_bytes(self.nodes)) * self.split_nodes / self.parts
        return {
            "edges": edges,
            "attributes": self.row_bytes * own_nodes,
            "whose": 16 * ceil(self.nodes / 64) + self.nodes * self._book_bytes + splits,
        }

    @property
    def _book_bytes(self) -> int:
        if not self.with_book:
            return 0
        return 1 if self.parts <= 256 else 2

    def total_bytes(self) -> float:
        """Return what all servers together take."""
        return self.servers * sum(self.server_bytes().values())


@dataclass(frozen=True)
class Batch:
    """A k-hop batch: its seeds, nodes, edges, and the nodes that were expanded."""

    seeds: int
    nodes: int
    edges: int
    expanded: int

    @classmethod
    def most(cls, seeds: int, fanouts: Sequence[int]) -> Batch:
        """Return the largest batch: every node has enough neighbours, and no two have one twice."""
        layers = [seeds]
        for fanout in fanouts:
            layers.append(layers[-1] * fanout)
        return cls(seeds, sum(layers), sum(layers[1:]), sum(layers[:-1]))

    def to_servers(self, stored: Stored) -> int:
        """Return the bytes of ids that are sent to servers."""
        ids = id_bytes(stored.nodes)
        asked = 16 * self.seeds if stored.topology == "whole" else ids * self.expanded
        return asked + ids * self.nodes * (stored.row_bytes > 0)

    def to_reader(self, stored: Stored) -> int:
        """Return the bytes of edges and rows that come back."""
        if stored.topology == "whole":
            edges = 8 * self.nodes + 24 * self.edges
        else:
            edges = 4 * self.expanded + stored.drawn_bytes * self.edges
        return edges + stored.row_bytes * self.nodes

    def slot_bytes(self, row_bytes: int) -> int:
        """Return what a batch takes on the reader's host: rows, ids of nodes, edges, their ids."""
        return self.nodes * (row_bytes + 8) + self.edges * 24


def rate(gigabits: float, stored: Stored, batch: Batch) -> float:
    """Return how many batches a second a host can be sent, by its network alone."""
    return gigabits * 1e9 / 8 / batch.to_reader(stored)


# --- the guide's tables ----------------------------------------------------------------------

LARGE = Stored(nodes=10**9, edges=10**11, row_bytes=400, servers=32)
ROWS = {"float32": 400, "half": 200, "int8": 100}
BATCHES = {
    "1,024 seeds, 15 and 10": Batch.most(1024, [15, 10]),
    "1,024 seeds, 15, 10 and 5": Batch.most(1024, [15, 10, 5]),
}


def in_words(number: float) -> str:
    """Return bytes as people read them."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:.0f} B"


def _markdown(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def table_of_memory(stored: Stored = LARGE) -> str:
    """Return what each server and all of them take, by layout and by attributes."""
    rows = []
    for topology, heading in HEADINGS.items():
        for is_sorted in (False, True):
            given = replace(stored, topology=topology, edges_sorted=is_sorted)
            sizes = [replace(given, row_bytes=size) for size in ROWS.values()]
            rows.append(
                [
                    heading + (", sorted" if is_sorted else ""),
                    in_words(given.server_bytes()["edges"]),
                    *(in_words(sum(each.server_bytes().values())) for each in sizes),
                    in_words(given.total_bytes()),
                ]
            )
    heads = ["", "edges", *(f"a server, {name}" for name in ROWS), "all, float32"]
    return _markdown(heads, rows)


def table_of_network(stored: Stored = LARGE) -> str:
    """Return what batches move, and how many a second a host can be sent."""
    rows = []
    for name, batch in BATCHES.items():
        for topology, heading in HEADINGS.items():
            for kind in ("float32", "int8"):
                given = replace(stored, topology=topology, row_bytes=ROWS[kind])
                rows.append(
                    [
                        name,
                        heading,
                        kind,
                        in_words(batch.to_servers(given)),
                        in_words(batch.to_reader(given)),
                        *(f"{rate(speed, given, batch):.3g}" for speed in (25, 100)),
                        f"{rate(100, given, batch) * batch.seeds / 8:,.0f}",
                    ]
                )
    heads = ["batch", "layout", "rows", "ids sent", "comes back", "a second at 25 Gbit/s", "at 100"]
    heads.append("seeds a second of each of 8 ranks, at 100")
    return _markdown(heads, rows)


def table_of_bytes() -> str:
    """Return what a node, an edge and a seed add, for a graph below 2³¹ and for the large one."""
    rows = []
    small = replace(LARGE, nodes=10**7, edges=10**9, servers=4)
    for name, stored in (("10 million nodes, 1 billion edges", small), ("the graph below", LARGE)):
        sizes = stored.server_bytes()
        in_order = replace(stored, edges_sorted=True)
        rows.append(
            [
                name,
                f"{8 + stored.row_bytes} + {sizes['whose'] * stored.parts / stored.nodes:.3g}",
                f"{stored.edge_bytes}",
                f"{in_order.edge_bytes}",
                f"{stored.drawn_bytes + id_bytes(stored.nodes) + stored.row_bytes}",
            ]
        )
    heads = ["", "a node: row and offset + bitmaps", "an edge", "sorted", "moved for a new node"]
    return _markdown(heads, rows)


def table_of_ranks(ranks: int = 8, workers: int = 14) -> str:
    """Return what a batch takes on the reader's host, and all slots of its ranks by default."""
    concurrency = PoolOptions().worker_concurrency
    rows = []
    for name, batch in BATCHES.items():
        sizes = [batch.slot_bytes(size) for size in ROWS.values()]
        slots = slots_for(ChannelOptions(), workers, concurrency, sizes[0])
        rows.append(
            [
                name,
                f"{batch.nodes:,}",
                f"{batch.edges:,}",
                *map(in_words, sizes),
                f"{slots}",
                in_words(ranks * slots * sizes[0]),
                in_words(ranks * 6 * sizes[-1]),
            ]
        )
    heads = ["batch", "nodes", "edges", *(f"a slot, {name}" for name in ROWS), "slots of a rank"]
    last = [f"{ranks} ranks, float32", f"{ranks} ranks, 6 slots, int8"]
    return _markdown([*heads, *last], rows)


TABLES = {
    "bytes": table_of_bytes,
    "memory": table_of_memory,
    "network": table_of_network,
    "ranks": table_of_ranks,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    number = {"type": lambda word: int(float(word))}
    parser.add_argument("--nodes", default=LARGE.nodes, **number)
    parser.add_argument("--edges", default=LARGE.edges, **number)
    parser.add_argument("--row-bytes", default=LARGE.row_bytes, **number, help="of a node")
    parser.add_argument("--servers", default=LARGE.servers, **number)
    parser.add_argument("--replicas", default=1, **number)
    parser.add_argument("--seeds", default=1024, **number)
    parser.add_argument("--fanouts", default="15,10", help="of each hop")
    parser.add_argument("--guide", action="store_true", help="print the tables of the guide")
    given = parser.parse_args()
    if given.guide:
        print("\n\n".join(f"{name}\n{table()}" for name, table in TABLES.items()))
        return
    stored = Stored(given.nodes, given.edges, given.row_bytes, given.servers, given.replicas)
    batch = Batch.most(given.seeds, [int(word) for word in given.fanouts.split(",")])
    for topology, heading in HEADINGS.items():
        for is_sorted in (False, True):
            each = replace(stored, topology=topology, edges_sorted=is_sorted)
            sizes = each.server_bytes()
            told = ", ".join(f"{name} {in_words(size)}" for name, size in sizes.items())
            print(f"{heading}{', sorted by destination' if is_sorted else ''}")
            print(f"  a server   {in_words(sum(sizes.values()))} ({told})")
            print(f"  all        {in_words(each.total_bytes())}")
            print(f"  a batch    {in_words(batch.to_reader(each))} to the reader at most,")
            print(f"             {rate(25, each, batch):.3g} a second for a host at 25 Gbit/s")


if __name__ == "__main__":
    main()
