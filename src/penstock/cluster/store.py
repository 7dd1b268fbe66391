"""Brings a store on Ray up and down, and says how it is.

Every part has a placement group with a place for each of its replicas, on as many hosts
(`STRICT_SPREAD`); every place has one actor, the parent of a server. If a host dies, Ray looks for
another place that is on none of the hosts of the other replicas, and makes the actor anew there;
while there is no such host, that replica waits, and the others go on.

All of it has names that follow from the store's: whoever brings a store up or down begins where
another one was interrupted.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, Literal

from penstock.cluster import session
from penstock.cluster.credentials import Credentials, make_credentials
from penstock.cluster.directory import Directory
from penstock.cluster.plan import StorePlan, check_name, plan_of, told_resources
from penstock.cluster.server_actor import ServerActor
from penstock.cluster.states import (
    FAILING,
    SERVING,
    WAITING,
    Look,
    Report,
    ServerStatus,
    StoreStatus,
)
from penstock.errors import PenstockError
from penstock.rpc.deadline import Deadline, positive_seconds

# Seconds that `up` waits until all servers serve.
WAIT_S: Final = 120.0
# Seconds that servers have to answer what they were asked, when a store is taken down.
GRACE_S: Final = 5.0
_ANSWER_S: Final = 10.0
# So often `up` asks Ray what it is waiting for; changes at the directory it hears of at once.
_LOOK_S: Final = 1.0
# A server whose start fails so often in a row has `up` give up: its reason will not go away.
_FAILED_STARTS: Final = 3
_GONE_S: Final = 30.0

_NICE: Final = (
    "servers give way to everything else on their hosts, as Ray starts them, and Penstock may not "
    "change it: start Ray with RAY_worker_niceness=0 in the environment"
)

Say = Callable[[str], None]


def up(
    name: str,
    parts: str | os.PathLike[str],
    replicas: int = 1,
    num_workers: int | Literal["auto"] = 1,
    resources: Mapping[str, float | str] | None = None,
    *,
    serve_options: Sequence[str] = (),
    replace: bool = False,
    wait: float = WAIT_S,
    progress: Say | None = None,
) -> StoreStatus:
    """Bring up a store on Ray; return when all of its servers serve.

    If the store is up already, as it is asked for here, it is left as it is, and what it lacks is
    added. If this fails, or is interrupted, what it has begun is taken down again.

    Args:
        name: The store's name: readers connect to "ray:NAME".
        parts: The folder of all parts of a graph, which every host reaches by the same path.
        replicas: How many servers each part has. They are never on one host.
        num_workers: Workers of each server. Batches of a store are put together where they are
            read, by workers there, so one suffices.
        resources: What Ray reserves for each server on its host; by default one CPU. "memory" may
            be a size such as "8GB".
        serve_options: Further options of `penstock serve`, as they are typed.
        replace: Take a store of this name down first if it is another one than asked for here. Its
            certificates are kept, so that readers go on if the graph is the same.
        wait: Seconds to wait until all servers serve.
        progress: Called with a line of text whenever something else is waited for.

    Returns:
        The store as it is now.

    Raises:
        ValueError: An argument is not valid, or a store of this name is up, and another one.
        GraphFormatError: The folder is no folder of all parts of a graph.
        PenstockError: No Ray cluster can be reached; or the servers were not up in time, and the
            error says what is waiting for what.

    Examples:
        >>> from penstock import cluster
        >>> store = cluster.up("products", "parts/", replicas=2)  # doctest: +SKIP
        >>> store.is_up  # doctest: +SKIP
        True
    """
    plan = plan_of(name, parts, replicas, num_workers, resources, serve_options)
    deadline, say = Deadline(positive_seconds(wait, "wait")), progress or _say_nothing
    with session.session() as ray:
        credentials = None
        if (there := _plan_of_store(ray, name)) is not None:
            if there[0] == plan:
                say(f"the store {name} is up already: looking whether it lacks anything")
                _make(ray, plan, there[1])
                return _wait_until_up(ray, plan, deadline, say)
            if not replace:
                raise ValueError(
                    f"name is {name!r}: a store of that name is up, with "
                    f"{', '.join(plan.differences(there[0]))}; take it down first (penstock down "
                    f"{name}), or replace it (replace=True)"
                )
            credentials = there[1]
            say(f"taking down the store {name} as it is")
        _take_down(ray, name, GRACE_S)
        credentials = credentials or make_credentials()
        _claim(ray, plan, credentials)
        try:
            _make(ray, plan, credentials)
            return _wait_until_up(ray, plan, deadline, say)
        except BaseException:
            _take_down(ray, name, 0.0)
            raise


def down(name: str, grace: float = GRACE_S) -> None:
    """Take a store on Ray down; return when nothing of it is left.

    Args:
        name: The store's name.
        grace: Seconds that servers have to answer what they were asked.

    Raises:
        ValueError: There is no store of this name; the error names those that there are.
        PenstockError: No Ray cluster can be reached, or something of the store does not end.

    Examples:
        >>> from penstock import cluster
        >>> cluster.down("products")  # doctest: +SKIP
    """
    check_name(name)
    with session.session() as ray:
        if not _take_down(ray, name, grace):
            session.directory_of(ray, name)  # which says what there is instead


def status(name: str) -> StoreStatus:
    """Return how a store on Ray is: where its servers are, and what others wait for.

    Args:
        name: The store's name.

    Raises:
        ValueError: There is no store of this name; the error names those that there are.
        PenstockError: No Ray cluster can be reached, or the store's directory does not answer.

    Examples:
        >>> from penstock import cluster
        >>> for server in cluster.status("products").servers:  # doctest: +SKIP
        ...     print(server.label, server.state, server.address)
        part 0, replica 0 serving tls://10.0.0.4:41467
        part 1, replica 0 serving tls://10.0.0.5:43383
    """
    check_name(name)
    with session.session() as ray:
        found = _plan_of_store(ray, name)
        if found is None:
            session.directory_of(ray, name)  # which says what there is instead
            raise PenstockError(f"the directory of the store {name} does not answer")
        return _status(ray, found[0], _look(ray, name))


def names() -> list[str]:
    """Return the names of all stores on this Ray cluster.

    Raises:
        PenstockError: No Ray cluster can be reached.

    Examples:
        >>> from penstock import cluster
        >>> cluster.names()  # doctest: +SKIP
        ['products']
    """
    with session.session() as ray:
        return session.store_names(ray)


def _say_nothing(text: str) -> None:
    pass


# --- making ----------------------------------------------------------------------------------


def _plan_of_store(ray: Any, name: str) -> tuple[StorePlan, Credentials] | None:
    """Return what a store is to be; None if there is none, or a part of one without directory."""
    try:
        directory = ray.get_actor(name, namespace=session.NAMESPACE)
    except ValueError:
        return None
    try:
        found: tuple[StorePlan, Credentials] = ray.get(directory.plan.remote(), timeout=_ANSWER_S)
    except ray.exceptions.RayError as error:
        raise PenstockError(f"the directory of the store {name} does not answer: {error}") from None
    return found


def _claim(ray: Any, plan: StorePlan, credentials: Credentials) -> None:
    """Make the directory, which has the store's name: of two that bring it up, one fails."""
    try:
        _make_actor(ray, Directory, plan.name, (plan, credentials), strategy=_near_control(ray))
    except ValueError:
        raise PenstockError(
            f"somebody else is bringing up the store {plan.name}: see "
            f"penstock status ray:{plan.name}"
        ) from None


