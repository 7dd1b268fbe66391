"""Whether times are given where sampling by time needs them; refused in PyG's words."""

from __future__ import annotations

from typing import Any

from penstock.graph import Graph


def check_node_times(graph: Graph, input_time: Any, time_attr: str | None) -> None:
    """ValueError for times that mean nothing, and where there are none for the seeds to have."""
    if input_time is not None and time_attr is None:
        raise ValueError(
            "Received conflicting 'input_time' and 'time_attr' arguments: 'input_time' is set "
            "while 'time_attr' is not set."
        )
    if input_time is None and time_attr is not None and not _is_of_nodes(graph, time_attr):
        raise ValueError(
            "Seed time needs to be specified: the time attribute "
            f"'{time_attr}' is that of edges, so nodes have none; give input_time"
        )


def check_link_times(edge_label_time: Any, time_attr: str | None) -> None:
    """ValueError unless both are given, or neither."""
    if (edge_label_time is not None) == (time_attr is not None):
        return
    raise ValueError(
        "Received conflicting 'edge_label_time' and 'time_attr' arguments: 'edge_label_time' is "
        f"{'set' if edge_label_time is not None else 'not set'} while 'time_attr' is "
        f"{'set' if time_attr is not None else 'not set'}. "
        "Both arguments must be provided for temporal sampling."
    )


def _is_of_nodes(graph: Graph, time_attr: str) -> bool:
    """Whether it is an attribute of edges is asked, so that one of neither is told as such."""
    return not any(time_attr in graph.edge_attributes(kind) for kind in graph.edge_types)
