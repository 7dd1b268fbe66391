"""`embed`: the embeddings of all nodes of a type, in a file."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn
from torch.nn.parameter import UninitializedParameter

from penstock.errors import suggestion
from penstock.graph.progress import Progress, shown
from penstock.graph.schema import NODE
from penstock.loader.embedding.norms import Degrees, check_local
from penstock.loader.embedding.output import check_out, write_out
from penstock.loader.embedding.run import Run, Wanted, shards_of
from penstock.loader.embedding.steps import Step, steps_of
from penstock.loader.embedding.workspace import Workspace
from penstock.loader.epoch.ranks import RankShare, ranks_of
from penstock.loader.pyg.template import template_of
from penstock.loader.source.sources import DataSource, source_of

StrPath = str | os.PathLike[str]

# Of the files that are left when a process is killed: other versions must not go on with them.
_FORMAT: Final = 1
_OF_RANKS: Final = frozenset({"training", "rank", "local_rank", "world_size", "device"})
_DEVICE: Final = re.compile(r"(cpu|cuda|mps|xpu)(:\d+)?")
_ADDRESS: Final = re.compile(r" at 0x[0-9a-f]+")


def embed(
    model: nn.Module,
    data: Any,
    out: StrPath,
    *,
    node_type: str | None = None,
    batch_size: int = 1024,
    num_workers: Any = None,
    device: Any = None,
    edge_weight: str | None = None,
    edge_attr: str | None = None,
    hops: int | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    progress: Progress = None,
) -> Path:
    """Write the embeddings of all nodes into a file: layer by layer, no node computed twice.

    The states of all nodes after a layer are in a file beside the output, which the next layer
    reads, so memory holds a batch of nodes with all their neighbours at a time. The result is that
    of a forward pass over the whole graph.

    If it was killed, call it again: it goes on, and the file is the same. Several ranks share the
    work, if each of them calls it with the same arguments and the same file system. A rank that is
    free takes the next nodes, so the others also do what was left by one that was killed. The
    number of ranks changes no bit of the result.

    Models are PyG's `GraphSAGE`, `GCN`, `GAT`, `GIN`, `PNA` and other `BasicGNN`s; or any module
    with a method `inference_layers()`, which returns a function for each layer, called as
    `layer(x, edge_index)` and returning new states of the nodes it was given; the first
    `batch_size` rows are kept. With types, `x` and the result are by node type, `edge_index` is by
    edge type. A layer that has arguments called `edge_weight`, `edge_attr`, `n_id` (the numbers of
    the nodes) or `batch_size` is given these, too. For any other model, such as one by `to_hetero`,
    batches have all neighbours within `hops`, which takes longer. Layers must need nothing but a
    node's neighbours; `GCNConv` is given the degrees of the whole graph.

    Args:
        model: The model. It is used as in `eval()`, and put back as it was.
        data: The graph, as for loaders: a `Graph`, the path of a saved one, an address, a server or
            a store (what `penstock.connect` returns), `Data` or `HeteroData`. Its nodes have
            features `x`.
        out: The file: `.parquet` with the columns `id` (the users' ids if the graph has them, else
            the numbers of the nodes) and `embedding`, or `.npy` with a row for each node. One that
            is there is replaced when the new one is complete.
        node_type: Whose embeddings are written, if the graph has types.
        batch_size: How many nodes are computed at once, with all their neighbours.
        num_workers: How many workers make batches, as for loaders.
        device: Where the model computes: "cuda", another device of torch's. None: where it is.
        edge_weight: The attribute of edges that layers are given as `edge_weight`. None: they are
            given none.
        edge_attr: Likewise as `edge_attr`.
        hops: How many hops the model sees, if it neither is a `BasicGNN` nor has
            `inference_layers`. None: as many as it has `convs`.
        rank: The number of this process among those that share the work. None: as torch.distributed
            or torchrun has it.
        world_size: How many processes these are.
        progress: Whether to show how far it is. None: in a terminal, after a second. Or called as
            `progress(done, total)` with numbers of nodes, over all layers.

    Returns:
        The file's path.

    Raises:
        ValueError: An argument is not valid, or the model needs more than neighbours.
        ImportError: Parquet needs pyarrow, which is not installed.

    Examples:
        >>> import numpy as np
        >>> import torch
        >>> from torch_geometric.nn import GraphSAGE
        >>> import penstock as ps
        >>> edges = torch.randint(0, 100, (2, 600))
        >>> graph = ps.Graph.from_coo(edges, num_nodes=100, x=torch.rand(100, 8))
        >>> path = ps.embed(GraphSAGE(8, 16, num_layers=2, out_channels=4), graph, "nodes.npy")
        >>> np.load(path).shape
        (100, 4)
    """
    path = check_out(out)
    _check_model(model)
    for name, value in (("batch_size", batch_size), ("hops", hops)):
        if value is not None and (type(value) is not int or value < 1):
            raise ValueError(f"{name} is {value!r}; expected a number of 1 or more")
    ranks = ranks_of(rank, world_size)
    source = source_of(data, part_only=False)
    # Batches of the graph, whatever the user's data are: nothing is needed that it does not have.
    source = replace(source, template=template_of(source.graph))
    wanted = Wanted(
        _type_of(source, node_type),
        batch_size,
        _attributes(source, edge_weight, edge_attr),
        num_workers,
        _device_of(model, device),
    )
    degrees = Degrees(model)
    steps = steps_of(model, degrees, source.is_hetero, hops)
    _check_source(source, wanted)
    plan = _plan(path, model, source, wanted, hops)
    with torch.inference_mode(), _as_used(model, wanted.device), degrees.used():
        _embed(path, source, steps, degrees, wanted, ranks, plan, progress)
    return path


def _embed(
    out: Path,
    source: DataSource,
    steps: list[Step],
    degrees: Degrees,
    wanted: Wanted,
    ranks: RankShare,
    plan: dict[str, Any],
    progress: Progress,
) -> None:
    units = len(shards_of(source, steps, wanted)) + 1  # the last is the file itself
    folder = out.with_name(f"{out.name}.embedding")
    space = Workspace.join(folder, plan, units, out, ranks.rank, ranks.world_size)
    if space is None:
        return
    if ranks.rank > 0 and progress is None:
        progress = False
    with space, shown(f"embedding into {out}", progress, "nodes") as report:
        run = Run(source, steps, degrees, wanted, space, report or (lambda done, total: None))
        try:
            made = run.work(ranks.rank / ranks.world_size)
            for unit in space.claimed(range(units - 1, units)):
                made.close()
                write_out(out, made.path, source.graph, wanted.node_type or None)
                space.mark_done(unit)
        finally:
            run.close()
        space.finish(ranks.rank, ranks.world_size)


def _plan(
    out: Path, model: nn.Module, source: DataSource, wanted: Wanted, hops: int | None
) -> dict[str, Any]:
    """Return all that the result depends on."""
    return {
        "format": _FORMAT,
        "out": out.name,
        "graph": source.graph.version,
        "model": _digest_of(model),
        "node_type": wanted.node_type,
        "batch_size": wanted.batch_size,
        "attributes": dict(wanted.attributes),
        "hops": hops,
    }


def _digest_of(model: nn.Module) -> str:
    """Return a digest of a model: how it prints, its modules' settings, parameters and buffers."""
    told = [f"{type(model).__module__} {_ADDRESS.sub('', repr(model))}"]
    for name, module in model.named_modules():
        told.append(f"{name} {type(module).__qualname__} {_settings(module)}")
    found = hashlib.blake2b("\n".join(told).encode(), digest_size=16)
    for name, value in (model.state_dict() | dict(model.named_buffers())).items():
        if not isinstance(value, torch.Tensor):  # what a module of the user's adds to its state
            found.update(f"{name} {_ADDRESS.sub('', repr(value))}".encode())
            continue
        found.update(f"{name} {value.dtype} {list(value.shape)}".encode())
        found.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()