def _make(ray: Any, plan: StorePlan, credentials: Credentials) -> None:
    """Make what the store does not have yet: places for servers, and their parents."""
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    there = set(session.actor_names(ray))
    groups = {part: _places(ray, plan, part) for part in range(plan.num_parts)}
    for part, replica in plan.servers:
        name = session.server_name(plan.name, part, replica)
        if name not in there:
            place = PlacementGroupSchedulingStrategy(groups[part], replica)
            _make_actor(ray, ServerActor, name, (plan, credentials, part, replica), strategy=place)


def _make_actor(
    ray: Any, kind: type[Any], name: str, arguments: Sequence[Any], strategy: Any
) -> None:
    options = {
        "name": name,
        "namespace": session.NAMESPACE,
        "lifetime": "detached",
        "max_restarts": -1,
        "num_cpus": 0,  # what a server needs its place has
        "scheduling_strategy": strategy,
        # Readers wait at the directory, one call each.
        "max_concurrency": 10_000 if kind is Directory else 8,
        "get_if_exists": kind is not Directory,
    }
    with _unwarned():
        ray.remote(kind).options(**options).remote(*arguments)


@contextmanager
def _unwarned() -> Iterator[None]:
    """Keep Ray from warning of actors whose places are removed first: ours are ended before."""

    def is_other(record: logging.LogRecord) -> bool:
        return "with a placement group" not in record.getMessage()

    logger = logging.getLogger("ray.actor")
    logger.addFilter(is_other)
    try:
        yield
    finally:
        logger.removeFilter(is_other)


