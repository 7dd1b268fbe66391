"""What the doctor has measured: plain data. Rates are per second."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Subject:
    """What was sampled: a generated graph, and batches of k-hop neighbourhoods.

    Attributes:
        nodes: Nodes of the graph.
        edges: Edges of the graph.
        row_bytes: Bytes of a node's row.
        seeds: Seeds of a batch.
        fan_outs: Neighbours that are drawn for each node, by hop.
    """

    nodes: int
    edges: int
    row_bytes: int
    seeds: int
    fan_outs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Sampling:
    """Batches and edges a second, without rows. `workers` is 0 for this process."""

    workers: int
    batches: float
    edges: float


@dataclass(frozen=True, slots=True)
class Gathering:
    """Bytes of rows gathered a second, and bytes that a plain copy of as many makes."""

    gathered: float
    copied: float


@dataclass(frozen=True, slots=True)
class Moving:
    """Batches and bytes that arrive on a GPU a second, and bytes that a bare copy brings there."""

    batches: float
    moved: float
    copied: float


@dataclass(frozen=True, slots=True)
class Trouble:
    """A part of the measurement that failed. `stops`: Penstock cannot work without it."""

    part: str
    error: str
    stops: bool = False


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures; None where something was not measured, which `troubles` explain if it failed."""

    subject: Subject
    seconds: float
    inline: Sampling | None = None
    pool: Sampling | None = None
    gathering: Gathering | None = None
    moving: Moving | None = None
    troubles: tuple[Trouble, ...] = ()
