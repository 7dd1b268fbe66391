"""Compares what a server says it holds with what it held before."""

from __future__ import annotations

from penstock.errors import ServerGone
from penstock.graph.checksum import counts
from penstock.graph.schema import ArrayKey
from penstock.wire.messages import Outline


def check_same(before: Outline, now: Outline, address: str) -> None:
    """Raise `ServerGone` if a server came back with another graph: batches would differ."""
    known = before.version is not None and now.version is not None
    if before.schema != now.schema:
        what = "with other types, sizes or attributes"
    elif _content(before) != _content(now):
        what = "with other arrays"
    elif known and before.version != now.version:
        what = f"version {now.version}, where it was {before.version}"
    else:
        return
    raise ServerGone(
        f"the server at {address} has come back with another graph ({what}): what was begun cannot "
        "be gone on with. Connect anew, or start the server with the graph it had"
    )


def _content(outline: Outline) -> set[tuple[ArrayKey, str, tuple[int, ...]]]:
    """Return the arrays without the derived ones, which are computed only when they are needed."""
    part = outline.schema.part
    return {(each.key, each.dtype, each.shape) for each in outline.arrays if counts(each.key, part)}
