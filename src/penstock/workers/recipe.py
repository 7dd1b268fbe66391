"""A recipe: a file from which anybody can make one batch again, alone and in the foreground.

It is a small JSON file: how to sample, which inputs in which order, which batch, which seeds, and
where the graph is: in a folder, in files, or in the memory of a hub that may still be running. The
hub writes one when a worker dies; `penstock replay` reads it.
"""

from __future__ import annotations

import os
import re
import time
from contextlib import closing, suppress
from typing import Any, Final, TypeVar

import msgspec
import numpy as np

from penstock.errors import PenstockError, ProtocolError
from penstock.graph import Graph
from penstock.graph.handles import FileHandle
from penstock.graph.schema import EDGE
from penstock.graph.sharing import GraphHandle, without_made
from penstock.kernels import digest
from penstock.kernels.arrays import Array, Ids
from penstock.sampling.inputs import ChannelInputs, request_of
from penstock.sampling.request import Request
from penstock.sampling.spec import Feed, Spec
from penstock.store.attach import attach
from penstock.wire.messages import (
    PROTOCOL,
    AskGraph,
    FromHubToRank,
    GraphHere,
    Hello,
    Refused,
    Welcome,
)
from penstock.wire.stream import Stream
from penstock.wire.transport import unix

FORMAT: Final = 1
# How many recipes a folder keeps: the newest.
KEPT: Final = 100
# Tables of a feed with more elements than this are not written: weights of all nodes of a large
# graph, for example.
LARGEST_TABLE: Final = 1 << 16

# Matches the names of recipes only: users may keep other files in the folder.
_NAME: Final = re.compile(r"batch-\w{1,40}-e\d+-b\d+-[0-9a-f]{8}\.json")
_PATIENCE: Final = 30.0
_Answer = TypeVar("_Answer")

StrPath = str | os.PathLike[str]


class Few(msgspec.Struct, frozen=True, kw_only=True):
    """An array with few elements, written out.

    Floating-point numbers are written as the integers with the same bits, since JSON cannot write
    all of them.
    """

    dtype: str
    shape: tuple[int, ...]
    values: tuple[int | bool, ...]

    @classmethod
    def of(cls, array: Array) -> Few:
        values = np.ascontiguousarray(array).view(_written_as(array.dtype)).reshape(-1)
        return cls(dtype=array.dtype.name, shape=array.shape, values=tuple(values.tolist()))

    @property
    def array(self) -> Array:
        dtype = np.dtype(self.dtype)
        return np.array(self.values, _written_as(dtype)).view(dtype).reshape(self.shape)


