"""Where batches come from: what a user calls `data`, as a graph and a template for batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.client.hub import Hub
from penstock.graph import Graph
from penstock.loader.template import Template


@dataclass(frozen=True, eq=False)
class Source:
    """A graph, the hub that serves it already (None: nobody does yet), and what batches are like."""

    graph: Graph
    hub: Hub | None
    template: Template

    @property
    def is_hetero(self) -> bool:
        return self.graph.is_hetero


def source_of(data: Any, custom_cls: Any = None, *, time_attr: str | None = None) -> Source:
    """The source that `data` is."""
    raise NotImplementedError
