"""What a graph in parts is as a whole, put together from what its parts say about themselves."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from penstock.errors import GraphFormatError
from penstock.graph.schema import OFFSETS, SLOTS, TEXT, ArrayKey, PartNote, Schema
from penstock.wire.messages import AbsentArray, Outline


class StoreOutline(msgspec.Struct, frozen=True, kw_only=True):
    """A graph in parts: types and sizes of the whole, the form of its arrays, and how it was cut.

    `note` is that of the first part; what differs between parts is not to be read from it.
    """

    schema: Schema
    arrays: tuple[AbsentArray, ...]
    note: PartNote

    @property
    def forms(self) -> dict[ArrayKey, AbsentArray]:
        """The arrays of the whole, by key."""
        return {each.key: each for each in self.arrays}


def outline_of_parts(parts: Sequence[Outline]) -> StoreOutline:
    """Return the whole that these parts are of.

    Raises:
        GraphFormatError: They are not all the parts of one cut of one graph, once each.
    """
    notes = [_note(outline) for outline in parts]
    first = notes[0]
    for note in notes:
        if note.cut != first.cut:
            raise GraphFormatError(
                f"part {note.number} is of another graph, version or cut than part {first.number}: "
                f"it is of cut {note.cut}, and the other of {first.cut}"
            )
    numbers = [note.number for note in notes]
    if sorted(numbers) != list(range(first.of)):
        raise GraphFormatError(
            f"there are the parts {sorted(numbers)}; expected each of 0 to {first.of - 1}, once"
        )
    schema = msgspec.structs.replace(parts[0].schema, part=None)
    return StoreOutline(schema=schema, arrays=tuple(_arrays(parts, schema)), note=first)


def _note(outline: Outline) -> PartNote:
    """Return a part's note; a whole graph is the only part of itself."""
    schema = outline.schema
    if schema.part is not None:
        return schema.part
    return PartNote(
        number=0,
        of=1,
        method="range",
        edges="destination",
        topology="whole",
        version=outline.version or "",
        cut="",
        num_nodes=tuple(info.num_nodes for info in schema.nodes),
        num_edges=tuple(info.num_edges for info in schema.edges),
        edges_cut=(0,) * len(schema.edges),
        bounds={info.name: (0, info.num_nodes) for info in schema.nodes},
    )


def _arrays(parts: Sequence[Outline], schema: Schema) -> list[AbsentArray]:
    nodes = {info.name: info.num_nodes for info in schema.nodes}
    edges = {info.name: info.num_edges for info in schema.edges}
    found = []
    for each in parts[0].arrays:
        match each.key.group:
            case "node" | "edge":
                rows = (nodes if isinstance(each.key.type, str) else edges)[each.key.type]  # type: ignore[index]
                found.append(AbsentArray(each.key, each.dtype, (rows, *each.shape[1:])))
            case "split":
                found.append(AbsentArray(each.key, each.dtype, (_total(parts, each.key),)))
            case "ids" if each.key.name == TEXT:
                found.append(AbsentArray(each.key, each.dtype, (_total(parts, each.key),)))
            case "ids" if each.key.name != SLOTS:
                rows = nodes[str(each.key.type)] + (each.key.name == OFFSETS)
                found.append(AbsentArray(each.key, each.dtype, (rows,)))
            case "graph":
                found.append(each)
    return found


def _total(parts: Sequence[Outline], key: ArrayKey) -> int:
    return sum(each.shape[0] for outline in parts for each in outline.arrays if each.key == key)
