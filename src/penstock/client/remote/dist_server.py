"""A `DistServer` that is elsewhere: the same methods, results and errors, by calls over a wire."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from penstock.client.channel.batch import Batch
from penstock.client.naming import spec_of
from penstock.core.slices import ServerSlice
from penstock.errors import ChannelClosed
from penstock.graph.partition.book import ArrayBook, PartitionBook, RangeBook
from penstock.graph.schema import EdgeType
from penstock.wire.requests import (
    ABLPInput,
    BatchParts,
    BookParts,
    DatasetMeta,
    EdgeDir,
    FeatureInfo,
    FetchABLPInputRequest,
    FetchNodesRequest,
    InitSamplingBackendRequest,
    RegisterBackendRequest,
)
from penstock.wire.rpc_schema import VERBS
from penstock.wire.values import Arrays, pack, unpack

Array = npt.NDArray[Any]


class Caller(Protocol):
    """A way to a server."""

    def call(
        self, verb: str, arguments: dict[str, Any], arrays: Arrays
    ) -> tuple[Any, dict[str, Array]]:
        """What the server answers; raises what went wrong over there."""


class RemoteDistServer:
    """For each method see `DistServer`."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._in_doubt: set[int] = set()  # channels of which a batch may have been lost here

    # --- sampling ---

    def init_sampling_backend(self, request: InitSamplingBackendRequest) -> int:
        named = InitSamplingBackendRequest(
            backend_key=request.backend_key,
            sampling_config=spec_of(request.sampling_config),
            worker_options=request.worker_options,
            sampler_options=request.sampler_options,
        )
        return int(self._ask("init_sampling_backend", request=named))

    def register_sampling_input(self, request: RegisterBackendRequest) -> int:
        return int(self._ask("register_sampling_input", request=_with_arrays(request)))

    def start_new_epoch_sampling(
        self, channel_id: int, epoch: int, *, first: int = 0, first_step: int = 0
    ) -> None:
        self._ask(
            "start_new_epoch_sampling",
            channel_id=channel_id,
            epoch=epoch,
            first=first,
            first_step=first_step,
        )

    def fetch_one_sampled_message(self, channel_id: int) -> tuple[Batch | None, bool]:
        if channel_id in self._in_doubt:
            raise ChannelClosed(
                f"a fetch of channel {channel_id} was interrupted, and its batch may be lost: "
                "register it again, and start where you were"
            )
        try:
            fetched = self._ask("fetch_one_sampled_message", channel_id=channel_id)
        except Exception:
            raise
        except BaseException:  # the server does not know that nobody waits for it any more
            self._in_doubt.add(channel_id)
            raise
        return None if fetched.batch is None else _batch(fetched.batch), fetched.done

    def is_channel_epoch_done(self, channel_id: int, epoch: int) -> bool:
        return bool(self._ask("is_channel_epoch_done", channel_id=channel_id, epoch=epoch))

    def destroy_sampling_input(self, channel_id: int) -> None:
        self._ask("destroy_sampling_input", channel_id=channel_id)
        self._in_doubt.discard(channel_id)

    # --- data ---

    def get_node_ids(
        self,
        split: str | FetchNodesRequest | None = None,
        node_type: str | None = None,
        server_slice: ServerSlice | None = None,
    ) -> Array:
        if isinstance(split, FetchNodesRequest):
            return self.get_node_ids(split.split, split.node_type, split.server_slice)
        found: Array = self._ask(
            "get_node_ids", split=split, node_type=node_type, server_slice=server_slice
        )
        return found

    def get_ablp_input(
        self,
        split: str | FetchABLPInputRequest | None = None,
        node_type: str | None = None,
        supervision_edge_type: EdgeType | None = None,
        server_slice: ServerSlice | None = None,
        *,
        positive: EdgeType | None = None,
        negative: EdgeType | None = None,
        max_labels: int | None = None,
    ) -> ABLPInput:
        if isinstance(split, FetchABLPInputRequest):
            fields = {name: getattr(split, name) for name in split.__struct_fields__}
            return self.get_ablp_input(**fields)
        found = self._ask(
            "get_ablp_input",
            split=split,
            node_type=node_type,
            supervision_edge_type=supervision_edge_type,
            server_slice=server_slice,
            positive=positive,
            negative=negative,
            max_labels=max_labels,
        )
        return ABLPInput(*found)

    def get_dataset_meta(self) -> DatasetMeta:
        meta: DatasetMeta = self._ask("get_dataset_meta")
        return meta

    def get_node_types(self) -> list[str] | None:
        types: list[str] | None = self._ask("get_node_types")
        return types

    def get_edge_types(self) -> list[EdgeType] | None:
        types: list[EdgeType] | None = self._ask("get_edge_types")
        return types

    def get_edge_dir(self) -> EdgeDir:
        direction: EdgeDir = self._ask("get_edge_dir")
        return direction

    def get_node_feature_info(self) -> FeatureInfo | dict[str, FeatureInfo] | None:
        info: FeatureInfo | dict[str, FeatureInfo] | None = self._ask("get_node_feature_info")
        return info

    def get_edge_feature_info(self) -> FeatureInfo | dict[EdgeType, FeatureInfo] | None:
        info: FeatureInfo | dict[EdgeType, FeatureInfo] | None = self._ask("get_edge_feature_info")
        return info

    def get_node_partition_id(self, node_type: str | None = None, index: Any = None) -> Array:
        return self._rows("get_node_partition_id", index, node_type=node_type)

    def get_node_partition_book(self, node_type: str | None = None) -> PartitionBook:
        return _book(self._ask("get_node_partition_book", node_type=node_type))

    def get_edge_partition_book(self, edge_type: EdgeType | None = None) -> PartitionBook:
        return _book(self._ask("get_edge_partition_book", edge_type=edge_type))

    def get_node_feature(self, node_type: str | None = None, index: Any = None) -> Array:
        return self._rows("get_node_feature", index, node_type=node_type)

    def get_node_label(self, node_type: str | None = None, index: Any = None) -> Array:
        return self._rows("get_node_label", index, node_type=node_type)

    def get_tensor_size(self, node_type: str | None = None) -> tuple[int, ...]:
        size: tuple[int, ...] = self._ask("get_tensor_size", node_type=node_type)
        return size

    def get_node_attribute(
        self, name: str, node_type: str | None = None, index: Any = None
    ) -> Array:
        return self._rows("get_node_attribute", index, name=name, node_type=node_type)

    def get_edge_attribute(
        self, name: str, edge_type: EdgeType | None = None, index: Any = None
    ) -> Array:
        return self._rows("get_edge_attribute", index, name=name, edge_type=edge_type)

    def get_graph_attribute(self, name: str, owner: str | EdgeType | None = None) -> Any:
        return self._ask("get_graph_attribute", name=name, owner=owner)

    def get_edge_index(
        self,
        edge_type: EdgeType | None = None,
        layout: str = "coo",
        first: int = 0,
        count: int | None = None,
    ) -> Array:
        found: Array = self._ask(
            "get_edge_index", edge_type=edge_type, layout=layout, first=first, count=count
        )
        return found

    def get_edge_size(
        self, edge_type: EdgeType | None = None, layout: str = "coo"
    ) -> tuple[int, int]:
        size: tuple[int, int] = self._ask("get_edge_size", edge_type=edge_type, layout=layout)
        return size

    # --- the server ---

    def statistics(self) -> dict[str, Any]:
        numbers: dict[str, Any] = self._ask("statistics")
        return numbers

    def hub_statistics(self) -> dict[str, Any]:
        numbers: dict[str, Any] = self._ask("hub_statistics")
        return numbers

    def describe(self) -> str:
        return str(self._ask("describe"))

    def exit(self) -> bool:
        return bool(self._ask("exit"))

    def wait_for_exit(self, timeout: float | None = None) -> bool:
        """At most as long as the server lets any call wait (its `request_timeout`)."""
        return bool(self._ask("wait_for_exit", timeout=timeout))

    def _rows(self, verb: str, index: Any, **arguments: Any) -> Array:
        ids = None if index is None else np.asarray(index)
        rows: Array = self._ask(verb, index=ids, **arguments)
        return rows

    def _ask(self, verb: str, **arguments: Any) -> Any:
        plain, arrays = pack(arguments)
        value, answered = self._caller.call(verb, plain, arrays)
        return unpack(value, answered, VERBS[verb].gives)


def _with_arrays(request: RegisterBackendRequest) -> RegisterBackendRequest:
    """Lists of numbers, which may be long, as what they are over there anyway."""
    given = request.sampler_input
    if not isinstance(getattr(given, "ids", None), list | tuple):
        return request
    given = msgspec.structs.replace(given, ids=np.asarray(given.ids))
    return msgspec.structs.replace(request, sampler_input=given)


def _batch(parts: BatchParts) -> Batch:
    return Batch(
        arrays=parts.arrays,
        facts=parts.facts,
        epoch=parts.epoch,
        step=parts.step,
        index=parts.index,
        substitute=parts.substitute,
        copied=True,
        cost=parts.cost,
        dtypes=parts.dtypes,
    )


def _book(parts: BookParts) -> PartitionBook:
    if parts.bounds is not None:
        return RangeBook(parts.bounds)
    return ArrayBook(parts.parts, parts.num_partitions)