def _settings(module: nn.Module) -> list[str]:
    """Return a module's plain attributes, without those that may differ between ranks."""
    return [
        f"{name}={value!r}"
        for name, value in sorted(vars(module).items())
        if isinstance(value, bool | int | float | str | None)
        and not (name.startswith("_") or name in _OF_RANKS)
        and not (isinstance(value, str) and _DEVICE.fullmatch(value))
    ]


def _check_model(model: Any) -> None:
    if not isinstance(model, nn.Module):
        raise ValueError(f"model is {model!r:.80}; expected a module of torch")
    for name, parameter in model.named_parameters():
        if isinstance(parameter, UninitializedParameter):
            raise ValueError(
                f"model has {name}, which has no size yet: call the model once with a batch"
            )
    check_local(model)


def _type_of(source: DataSource, node_type: str | None) -> str:
    types = source.graph.node_types
    if not source.is_hetero:
        if node_type is not None:
            raise ValueError(f"node_type is {node_type!r}, but the graph has no types")
        return NODE
    if node_type not in types:
        near = suggestion(node_type, types)
        raise ValueError(
            f"node_type is {node_type!r}; expected one of {', '.join(map(repr, types))}{near}"
        )
    return str(node_type)


def _attributes(source: DataSource, edge_weight: Any, edge_attr: Any) -> Mapping[str, str]:
    graph = source.graph
    there = {name for kind in graph.edge_types for name in graph.edge_attributes(kind)}
    found = {}
    for word, name in (("edge_weight", edge_weight), ("edge_attr", edge_attr)):
        if name is None:
            continue
        if name not in there:
            near = suggestion(name, sorted(there))
            told = ", ".join(map(repr, sorted(there))) or "none"
            raise ValueError(f"{word} is {name!r}; the edges of the graph have {told}{near}")
        found[word] = str(name)
    return found


def _check_source(source: DataSource, wanted: Wanted) -> None:
    graph = source.graph
    if graph.num_nodes(wanted.node_type or None) == 0:
        raise ValueError("the graph has no nodes to embed")
    types = graph.node_types or (NODE,)
    if not any("x" in graph.node_attributes(name or None) for name in types):
        raise ValueError("the nodes of the graph have no features x, which the first layer reads")


def _device_of(model: nn.Module, device: Any) -> torch.device:
    if device is not None:
        return torch.device(device)
    return next((each.device for each in model.parameters()), torch.device("cpu"))


@contextmanager
def _as_used(model: nn.Module, device: torch.device) -> Iterator[None]:
    """Have the model on a device, and as in `eval()`; put it back afterwards."""
    before = _device_of(model, None)
    training = [module for module in model.modules() if module.training]
    model.eval()
    if before != device:
        model.to(device)
    try:
        yield
    finally:
        if before != device:
            model.to(before)
        for module in training:
            module.training = True
