"""The exceptions that Penstock defines.

Bad arguments raise a plain `ValueError` (`suggestion` is for their messages); these are for
failures that the caller did not cause.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any


class PenstockError(Exception):
    """The base class of every exception that Penstock defines.

    Attributes:
        details: Data beyond the message, if the error came from another process.

    Examples:
        >>> import penstock as ps
        >>> try:
        ...     ps.connect("unix://@nobody-listens-here", timeout=1)
        ... except ps.PenstockError as error:
        ...     print(type(error).__name__)
        HubGone
    """

    details: Mapping[str, Any] = MappingProxyType({})


class GraphFormatError(PenstockError):
    """A folder is not a graph that this version can read; names the file and what is wrong.

    Examples:
        >>> from pathlib import Path
        >>> import penstock as ps
        >>> ps.Graph.from_coo([[0, 1], [1, 0]], num_nodes=2).save("pair.graph")
        >>> _ = Path("pair.graph/manifest.json").write_text("{")
        >>> try:
        ...     ps.Graph.open("pair.graph")
        ... except ps.GraphFormatError as error:
        ...     print("pair.graph" in str(error))
        True
    """


class BatchTooLarge(PenstockError):
    """A batch does not fit the memory it was given.

    Args:
        message: What does not fit.
        nodes: How many nodes of each type the batch has.
        edges: How many edges of each type the batch has.

    Examples:
        >>> import penstock as ps
        >>> error = ps.BatchTooLarge("edges[0] has room for 10", nodes=[5], edges=[12])
        >>> error.nodes, error.edges
        ([5], [12])
    """

    def __init__(self, message: str, nodes: Sequence[int], edges: Sequence[int]) -> None:
        super().__init__(message)
        self.nodes = list(nodes)
        self.edges = list(edges)

    @classmethod
    def for_lists(
        cls, needs: Mapping[str, Sequence[int]], rooms: Mapping[str, Sequence[int]]
    ) -> BatchTooLarge:
        """Return an error that names the first list that is too short.

        Args:
            needs: The sizes that the batch has, under "nodes" and "edges".
            rooms: The capacities of each list of the buffer, by the name of the list.
        """
        for name, room in rooms.items():
            what = "nodes" if name.endswith(("nodes", "trees")) else "edges"
            for number, (need, have) in enumerate(zip(needs[what], room, strict=True)):
                if need > have:
                    message = f"{name}[{number}] has room for {have} {what}; the batch has {need}"
                    return cls(message, needs["nodes"], needs["edges"])
        return cls("the batch does not fit", needs["nodes"], needs["edges"])

    def __reduce__(self) -> tuple[type[BatchTooLarge], tuple[str, list[int], list[int]]]:
        return type(self), (str(self), self.nodes, self.edges)


class SamplingError(PenstockError):
    """A sampler could not make a batch: it raised, or returned something that is not a batch.

    Examples:
        >>> from pathlib import Path
        >>> import penstock as ps
        >>> _ = Path("broken.py").write_text('''
        ... class Broken:
        ...     def __init__(self, graph): ...
        ...     def sample(self, seeds, *, seed, epoch, index):
        ...         raise RuntimeError("no luck")
        ... ''')
        >>> graph = ps.Graph.from_coo([[0, 1], [1, 0]], num_nodes=2)
        >>> spec = ps.CustomSpec(sampler=f"{Path('broken.py').resolve()}:Broken")
        >>> with ps.SharedDistSamplingBackend(graph, spec, num_workers=0) as backend:
        ...     backend.register_input("mine", batch_size=2)
        ...     backend.start_new_epoch_sampling("mine", epoch=0)
        ...     try:
        ...         backend.next_batch("mine")
        ...     except ps.SamplingError as error:
        ...         print("no luck" in str(error))
        True
    """


class WorkerDied(PenstockError):
    """A batch lost a worker `max_attempts` times; the message contains the whole report.

    Examples:
        >>> import penstock as ps
        >>> def read(loader):
        ...     try:
        ...         return list(loader)
        ...     except ps.WorkerDied as error:
        ...         print(error)  # signal, memory, stacks, and how to make the batch again
    """


class HubGone(PenstockError):
    """The hub is gone and could not be started or reached again.

    Examples:
        >>> import penstock as ps
        >>> try:
        ...     ps.connect("unix://@nobody-listens-here", timeout=1)
        ... except ps.HubGone as error:
        ...     print("no hub answers" in str(error))
        True
    """


class ServerGone(HubGone):
    """A server on another host could not be reached again; names it and the number of tries.

    Examples:
        >>> import penstock as ps
        >>> def read(loader):
        ...     try:
        ...         return list(loader)
        ...     except ps.ServerGone:
        ...         return loader.state_dict()  # to go on from, once the server is back
    """


class Overloaded(PenstockError):
    """A hub or server is at its limit of connections, channels or memory; names the setting.

    Examples:
        >>> import penstock as ps
        >>> graph = ps.Graph.from_coo([[0, 1], [1, 0]], num_nodes=2)
        >>> spec = ps.NeighborSpec(num_neighbors=(2,))
        >>> with ps.SharedDistSamplingBackend(graph, spec, num_workers=1, max_channels=1) as pool:
        ...     pool.register_input("first", batch_size=2)
        ...     try:
        ...         pool.register_input("second", batch_size=2)
        ...     except ps.Overloaded as error:
        ...         print("max_channels" in str(error))
        True
    """


class ChannelClosed(PenstockError):
    """The channel was closed, here or by the hub; nothing more can be read from it.

    Examples:
        >>> import penstock as ps
        >>> graph = ps.Graph.from_coo([[0, 1], [1, 0]], num_nodes=2)
        >>> backend = ps.SharedDistSamplingBackend(graph, ps.WalkSpec(), num_workers=0)
        >>> backend.shutdown()
        >>> try:
        ...     backend.init_backend()
        ... except ps.ChannelClosed as error:
        ...     print(error)
        the backend was shut down
    """


class ProtocolError(PenstockError):
    """The other end of a connection sent a message that is not valid here.

    Examples:
        >>> import penstock as ps
        >>> def read(loader):
        ...     try:
        ...         return list(loader)
        ...     except ps.ProtocolError as error:
        ...         print(error)  # as if rank and server were of different versions
    """


class AccessDenied(PenstockError):
    """A server refused this client: it has no key or token, or none that the server knows.

    Examples:
        >>> import penstock as ps
        >>> graph = ps.Graph.from_coo([[0, 1], [1, 0]], num_nodes=2)
        >>> with ps.serve(graph, num_workers=1, tokens={"alice": "s" * 32}) as server:
        ...     try:
        ...         ps.connect(server.address, token="t" * 32)
        ...     except ps.AccessDenied:
        ...         print("refused")
        refused
    """


def suggestion(value: object, choices: Iterable[object]) -> str:
    """Return "; did you mean …?" with the choice that is closest to a value; "" if none is close.

    Args:
        value: What was given: text, or the names of a type.
        choices: What might have been meant.
    """
    from difflib import get_close_matches  # only errors need it

    by_text = {_as_text(choice): choice for choice in choices}
    close = get_close_matches(_as_text(value), by_text, 1)
    if not close:
        return ""
    choice = by_text[close[0]]
    return f"; did you mean {getattr(choice, 'value', choice)!r}?"


def _as_text(value: object) -> str:
    return " ".join(map(str, value) if isinstance(value, list | tuple) else [str(value)]).lower()
