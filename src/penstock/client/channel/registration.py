"""What a channel asks of a hub: the spec, the inputs, and the channel's options.

The rank keeps it, so that it can register in the same way with another boot of the hub.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from penstock.client.channel.channel_options import parsed
from penstock.client.channel.inputs import Inputs
from penstock.client.channel.session import HubSession
from penstock.client.hub.connection import HubConnection
from penstock.client.hub.hub import Hub
from penstock.client.keywords import parsed_value
from penstock.core.plan import EpochPlan
from penstock.errors import GraphFormatError
from penstock.graph import Graph
from penstock.graph.schema import Arrays
from penstock.graph.shared import SharedArray
from penstock.graph.sharing import can_be_handed_on, descriptors_of, handle_of
from penstock.graph.view import GraphView
from penstock.hub.channels import check_inputs, plan_of
from penstock.option_types import ChannelKeywords
from penstock.options import ChannelOptions, fields_of
from penstock.rpc.deadline import Deadline
from penstock.sampling.inputs import check_kind
from penstock.sampling.kinds import kind_of, needs_of
from penstock.sampling.spec import Feed, Spec
from penstock.wire.messages import BackendCreated, CreateBackend, Register, Registered

# Seconds between two attempts to register with a hub that closes the connection.
_PAUSE_S: Final = 0.05


@dataclass(frozen=True, eq=False)
class Registration:
    """What one channel registers with.

    `register` has no request or backend number yet, because each boot of a hub gives its own.
    """

    spec: Spec
    inputs: Inputs
    register: Register
    workers: int | None = None

    @classmethod
    def make(
        cls,
        graph: GraphView,
        spec: Spec,
        inputs: Inputs,
        given: ChannelKeywords,
        workers: int | None = None,
    ) -> Registration:
        """Return a registration, checked as a hub would check it.

        Raises:
            ValueError: Spec, inputs and options do not fit together.
        """
        batches, options = parsed(given)
        feed = Feed(**inputs.handles(), **msgspec.structs.asdict(batches))
        register = Register(request=0, backend=0, feed=feed, options=options)
        return cls.checked(graph, spec, inputs, register, workers)

    @classmethod
    def checked(
        cls, graph: GraphView, spec: Spec, inputs: Inputs, register: Register, workers: int | None
    ) -> Registration:
        """Return a checked registration for a `register` whose feed describes these inputs."""
        feed = register.feed
        register.options.check()
        plan_of(feed, register.options)
        if inputs.is_away:
            check_kind(spec, feed, graph, inputs.given())  # the server checks the rest
        else:
            check_inputs(spec, feed, graph, inputs.descriptors)
        if inputs.columns and graph.address is None:  # otherwise the server checks them
            kind_of(spec).check_values(spec, graph, inputs.given().columns)
        return cls(spec, inputs, register, workers)

    @property
    def feed(self) -> Feed:
        """The inputs, and how they are cut into batches."""
        return self.register.feed

    @property
    def options(self) -> ChannelOptions:
        """The channel's options, which also say which batches of the list are this rank's."""
        return self.register.options

    def plan(self, first: int = 0) -> EpochPlan:
        """Return the plan of an epoch that begins at batch `first`."""
        return plan_of(self.feed, self.options, first)

    def named(self, job: str) -> Registration:
        """Return this registration under the name `job`, unless it has a name already."""
        return self if self.options.job else self._with(job=job)

    def reweighed(self, weight: float) -> Registration:
        """Return this registration with another weight."""
        return self._with(weight=parsed_value(fields_of(ChannelOptions)["weight"], weight))

    def _with(self, **changes: Any) -> Registration:
        options = msgspec.structs.replace(self.options, **changes)
        return replace(self, register=msgspec.structs.replace(self.register, options=options))

    def open_session(self, hub: Hub, deadline: Deadline, patience: Deadline) -> HubSession:
        """Register with whichever boot of the hub answers, and return the session."""
        while True:
            connection = hub.reach(deadline, patience)
            try:
                return self._over(connection, hub.graph, deadline)
            except ConnectionError as error:
                # The hub died meanwhile, or has closed the connection.
                connection.close()
                hub.check(deadline, patience, error)
                hub.pause(_PAUSE_S, deadline)
            except BaseException:
                connection.close()
                raise

    def _over(self, connection: HubConnection, graph: Graph, deadline: Deadline) -> HubSession:
        backend = create_backend(connection, self.spec, graph, self.workers, deadline)
        register = msgspec.structs.replace(self.register, backend=backend)
        fds = self.inputs.descriptors
        registered, theirs = connection.ask(register, Registered, deadline, fds)
        return HubSession(connection, registered, theirs)


def create_backend(
    connection: HubConnection, spec: Spec, graph: Graph, workers: int | None, deadline: Deadline
) -> int:
    """Return the number of the backend for a spec, on this boot of the hub."""
    needed = prepared(spec, graph)
    ours = {key: derived for key, derived in needed.items() if can_be_handed_on(derived.segment)}

    def ask(derived_arrays: Arrays) -> int:
        supplement = handle_of(graph.schema, derived_arrays, None) if derived_arrays else None
        request = CreateBackend(request=0, spec=spec, supplement=supplement, workers=workers)
        return connection.ask(request, BackendCreated, deadline, descriptors_of(derived_arrays))[
            0
        ].backend

    try:
        return ask(ours)
    except (ValueError, GraphFormatError):
        if len(ours) == len(needed):
            raise
    # The other arrays came from a hub that has died, and this boot never had them: send copies.
    with ExitStack() as stack:
        copies = {
            key: stack.enter_context(SharedArray.from_array(derived.array, derived.dtype))
            for key, derived in needed.items()
            if key not in ours
        }
        return ask({**ours, **copies})


def prepared(spec: Spec, graph: GraphView) -> Arrays:
    """Return the derived arrays that a spec needs, and no others; compute those that are missing.

    If the graph is at a server, the server computes them.
    """
    return graph.prepare(needs_of(spec, graph))
