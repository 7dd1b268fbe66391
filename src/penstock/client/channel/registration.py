"""What a channel asks of a hub: how to sample, what, and on which terms.

Kept by the rank, so that it can ask another boot of the hub for the same.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from penstock.client.channel.channel_options import parsed
from penstock.client.channel.inputs import Inputs
from penstock.client.channel.session import HubSession
from penstock.client.deadline import Deadline
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
from penstock.sampling.inputs import check_kind
from penstock.sampling.kinds import kind_of, needs_of
from penstock.sampling.spec import Feed, Spec
from penstock.wire.messages import BackendCreated, CreateBackend, Register, Registered

# Between two attempts to register with a hub that hangs up on us.
_PAUSE_S: Final = 0.05


@dataclass(frozen=True, eq=False)
class Registration:
    """One channel's wishes. `register` has no numbers yet: each boot of a hub gives its own."""

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
        """The wishes, checked as a hub would: ValueError for those that make no sense."""
        batches, options = parsed(given)
        feed = Feed(**inputs.handles(), **msgspec.structs.asdict(batches))
        register = Register(request=0, backend=0, feed=feed, options=options)
        return cls.checked(graph, spec, inputs, register, workers)

    @classmethod
    def checked(
        cls, graph: GraphView, spec: Spec, inputs: Inputs, register: Register, workers: int | None
    ) -> Registration:
        """The wishes of a `register` whose feed speaks of these inputs."""
        feed = register.feed
        register.options.check()
        plan_of(feed, register.options)
        if inputs.is_away:
            check_kind(spec, feed, graph, inputs.given())  # the rest the server knows
        else:
            check_inputs(spec, feed, graph, inputs.descriptors)
        if inputs.columns and graph.address is None:  # else the server looks at them
            kind_of(spec).check_values(spec, graph, inputs.given().columns)
        return cls(spec, inputs, register, workers)

    @property
    def feed(self) -> Feed:
        """The inputs, and how they are cut."""
        return self.register.feed

    @property
    def options(self) -> ChannelOptions:
        """The terms of the channel, and which batches of the list are this rank's."""
        return self.register.options

    def plan(self, first: int = 0) -> EpochPlan:
        """The arithmetic of an epoch that begins at batch `first`."""
        return plan_of(self.feed, self.options, first)

    def named(self, job: str) -> Registration:
        """The same under a name, if it has none."""
        return self if self.options.job else self._with(job=job)

    def reweighed(self, weight: float) -> Registration:
        """The same with another weight."""
        return self._with(weight=parsed_value(fields_of(ChannelOptions)["weight"], weight))

    def _with(self, **changes: Any) -> Registration:
        options = msgspec.structs.replace(self.options, **changes)
        return replace(self, register=msgspec.structs.replace(self.register, options=options))

    def enroll(self, hub: Hub, deadline: Deadline, patience: Deadline) -> HubSession:
        """Registers with the hub, whichever boot of it answers."""
        while True:
            connection = hub.reach(deadline, patience)
            try:
                return self._over(connection, hub.graph, deadline)
            except ConnectionError as error:
                # It died on the way, or has no wish to see us.
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
    """The number of the backend for a spec, on this boot of the hub."""
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
    # The others were got from a hub that has died, and this boot of it never had them.
    with ExitStack() as stack:
        copies = {
            key: stack.enter_context(SharedArray.from_array(derived.array, derived.dtype))
            for key, derived in needed.items()
            if key not in ours
        }
        return ask({**ours, **copies})


def prepared(spec: Spec, graph: GraphView) -> Arrays:
    """The derived arrays a spec needs, and no others: made if they are not there.

    Of a graph that is elsewhere, they are made over there.
    """
    return graph.prepare(needs_of(spec, graph))
