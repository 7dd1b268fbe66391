"""Registers a channel at the hub for a remote rank.

That may take long (inputs are copied, derived arrays may have to be made), so it runs in a thread.
Everything is checked as for a local rank, and in addition: which samplers may run here, and which
files may be read.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, Final

from msgspec import structs

from penstock.client.channel.inputs import Inputs, inputs_of
from penstock.client.channel.registration import Registration
from penstock.client.channel.session import HubSession
from penstock.client.dist.dataset import ServedDataset
from penstock.client.hub.hub_process import HubProcess
from penstock.errors import Overloaded
from penstock.graph.schema import EDGE, NODE
from penstock.options import Limits
from penstock.rpc.deadline import Deadline
from penstock.sampling.custom import check_plain
from penstock.sampling.kinds import InputKind, check, kind_of
from penstock.sampling.normalize import settled
from penstock.sampling.spec import Feed, Spec
from penstock.server.dist.seeds import StrPath, read_seeds
from penstock.server.limits import LONGEST_NAME, Budget, check_at_most
from penstock.server.transport.relay import Relay
from penstock.wire.messages import Register
from penstock.wire.payload import Arrays

# Making derived arrays of a large graph takes long; the hub itself answers at once.
PATIENCE_S: Final = 600.0
_ID_BYTES: Final = 8
_GROUPS: Final = ("columns", "tables")


@dataclass(frozen=True, eq=False)
class Registrations:
    """Registers remote ranks, within the server's limits."""

    hub: HubProcess
    dataset: ServedDataset
    limits: Limits
    budget: Budget  # of bytes of inputs
    channels: Budget
    samplers: frozenset[str] = frozenset()
    folders: tuple[StrPath, ...] = ()

    def make(self, asked: Register, arrays: Arrays) -> tuple[Relay, int]:
        """Register a channel; return its relay, and the bytes an input file took of the budget."""
        spec = self._checked(asked)
        register = self._registration(asked)
        with ExitStack() as undo:
            self.channels.take(1)
            undo.callback(self.channels.give, 1)
            seeds, taken = self._seeds(asked, arrays)
            undo.callback(self.budget.give, taken)
            relay = self._relay(spec, register, asked.workers, seeds, arrays)
            undo.pop_all()
            return relay, taken

    def _relay(
        self, spec: Spec, register: Register, workers: int | None, seeds: Any, arrays: Arrays
    ) -> Relay:
        inputs = self._inputs(spec, register.feed, seeds, arrays)
        try:
            register = structs.replace(register, feed=_feed(register.feed, inputs))
            graph = self.hub.graph
            registration = Registration.checked(graph, spec, inputs, register, workers)
            session = registration.open_session(
                self.hub, Deadline(PATIENCE_S), Deadline(self.hub.patience)
            )
        finally:
            inputs.close()  # the hub has its own hold on them
        return _CountedRelay(session, register.options.job, self.channels)

    def _inputs(self, spec: Spec, feed: Feed, seeds: Any, arrays: Arrays) -> Inputs:
        columns, tables = _more(arrays)
        if feed.edge_type is not None or InputKind.of(spec) is InputKind.LINK:
            edge_type = feed.edge_type or EDGE
            given = (edge_type, seeds) if any(edge_type) else seeds
            return inputs_of(self.hub.graph, given, InputKind.LINK, columns, tables)
        node_type = feed.node_type or NODE
        given = (node_type, seeds) if node_type else seeds
        return inputs_of(self.hub.graph, given, InputKind.NODE, columns, tables)

    def _checked(self, asked: Register) -> Spec:
        self.dataset.check_sampling()
        spec, workers = asked.spec, asked.workers
        if spec is None or asked.backend:
            raise ValueError("a Register to a server has a spec, and no backend")
        if workers is not None and not 1 <= workers <= self.hub.num_workers:
            raise Overloaded(
                f"workers is {workers}: a sampler may have 1 to {self.hub.num_workers} of its own "
                "(setting: num_workers)"
            )
        _check_code(kind_of(spec).users_code(spec), self.samplers)
        check_plain(spec)
        spec = settled(spec)
        check(spec, self.hub.graph)
        return spec

    def _registration(self, asked: Register) -> Register:
        """Return the request to the hub, without the parts that concern the server only."""
        options, most = asked.options, self.limits.max_batch_bytes
        for wanted in (options.slot_bytes, options.max_batch_bytes):
            check_at_most(wanted or 0, most, "bytes of a batch are asked for", "max_batch_bytes")
        if len(options.job) > LONGEST_NAME:
            raise ValueError(f"the job's name is longer than {LONGEST_NAME} letters")
        feed = asked.feed
        if feed.ids is not None or feed.columns or feed.tables:
            raise ValueError("the feed of a Register has handles; expected inputs in its payload")
        return structs.replace(
            asked,
            request=0,
            spec=None,
            split=None,
            file=None,
            arrays=(),
            workers=None,
            options=structs.replace(options, max_batch_bytes=options.max_batch_bytes or most),
        )

    def _seeds(self, asked: Register, arrays: Arrays) -> tuple[Any, int]:
        """Return the inputs (None: all there are) and the bytes they took of the budget."""
        given = [asked.split, asked.file, arrays.get("ids")]
        if sum(one is not None for one in given) > 1:
            raise ValueError("inputs are given twice; expected a split, a file or ids")
        if asked.file is None:
            return (asked.split if asked.split is not None else arrays.get("ids")), 0
        seeds = read_seeds(asked.file, self.folders, self.limits.max_input_bytes)
        nbytes = seeds.size * _ID_BYTES  # a copy of it
        self.budget.take(nbytes)
        return seeds, nbytes


class _CountedRelay(Relay):
    """A relay that counts towards the limit of channels until it is closed."""

    def __init__(self, session: HubSession, job: str, channels: Budget) -> None:
        super().__init__(session, job)
        self._channels = channels
        self._counts = 1

    def close(self) -> None:
        """Close the channel. Idempotent."""
        super().close()
        counted, self._counts = self._counts, 0
        self._channels.give(counted)


def _check_code(code: str | None, samplers: frozenset[str]) -> None:
    if code is not None and code not in samplers:
        there = ", ".join(sorted(samplers)) or "none"
        raise ValueError(
            f"sampler is {code!r}, which this server was not started with; it has {there} "
            "(setting: samplers)"
        )


def _more(arrays: Arrays) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return the columns and the tables among the arrays that came."""
    found: dict[str, dict[str, Any]] = {group: {} for group in _GROUPS}
    for name, array in arrays.items():
        group, slash, member = name.partition("/")
        if name == "ids":
            continue
        if group not in found or not slash:
            raise ValueError(f"inputs have an array {name!r}; expected ids, columns/… or tables/…")
        found[group][member] = array
    return found["columns"], found["tables"]


def _feed(wanted: Feed, inputs: Inputs) -> Feed:
    return Feed(
        **replace(inputs, groups=wanted.groups).handles(),
        batch_size=wanted.batch_size,
        shuffle=wanted.shuffle,
        drop_last=wanted.drop_last,
        seed=wanted.seed,
    )