def _written_as(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(f"u{dtype.itemsize}") if dtype.kind == "f" else dtype


class Recipe(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that one batch depends on.

    `feed` comes without its arrays. `seeds`, `columns` and `tables` have the part of them that this
    batch needs, except `lacking`: tables that are too large to be written. Seeds may be left out
    where the inputs are all nodes; edges are written as all sources, then all destinations. The
    graph is searched in the folder `path`, then in the files of `graph`, then at the hub's
    `address`.
    """

    format: int = FORMAT
    spec: Spec
    feed: Feed
    epoch: int
    index: int
    seeds: tuple[int, ...] | None = None
    columns: dict[str, Few] = {}
    tables: dict[str, Few] = {}
    lacking: tuple[str, ...] = ()
    path: str | None = None
    graph: GraphHandle | None = None
    address: str | None = None
    version: str | None = None  # of the graph, where it is known
    job: str = ""
    channel: int | None = None
    search_path: tuple[str, ...] = ()

    @property
    def knows_graph(self) -> bool:
        """Whether the recipe says where the graph is."""
        return not (self.path is None and self.graph is None and self.address is None)

    def write(self, folder: StrPath, keep: int = KEPT) -> str:
        """Write the recipe into `folder`, keep only the newest `keep` there, and return its path.

        The same batch has the same name, so a batch that fails again and again does not fill the
        folder.
        """
        os.makedirs(folder, exist_ok=True)
        data = msgspec.json.format(msgspec.json.encode(self), indent=1)
        path = os.path.abspath(os.path.join(folder, self._file_name()))
        draft = f"{path}.draft"
        with open(draft, "wb") as file:
            file.write(data)
        os.replace(draft, path)
        _forget_old(folder, keep)
        return path

    def _file_name(self) -> str:
        said = re.sub(r"\W+", "_", self.job) or (
            "batch" if self.channel is None else f"channel{self.channel}"
        )
        batch = msgspec.structs.replace(self, graph=None, seeds=None)
        data = np.frombuffer(msgspec.json.encode(batch, order="deterministic"), np.uint8)
        mark = digest(data).hex()[:8]
        return f"batch-{said[:40]}-e{self.epoch}-b{self.index}-{mark}.json"


def load(path: StrPath) -> Recipe:
    """Return the recipe in a file; `PenstockError` says what is wrong with it."""
    with open(path, "rb") as file:
        data = file.read()
    try:
        said = msgspec.json.decode(data)
        if isinstance(said, dict) and said.get("format", FORMAT) != FORMAT:
            raise PenstockError(
                f"{os.fspath(path)}: a recipe of format {said['format']!r}; this version of "
                f"Penstock reads format {FORMAT}"
            )
        return msgspec.convert(said, Recipe)
    except msgspec.MsgspecError as error:
        raise PenstockError(f"{os.fspath(path)}: not a recipe, or damaged: {error}") from None


def for_batch(
    *,
    spec: Spec,
    feed: Feed,
    epoch: int,
    index: int,
    graph: GraphHandle,
    request: Request,
    **others: Any,
) -> Recipe:
    """Return a recipe that names the graph's files, if it consists of files, and no descriptor."""
    graph = without_made(graph)
    in_files = all(isinstance(segment, FileHandle) for segment in graph.segments)
    small = {name: table for name, table in request.tables.items() if table.size <= LARGEST_TABLE}
    return Recipe(
        spec=spec,
        feed=msgspec.structs.replace(feed, ids=None, columns={}, tables={}),
        seeds=None if feed.ids is None else tuple(request.seeds.reshape(-1).tolist()),
        columns={name: Few.of(column) for name, column in request.columns.items()},
        tables={name: Few.of(table) for name, table in small.items()},
        lacking=tuple(name for name in request.tables if name not in small),
        epoch=epoch,
        index=index,
        graph=graph if in_files else None,
        version=graph.version,
        **others,
    )


def request_again(recipe: Recipe) -> Request:
    """Return the batch's request; `PenstockError` if its inputs are not all there."""
    if recipe.lacking:
        raise PenstockError(
            f"the recipe lacks {', '.join(recipe.lacking)}, too large to be written down: without "
            "them another batch would be made"
        )
    bare = request_of(
        msgspec.structs.replace(recipe.feed, edge_type=None),
        ChannelInputs(),
        recipe.epoch,
        recipe.index,
    )
    wanted = bare.num_inputs * (1 if recipe.feed.edge_type is None else 2)
    if recipe.seeds is not None and len(recipe.seeds) != wanted:
        raise PenstockError(f"the recipe has {len(recipe.seeds)} seeds; its batch has {wanted}")
    return msgspec.structs.replace(
        bare,
        seeds=bare.seeds if recipe.seeds is None else _ends(recipe, np.array(recipe.seeds)),
        edge_type=recipe.feed.edge_type or EDGE,
        columns={name: few.array for name, few in recipe.columns.items()},
        tables={name: few.array for name, few in recipe.tables.items()},
    )


def _ends(recipe: Recipe, seeds: Ids) -> Ids:
    seeds = seeds.astype(np.int64)
    return seeds if recipe.feed.edge_type is None else seeds.reshape(2, -1)


# --- the graph ---------------------------------------------------------------------------------


def graph_of(recipe: Recipe) -> Graph:
    """Return a recipe's graph; `PenstockError` if it is not found, or has changed."""
    graph = _found(recipe)
    version = graph.handle().version
    if recipe.version and version and version != recipe.version:
        graph.close()
        raise PenstockError(
            f"the graph has changed: it is version {version}, and the batch was made of "
            f"{recipe.version}"
        )
    return graph


def _found(recipe: Recipe) -> Graph:
    if recipe.path is not None:
        return Graph.open(recipe.path)
    if recipe.graph is not None:
        try:
            return attach(recipe.graph)
        except OSError as error:
            raise _gone(f"its files are gone ({error})") from error
    if recipe.address is None:
        raise _gone("the recipe does not say where it is")
    try:
        return fetch_graph(recipe.address)
    except OSError as error:
        raise _gone(f"no hub answers at {recipe.address} ({error})") from error


def _gone(why: str) -> PenstockError:
    return PenstockError(f"there is no graph to sample: {why}; name a saved one with --graph PATH")


def fetch_graph(address: str, patience: float = _PATIENCE) -> Graph:
    """Map the graph that a running hub holds in memory; it stays valid when the hub ends."""
    with closing(Stream[FromHubToRank](unix.connect(address), FromHubToRank)) as stream:
        stream.send(Hello(protocol=PROTOCOL, pid=os.getpid()))
        _answer(stream, Welcome, patience)
        stream.send(AskGraph(request=1))
        here, fds = _answer(stream, GraphHere, patience)
    return attach(here.graph, fds)


def _answer(
    stream: Stream[FromHubToRank], expected: type[_Answer], patience: float
) -> tuple[_Answer, list[int]]:
    """Return the next message, which must be of this type; a hub sends only answers here."""
    deadline = time.monotonic() + patience
    while not stream.ended:
        if not stream.wait(max(deadline - time.monotonic(), 0.0)):
            raise TimeoutError(f"no answer within {patience} s")
        for message, fds in stream.receive():
            if isinstance(message, expected):
                return message, fds
            if isinstance(message, Refused):
                raise PenstockError(f"the hub refuses: {message.report.message}")
            said, wanted = type(message).__name__, expected.__name__
            raise ProtocolError(f"the hub said {said}; expected {wanted}")
    raise ConnectionError("the hub hung up")


# --- files -------------------------------------------------------------------------------------


def _forget_old(folder: StrPath, keep: int) -> None:
    with os.scandir(folder) as entries:
        paths = [entry.path for entry in entries if _NAME.fullmatch(entry.name)]
    for path in sorted(paths, key=_time_of)[: max(len(paths) - keep, 0)]:
        with suppress(FileNotFoundError):  # another hub deletes, too
            os.unlink(path)


def _time_of(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except FileNotFoundError:
        return 0
