"""Turns a model into steps: each makes the states of all nodes from states that are there.

PyG's `BasicGNN`s have a step for each layer. A model of any other kind may say what its layers are,
by a method `inference_layers`. What says nothing is one step, which sees all neighbours within as
many hops as the model has layers.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor, nn
from torch_geometric.nn.models.basic_gnn import BasicGNN

from penstock.loader.embedding.norms import Degrees

# What a function of a layer may ask for by name, beside x and edge_index.
ASKED: Final = ("edge_weight", "edge_attr", "n_id", "batch_size")
# The name of the states that a graph has: the features of its nodes.
X: Final = "x"
DEGREES: Final = "degrees"

# Rows of nodes, or such by node type.
Rows: TypeAlias = Any


@dataclass(frozen=True, eq=False)
class Neighborhood:
    """What a step is given: some nodes, which come first, and their neighbours.

    Attributes:
        x: The states of all of them; by node type if the graph has types.
        edge_index: The edges that lead to the nodes, as positions; by edge type likewise.
        batch_size: How many nodes the step is to make states of.
        more: What else a layer may ask for by name.
        own: Other states of these nodes alone.
    """

    x: Rows
    edge_index: Any
    batch_size: int
    more: dict[str, Any]
    own: dict[str, Tensor]


@dataclass(frozen=True, eq=False)
class Step:
    """Makes the states of this name.

    Attributes:
        name: The name.
        run: Returns the new states of a neighbourhood's nodes.
        reads: The states of nodes and neighbours that it needs. None: it needs no neighbours.
        own: The states of nodes that it needs beside.
        hops: How far its neighbours are.
    """

    name: str
    run: Callable[[Neighborhood], Rows]
    reads: str | None = X
    own: tuple[str, ...] = ()
    hops: int = 1


def steps_of(model: nn.Module, degrees: Degrees, is_hetero: bool, hops: int | None) -> list[Step]:
    """Return the steps by which a model makes its embeddings.

    Args:
        model: The model.
        degrees: Those that its convolutions weigh by.
        is_hetero: Whether the graph has types.
        hops: How many hops the model sees, if it is one step. None: as many as it has `convs`.

    Raises:
        ValueError: The model does not say how far it sees.
    """
    steps = _steps(model, is_hetero, hops)
    if not degrees.convs:
        return steps
    if is_hetero:
        raise ValueError("model has GCNConv, which is for graphs without types")
    counted = Step(
        DEGREES,
        lambda here: degrees.count(
            len(here.more["n_id"]), here.edge_index, here.more["edge_weight"]
        ),
    )
    return [counted, *steps]


def _steps(model: nn.Module, is_hetero: bool, hops: int | None) -> list[Step]:
    layers: Any = getattr(model, "inference_layers", None)
    if layers is not None:
        return _chain(_checked(layers()))
    if isinstance(model, BasicGNN) and not is_hetero:
        return _of_basic(model)
    return [Step("out", _asked(model), hops=_hops(model, hops))]


def _chain(layers: Sequence[Callable[..., Rows]]) -> list[Step]:
    names = [f"layer{number}" for number in range(len(layers))]
    return [
        Step(name, _asked(layer), reads=before)
        for name, before, layer in zip(names, [X, *names], layers, strict=False)
    ]


def _of_basic(model: BasicGNN) -> list[Step]:
    steps = _chain([_BasicLayer(model, number) for number in range(model.num_layers)])
    if not hasattr(model, "jk"):
        return steps
    names = tuple(step.name for step in steps)

    def joined(here: Neighborhood) -> Tensor:
        rows = model.jk([here.own[name] for name in names])
        found: Tensor = model.lin(rows)
        return found

    return [*steps, Step("out", joined, reads=None, own=names)]


class _BasicLayer:
    """A layer of a `BasicGNN`, with norm and activation as in its forward pass."""

    def __init__(self, model: BasicGNN, number: int) -> None:
        self._model = model
        self._number = number

    def __call__(
        self,
        x: Tensor,
        edge_index: Tensor,
        edge_weight: Tensor | None,
        edge_attr: Tensor | None,
        batch_size: int,
    ) -> Tensor:
        model, number = self._model, self._number
        given: dict[str, Any] = {}
        if model.supports_edge_weight:
            given["edge_weight"] = edge_weight
        if model.supports_edge_attr:
            given["edge_attr"] = edge_attr
        x = model.convs[number](x, edge_index, **given)[:batch_size]
        is_last = number == model.num_layers - 1
        if is_last and model.jk_mode is None:
            return x
        if model.act is not None and model.act_first:
            x = model.act(x)
        x = model.norms[number](x)
        if model.act is not None and not model.act_first:
            x = model.act(x)
        if is_last and model.jk_mode == "last":
            x = model.lin(x)
        return x


def _asked(layer: Callable[..., Rows]) -> Callable[[Neighborhood], Rows]:
    """Return a function of a neighbourhood that gives a layer what it asks for by name."""
    called = layer.forward if isinstance(layer, nn.Module) else layer
    names = set(inspect.signature(called).parameters)
    wanted = [name for name in ASKED if name in names]

    def run(here: Neighborhood) -> Rows:
        told = {**here.more, "batch_size": here.batch_size}
        return layer(here.x, here.edge_index, **{name: told[name] for name in wanted})

    return run


def _checked(layers: Any) -> Sequence[Callable[..., Rows]]:
    found = list(layers)
    if not found or not all(map(callable, found)):
        raise ValueError(
            f"inference_layers() of the model returned {layers!r}; expected functions of x and "
            "edge_index, one for each layer"
        )
    return found


def _hops(model: nn.Module, hops: int | None) -> int:
    if hops is not None:
        return hops
    convs = getattr(model, "convs", None)
    if isinstance(convs, nn.ModuleList) and len(convs):
        return len(convs)
    raise ValueError(
        f"model is a {type(model).__name__}, which does not say how far it sees: give it a method "
        "inference_layers() that returns its layers as functions of x and edge_index, or say how "
        "many hops it sees by hops="
    )


def first_rows(made: Rows, node_type: str | None, batch_size: int) -> Tensor:
    """Return the states that a step has made of its own nodes; `ValueError` if it has not."""
    if node_type is not None and not isinstance(made, Tensor):
        if not hasattr(made, "get") or made.get(node_type) is None:
            raise ValueError(f"the model returned nothing for nodes of the type {node_type!r}")
        made = made[node_type]
    if not isinstance(made, Tensor) or made.ndim != 2 or len(made) < batch_size:
        shape = list(made.shape) if isinstance(made, Tensor) else type(made).__name__
        raise ValueError(
            f"the model returned {shape}; expected a tensor with a row for each of its nodes, "
            f"{batch_size} or more"
        )
    rows = made[:batch_size]
    return rows.float() if rows.dtype == torch.bfloat16 else rows
