"""PyG's data modules for Lightning, with our loaders.

PyG's own module makes a sampler of PyG's, which copies the graph, and loaders around it. Ours keeps
PyG's arguments and attributes, and makes our loaders; nothing is read before Lightning asks for
one.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Final

from torch_geometric.data import Data, HeteroData

from penstock.loader.pyg.link_neighbor_loader import LinkNeighborLoader
from penstock.loader.pyg.neighbor_loader import NeighborLoader, SharedSampler
from penstock.loader.pyg.typed import Column, DataLike, InputEdges, InputNodes
from penstock.loader.source.sources import source_of

if TYPE_CHECKING:
    # PyG does not say that it is typed: what mypy takes for Any, nothing would be known about.
    class PyGLightningData:
        def __init__(self, **options: Any) -> None: ...
        def full_dataloader(self, **options: Any) -> Any: ...

    class PyGNodeData(PyGLightningData): ...

    class PyGLinkData(PyGLightningData): ...

else:
    from torch_geometric.data.lightning import LightningLinkData as PyGLinkData
    from torch_geometric.data.lightning import LightningNodeData as PyGNodeData
    from torch_geometric.data.lightning.datamodule import LightningData as PyGLightningData

_LOADERS: Final = ("neighbor", "link_neighbor", "full")
# By which names PyG looks for the nodes of each stage.
_SPLITS: Final = {
    "train": ("train",),
    "val": ("val", "valid"),
    "test": ("test",),
    "pred": ("pred",),
}
_SUFFIXES: Final = ("mask", "idx", "index")


class _Sampling:
    """Says how a module's loaders sample, where PyG's data modules have their sampler.

    Its constructor takes a sampler's arguments. By that PyG tells them from those of loaders: it
    warns of them beside a given sampler, and sets those of `eval_loader_kwargs` on a copy.
    """

    def __init__(
        self,
        num_neighbors: Any,
        subgraph_type: Any = "directional",
        replace: bool = False,
        disjoint: bool = False,
        temporal_strategy: str = "uniform",
        time_attr: str | None = None,
        weight_attr: str | None = None,
        is_sorted: bool = False,
        directed: bool = True,
        edge_dir: str | None = None,
    ) -> None:
        self.num_neighbors, self.subgraph_type = num_neighbors, subgraph_type
        self.replace, self.disjoint = replace, disjoint
        self.temporal_strategy, self.time_attr = temporal_strategy, time_attr
        self.weight_attr, self.is_sorted = weight_attr, is_sorted
        self.directed, self.edge_dir = directed, edge_dir

    @classmethod
    def as_of(cls, sampler: Any, who: str) -> _Sampling:
        """Return how the sampler of another loader samples."""
        if not isinstance(sampler, SharedSampler):
            raise ValueError(
                f"the sampler of {who} is a {type(sampler).__name__}, which samples with PyG's own "
                "code: leave it out, and give num_neighbors and the other arguments here; or take "
                "the node_sampler (link_sampler) of another of Penstock's loaders"
            )
        spec = sampler.spec
        return cls(
            sampler.num_neighbors,
            spec.subgraph_type,
            spec.replace,
            spec.disjoint,
            spec.temporal_strategy,
            spec.time_attr,
            spec.weight_attr,
            edge_dir=spec.direction,
        )


_SAMPLING: Final = frozenset(inspect.signature(_Sampling).parameters)


class _Module(PyGLightningData):
    """What both modules have in common; beside PyG's class, which sets the attributes."""

    data: Any
    loader: str
    kwargs: dict[str, Any]
    loader_kwargs: dict[str, Any]
    eval_loader_kwargs: dict[str, Any]

    def _prepare(
        self,
        data: Any,
        loader: str,
        sampler: Any,
        evaluation: dict[str, Any] | None,
        stages: dict[str, Any],
        kwargs: dict[str, Any],
    ) -> None:
        """Do what PyG's constructor does, for the inputs of each of `stages`."""
        who = type(self).__name__
        if loader not in _LOADERS:
            raise ValueError(f"loader of {who} is {loader!r}; expected one of {list(_LOADERS)}")
        if loader == "full" and not isinstance(data, Data | HeteroData):
            raise ValueError(
                f"loader of {who} is 'full', but data is a {type(data).__name__}: the whole graph "
                "is one batch, which needs a Data or a HeteroData"
            )
        if loader != "full" and sampler is None and "num_neighbors" not in kwargs:
            raise TypeError(f"{who} lacks num_neighbors: how many to sample in each hop")
        ours, others = None, kwargs
        if loader != "full" and sampler is not None:
            ours = _Sampling.as_of(sampler, who)
        elif loader != "full":
            ours = _Sampling(**{name: kwargs[name] for name in _SAMPLING & kwargs.keys()})
            others = {name: value for name, value in kwargs.items() if name not in _SAMPLING}
        PyGLightningData.__init__(
            self,
            data=data,
            has_val=stages["val"] is not None,
            has_test=stages["test"] is not None,
            loader=loader,
            graph_sampler=ours,
            eval_loader_kwargs=evaluation,
            **others,
        )
        self.loader = loader
        if others is not kwargs:
            self.kwargs = {**kwargs, **self.kwargs}  # all of them, as PyG shows them
        if "num_workers" not in kwargs and ours is not None:
            # PyG's default is 0; ours is the workers of a hub or a server, where there is one.
            for options in (self.loader_kwargs, self.eval_loader_kwargs):
                options.pop("num_workers", None)