def _near_control(ray: Any) -> Any:
    """Return the strategy that has an actor where Ray's control plane is, or anywhere."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    if (head := session.head_node(ray)) is None:
        return "DEFAULT"
    return NodeAffinitySchedulingStrategy(head, soft=True)


def _places(ray: Any, plan: StorePlan, part: int) -> Any:
    """Return the placement group of a part; make it if there is none."""
    name = session.group_name(plan.name, part)
    if (there := session.groups_of(ray, plan.name).get(name)) is not None:
        return _group(there)
    return ray.util.placement_group(
        [plan.resources] * plan.replicas, strategy="STRICT_SPREAD", name=name, lifetime="detached"
    )


def _group(row: Mapping[str, Any]) -> Any:
    # Not by its name: Ray looks names up in the namespace of this process alone.
    from ray import PlacementGroupID
    from ray.util.placement_group import PlacementGroup

    return PlacementGroup(PlacementGroupID(bytes.fromhex(row["placement_group_id"])))


# --- waiting ---------------------------------------------------------------------------------


def _wait_until_up(ray: Any, plan: StorePlan, deadline: Deadline, say: Say) -> StoreStatus:
    look, told = Look(stamp="", reports=()), ""
    while True:
        wait = Deadline(_LOOK_S).or_sooner(deadline)
        look = _look(ray, plan.name, look.stamp, wait.remaining or 0.0)
        now = _status(ray, plan, look)
        if now.is_up:
            if any(each.niceness > 0 for each in now.servers):
                say(_NICE)
            return now
        words = "; ".join(_waits(now))
        if words != told:
            told = words
            serving = sum(each.state == SERVING for each in now.servers)
            say(f"{serving} of {len(now.servers)} servers serve; {words}")
        hopeless = [each for each in look.reports if _is_hopeless(each)]
        if hopeless:
            raise PenstockError(f"the store {plan.name} cannot be brought up: {words}")
        if deadline.passed:
            raise PenstockError(f"the store {plan.name} is not up in time (setting: wait): {words}")


def _is_hopeless(report: Report) -> bool:
    return report.state == FAILING and report.failures >= _FAILED_STARTS


def _look(ray: Any, name: str, stamp: str = "", seconds: float = 0.0) -> Look:
    """Ask the directory; an empty look if it does not answer yet."""
    try:
        directory = ray.get_actor(name, namespace=session.NAMESPACE)
        asked = directory.look.remote(stamp, seconds)
        look: Look = ray.get(asked, timeout=seconds + _ANSWER_S)
        return look
    except (ray.exceptions.RayError, ValueError):
        return Look(stamp="", reports=())


def _waits(now: StoreStatus) -> Iterator[str]:
    """Yield what servers that do not serve wait for; those that wait for the same together."""
    by_reason: dict[str, list[str]] = {}
    for each in now.servers:
        if each.state != SERVING:
            reason = each.trouble or f"{each.state} on {each.host}"
            by_reason.setdefault(reason, []).append(each.label)
    for reason, labels in by_reason.items():
        more = f" and {len(labels) - 3} more" if len(labels) > 3 else ""
        yield f"{', '.join(labels[:3])}{more}: {reason}"


# --- looking ---------------------------------------------------------------------------------


def _status(ray: Any, plan: StorePlan, look: Look) -> StoreStatus:
    reports = {(each.part, each.replica): each for each in look.reports}
    alive = {str(node["NodeID"]) for node in ray.nodes() if node["Alive"]}
    groups = session.groups_of(ray, plan.name)
    servers = []
    for part, replica in plan.servers:
        report = reports.get((part, replica))
        if report is None or report.node not in alive:
            group = groups.get(session.group_name(plan.name, part))
            trouble = _told_waiting(ray, plan, group)
            servers.append(ServerStatus(part=part, replica=replica, state=WAITING, trouble=trouble))
        else:
            servers.append(_status_of(report))
    return StoreStatus(plan=plan, servers=tuple(servers))


def _status_of(report: Report) -> ServerStatus:
    return ServerStatus(
        part=report.part,
        replica=report.replica,
        state=report.state,
        address=report.address or None,
        host=report.host,
        node=report.node,
        pid=report.pid or None,
        starts=report.starts,
        niceness=report.niceness,
        trouble=report.trouble,
    )


def _told_waiting(ray: Any, plan: StorePlan, group: Mapping[str, Any] | None) -> str:
    """Say what a server that has not reported waits for."""
    if group is None or group["state"] == "CREATED":
        return "Ray is starting its parent"
    hosts = "a host" if plan.replicas == 1 else f"{plan.replicas} hosts, one for each replica,"
    needed = f"{hosts} with {told_resources(plan.resources)}"
    free, total = ray.available_resources(), ray.cluster_resources()
    had = ", ".join(
        f"{name} {free.get(name, 0.0):g} of {total.get(name, 0.0):g}" for name in plan.resources
    )
    count = sum(1 for node in ray.nodes() if node["Alive"])
    return f"waits for {needed} free; Ray has {count} hosts, and free on all of them {had}"


# --- taking down -----------------------------------------------------------------------------


def _take_down(ray: Any, name: str, grace: float) -> bool:
    """End all actors of a store, and give its places back; return whether there was anything."""
    actors = _actors_of(ray, name)
    groups = session.groups_of(ray, name)
    if grace:
        _ask_to_end(ray, [each for each in actors if each != name], grace)
    for each in actors:
        with suppress(ValueError, ray.exceptions.RayError):
            ray.kill(ray.get_actor(each, namespace=session.NAMESPACE), no_restart=True)
    for row in groups.values():
        ray.util.remove_placement_group(_group(row))
    deadline = Deadline(_GONE_S)
    while _actors_of(ray, name) or session.groups_of(ray, name):
        if deadline.passed:
            left = ", ".join([*_actors_of(ray, name), *session.groups_of(ray, name)])
            raise PenstockError(f"Ray does not let go of {left}")
        time.sleep(0.02)
    return bool(actors or groups)


def _ask_to_end(ray: Any, actors: Sequence[str], grace: float) -> None:
    """Have servers end; those whose parents Ray is restarting have ended already."""
    asked = []
    for each in actors:
        with suppress(ValueError, ray.exceptions.RayError):
            asked.append(ray.get_actor(each, namespace=session.NAMESPACE).end.remote(grace))
    if asked:
        ray.wait(asked, num_returns=len(asked), timeout=grace + 1.0)


def _actors_of(ray: Any, name: str) -> list[str]:
    """Return the names of a store's actors, the directory first."""
    return [
        each for each in session.actor_names(ray) if each == name or each.startswith(f"{name}/")
    ]