class LightningNodeData(_Module, PyGNodeData):
    """PyG's data module for nodes, with Penstock's loaders: give it to a Lightning Trainer.

    Several ranks share out each stage's nodes, as Lightning's own sampler says. Loaders of all
    stages share one copy of the graph, and one pool of workers.

    Args:
        data: What to sample: as `NeighborLoader` takes it.
        input_train_nodes: The nodes to train on: as `NeighborLoader` takes them. None: those that
            `data` has as `train_mask`, `train_idx` or `train_index`, or a graph as the split
            "train"; all nodes, if there is none of these.
        input_train_time: The time of each of these nodes, if it is not that of the node.
        input_val_nodes: The nodes to validate with; None: found alike.
        input_val_time: Their times.
        input_test_nodes: The nodes to test with; None: found alike.
        input_test_time: Their times.
        input_pred_nodes: The nodes to predict for; None: found alike ("pred").
        input_pred_time: Their times.
        loader: "neighbor" for sampled batches, or "full" for the whole graph as one batch.
        node_sampler: The `node_sampler` of another of Penstock's loaders, to sample in the same
            way; num_neighbors and the like are then not needed, and those of
            `eval_loader_kwargs` are for evaluation.
        eval_loader_kwargs: Arguments that are others for validation, test and prediction.
        **kwargs: The other arguments and options of `NeighborLoader`: `num_neighbors`,
            `batch_size`, `num_workers` and so on. PyG's module shuffles for training.

    Raises:
        ValueError: An argument cannot be used. That of a loader is refused when Lightning asks for
            the loader.

    Examples:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> import penstock as ps
        >>> edges = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
        >>> data = Data(edge_index=edges, num_nodes=4, train_mask=torch.arange(4) < 3)
        >>> module = ps.LightningNodeData(data, num_neighbors=[1], batch_size=2, seed=0)
        >>> [batch.batch_size for batch in module.train_dataloader()]
        [2, 1]
    """

    def __init__(
        self,
        data: DataLike,
        input_train_nodes: InputNodes = None,
        input_train_time: Column = None,
        input_val_nodes: InputNodes = None,
        input_val_time: Column = None,
        input_test_nodes: InputNodes = None,
        input_test_time: Column = None,
        input_pred_nodes: InputNodes = None,
        input_pred_time: Column = None,
        loader: str = "neighbor",
        node_sampler: SharedSampler | None = None,
        eval_loader_kwargs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        given = {
            "train": (input_train_nodes, input_train_time),
            "val": (input_val_nodes, input_val_time),
            "test": (input_test_nodes, input_test_time),
            "pred": (input_pred_nodes, input_pred_time),
        }
        found = {
            stage: _found_nodes(data, stage) if nodes is None else nodes
            for stage, (nodes, _) in given.items()
        }
        self._prepare(data, loader, node_sampler, eval_loader_kwargs, found, kwargs)
        for stage, (_, time) in given.items():
            _set(self, stage, nodes=found[stage], time=time, id=None)

    def dataloader(
        self,
        input_nodes: Any,
        input_time: Any = None,
        input_id: Any = None,
        node_sampler: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Return the loader of a stage; Lightning's hooks call it.

        Args:
            input_nodes: The nodes of the stage.
            input_time: Their times.
            input_id: What batches show as `input_id`.
            node_sampler: What the module keeps where PyG's has a sampler.
            **kwargs: The other arguments and options of the loader.
        """
        if self.loader == "full":
            return self.full_dataloader(**kwargs)
        wanted = vars(node_sampler) | kwargs
        inputs = {"input_nodes": input_nodes, "input_time": input_time, "input_id": input_id}
        return NeighborLoader(self.data, **inputs, **wanted)


class LightningLinkData(_Module, PyGLinkData):
    """PyG's data module for edges, with Penstock's loaders: give it to a Lightning Trainer.

    Several ranks share out each stage's edges, as Lightning's own sampler says. Loaders of all
    stages share one copy of the graph, and one pool of workers.

    Args:
        data: What to sample: as `LinkNeighborLoader` takes it.
        input_train_edges: The edges to train on: as `LinkNeighborLoader` takes its
            `edge_label_index`. None: all edges.
        input_train_labels: Their labels.
        input_train_time: Their times.
        input_val_edges: The edges to validate with; None: there is no validation.
        input_val_labels: Their labels.
        input_val_time: Their times.
        input_test_edges: The edges to test with; None: there is no test.
        input_test_labels: Their labels.
        input_test_time: Their times.
        input_pred_edges: The edges to predict for; None: all edges.
        input_pred_labels: Their labels.
        input_pred_time: Their times.
        loader: "neighbor" for sampled batches, or "full" for the whole graph as one batch.
        link_sampler: The `link_sampler` of another of Penstock's loaders, to sample in the same
            way; num_neighbors and the like are then not needed, and those of
            `eval_loader_kwargs` are for evaluation.
        eval_loader_kwargs: Arguments that are others for validation, test and prediction.
        **kwargs: The other arguments and options of `LinkNeighborLoader`: `num_neighbors`,
            `neg_sampling`, `batch_size` and so on. PyG's module shuffles for training.

    Raises:
        ValueError: An argument cannot be used. That of a loader is refused when Lightning asks for
            the loader.

    Examples:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> import penstock as ps
        >>> edges = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
        >>> data = Data(edge_index=edges, num_nodes=4)
        >>> module = ps.LightningLinkData(data, num_neighbors=[1], batch_size=3, seed=0)
        >>> [batch.edge_label_index.shape[1] for batch in module.train_dataloader()]
        [3, 1]
    """

    def __init__(
        self,
        data: DataLike,
        input_train_edges: InputEdges = None,
        input_train_labels: Column = None,
        input_train_time: Column = None,
        input_val_edges: InputEdges = None,
        input_val_labels: Column = None,
        input_val_time: Column = None,
        input_test_edges: InputEdges = None,
        input_test_labels: Column = None,
        input_test_time: Column = None,
        input_pred_edges: InputEdges = None,
        input_pred_labels: Column = None,
        input_pred_time: Column = None,
        loader: str = "neighbor",
        link_sampler: SharedSampler | None = None,
        eval_loader_kwargs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        given = {
            "train": (input_train_edges, input_train_labels, input_train_time),
            "val": (input_val_edges, input_val_labels, input_val_time),
            "test": (input_test_edges, input_test_labels, input_test_time),
            "pred": (input_pred_edges, input_pred_labels, input_pred_time),
        }
        stages = {stage: edges for stage, (edges, _, _) in given.items()}
        self._prepare(data, loader, link_sampler, eval_loader_kwargs, stages, kwargs)
        for stage, (edges, labels, time) in given.items():
            _set(self, stage, edges=edges, labels=labels, time=time, id=None)

    def dataloader(
        self,
        input_edges: Any,
        input_labels: Any = None,
        input_time: Any = None,
        input_id: Any = None,
        link_sampler: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Return the loader of a stage; Lightning's hooks call it.

        Args:
            input_edges: The edges of the stage.
            input_labels: Their labels.
            input_time: Their times.
            input_id: What batches show as `input_id`.
            link_sampler: What the module keeps where PyG's has a sampler.
            **kwargs: The other arguments and options of the loader.
        """
        if self.loader == "full":
            return self.full_dataloader(**kwargs)
        wanted = vars(link_sampler) | kwargs
        inputs = {
            "edge_label_index": input_edges,
            "edge_label": input_labels,
            "edge_label_time": input_time,
            "input_id": input_id,
        }
        return LinkNeighborLoader(self.data, **inputs, **wanted)


def _set(module: Any, stage: str, **inputs: Any) -> None:
    """Keep the inputs of a stage, by the names of PyG's attributes."""
    for name, value in inputs.items():
        setattr(module, f"input_{stage}_{name}", value)


def _found_nodes(data: Any, stage: str) -> Any:
    """Return the nodes of a stage that the data name; None if there are none."""
    if isinstance(data, Data):
        return _one({None: data}, stage)
    if isinstance(data, HeteroData):
        return _one(dict(data.node_items()), stage)
    graph = source_of(data).graph
    for name in _SPLITS[stage]:
        if not graph.is_hetero and name in graph.splits():
            return name
        types = [
            kind for kind in graph.node_types if graph.is_hetero and name in graph.splits(kind)
        ]
        if types:
            return _only(dict.fromkeys(types, name), name)
    return None


def _one(stores: dict[Any, Any], stage: str) -> Any:
    """Return the first attribute that names the nodes of a stage, of the only type that has it."""
    for name in (f"{split}_{suffix}" for split in _SPLITS[stage] for suffix in _SUFFIXES):
        having = {kind: store[name] for kind, store in stores.items() if name in store}
        if having:
            return _only(having, name)
    return None


def _only(having: dict[Any, Any], name: str) -> Any:
    if len(having) > 1:
        raise ValueError(
            f"{name!r} is there for {', '.join(map(repr, having))}: say which of them is meant, as "
            f"in input_train_nodes=({next(iter(having))!r}, nodes)"
        )
    ((kind, nodes),) = having.items()
    return nodes if kind is None else (kind, nodes)
