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
# Seconds in which the directory answers, also if Ray has to make it anew; and if not.
_ANSWER_S: Final = 30.0
_SOON_S: Final = 5.0
_PAUSE_S: Final = 0.1
# So often `up` asks Ray what it is waiting for; changes at the directory it hears of at once.
_LOOK_S: Final = 1.0
# A server whose start fails so often in a row has `up` give up: its reason will not go away.
_FAILED_STARTS: Final = 3
# Seconds that Ray may take to end actors and to remove their places.
_GONE_S: Final = 30.0

_NICE: Final = (
    "servers give way to everything else on their hosts, as Ray starts them, and Penstock may not "
    "change it: start Ray with RAY_worker_niceness=0 in the environment"
)

_GIVEN_UP: Final = (
    "Ray has given its parent up (is the same version of Penstock on all hosts? Ray's logs say "
    "more); penstock up makes it anew"
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
        claimed = _claim(ray, plan, credentials)
        try:
            _take_down(ray, name, GRACE_S, but=(name,))  # what somebody who was interrupted left
            _make(ray, plan, credentials)
            return _wait_until_up(ray, plan, deadline, say)
        except BaseException:
            if _is_there(ray, name, claimed):  # nobody has taken it down, and made another
                _take_down(ray, name, 0.0)
            raise


def down(name: str, grace: float = GRACE_S) -> None:
    """Take a store on Ray down; return when nothing of it is left.

    Args:
        name: The store's name.
        grace: Seconds that servers have to answer what they were asked.

    Raises:
        ValueError: There is no store of this name, and the error names those that there are; or
            `grace` is not valid.
        PenstockError: No Ray cluster can be reached, or something of the store does not end.

    Examples:
        >>> from penstock import cluster
        >>> cluster.down("products")  # doctest: +SKIP
    """
    check_name(name)
    if not 0.0 <= grace < float("inf"):
        raise ValueError(f"grace is {grace!r}; expected seconds from 0")
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
        part 0 replica 0 serving tls://10.0.0.4:41467
        part 1 replica 0 serving tls://10.0.0.5:43383
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
    deadline = Deadline(_ANSWER_S)
    while True:
        try:
            directory = ray.get_actor(name, namespace=session.NAMESPACE)
        except ValueError:
            return None
        try:
            asked = directory.plan.remote()
            found: tuple[StorePlan, Credentials] = ray.get(asked, timeout=deadline.remaining)
            return found
        except ray.exceptions.RayError as error:  # Ray may be making it anew
            if deadline.passed:
                raise PenstockError(
                    f"the directory of the store {name} does not answer: {error}"
                ) from None
            time.sleep(_PAUSE_S)


def _claim(ray: Any, plan: StorePlan, credentials: Credentials) -> Any:
    """Make the directory, which has the store's name: of two that bring it up, one fails."""
    place = {"resources": session.at_head(ray)}
    try:
        return _make_actor(ray, Directory, plan.name, (plan, credentials), **place)
    except ray.exceptions.ActorAlreadyExistsError:
        raise PenstockError(
            f"somebody else is bringing up the store {plan.name}: see "
            f"penstock status ray:{plan.name}"
        ) from None


def _is_there(ray: Any, name: str, directory: Any) -> bool:
    """Return whether a directory still has the store's name."""
    try:
        return bool(ray.get_actor(name, namespace=session.NAMESPACE) == directory)
    except ValueError:
        return False


def _make(ray: Any, plan: StorePlan, credentials: Credentials) -> None:
    """Make what the store does not have yet: places for servers, and their parents."""
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    there = set(session.actor_names(ray))
    groups = {part: _places(ray, plan, part) for part in range(plan.num_parts)}
    for part, replica in plan.servers:
        name = session.server_name(plan.name, part, replica)
        if name not in there:
            _forget(ray, plan.name, part, replica)
            place = PlacementGroupSchedulingStrategy(groups[part], replica)
            arguments = (plan, credentials, part, replica)
            _make_actor(ray, ServerActor, name, arguments, scheduling_strategy=place)


def _forget(ray: Any, name: str, part: int, replica: int) -> None:
    """Have the directory forget what a former parent of a server said."""
    with suppress(ValueError, ray.exceptions.RayError):
        directory = ray.get_actor(name, namespace=session.NAMESPACE)
        ray.get(directory.forget.remote(part, replica), timeout=_SOON_S)


def _make_actor(
    ray: Any, kind: type[Any], name: str, arguments: Sequence[Any], **place: Any
) -> Any:
    options = {
        "name": name,
        "namespace": session.NAMESPACE,
        "lifetime": "detached",
        "max_restarts": -1,
        "num_cpus": 0,  # what a server needs its place has
        # Readers wait at the directory, one call each.
        "max_concurrency": 10_000 if kind is Directory else 8,
        "get_if_exists": kind is not Directory,
        **place,
    }
    with _unwarned():
        return ray.remote(kind).options(**options).remote(*arguments)


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


def _places(ray: Any, plan: StorePlan, part: int) -> Any:
    """Return the placement group of a part; make it if there is none."""
    name = session.group_name(plan.name, part)
    if (there := session.groups_of(ray, plan.name).get(name)) is not None:
        return _group(there)
    places = [plan.resources] * plan.replicas
    try:
        return ray.util.placement_group(places, "STRICT_SPREAD", name, "detached")
    except ray.exceptions.RaySystemError:
        if (there := session.groups_of(ray, plan.name).get(name)) is None:
            raise
        return _group(there)  # somebody else brings up the same store at the same time


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
        if not look.stamp:
            time.sleep(_PAUSE_S)
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
        if not look.stamp and plan.name not in session.actor_names(ray):
            raise PenstockError(f"the store {plan.name} was taken down meanwhile")
        if any(each.trouble == _GIVEN_UP for each in now.servers) or any(
            map(_is_hopeless, look.reports)
        ):
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
        look: Look = ray.get(asked, timeout=seconds + _SOON_S)
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
    groups, parents = session.groups_of(ray, plan.name), session.actor_names(ray)
    servers = []
    for part, replica in plan.servers:
        report = reports.get((part, replica))
        if session.server_name(plan.name, part, replica) not in parents:
            lost = ServerStatus(part=part, replica=replica, state=WAITING, trouble=_GIVEN_UP)
            servers.append(lost)
        elif report is None or report.node not in alive:
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
    had, all_of_it = (
        told_resources({name: known.get(name, 0.0) for name in plan.resources})
        for known in (free, total)
    )
    count = sum(1 for node in ray.nodes() if node["Alive"])
    told = f"{count} host" + ("s" if count != 1 else "")
    return f"waits for {needed} free; Ray has {told} with {all_of_it} in all, of which {had} free"


# --- taking down -----------------------------------------------------------------------------


def _take_down(ray: Any, name: str, grace: float, but: Sequence[str] = ()) -> bool:
    """End all actors of a store, and give its places back; return whether there was anything.

    The directory is the first. If this is interrupted afterwards, there is no store of that name,
    and whoever brings it up removes the rest.
    """
    actors = _actors_of(ray, name, but)
    groups = session.groups_of(ray, name)
    _kill(ray, [each for each in actors if each == name])
    servers = [each for each in actors if each != name]
    if grace:
        _ask_to_end(ray, servers, grace)
    _kill(ray, servers)
    for row in groups.values():
        ray.util.remove_placement_group(_group(row))
    deadline = Deadline(_GONE_S)
    while left := [*_actors_of(ray, name, but), *session.groups_of(ray, name)]:
        if deadline.passed:
            raise PenstockError(f"Ray does not let go of {', '.join(left)}")
        time.sleep(_PAUSE_S)
    return bool(actors or groups)


def _kill(ray: Any, actors: Sequence[str]) -> None:
    for each in actors:
        with suppress(ValueError, ray.exceptions.RayError):
            ray.kill(ray.get_actor(each, namespace=session.NAMESPACE), no_restart=True)


def _ask_to_end(ray: Any, actors: Sequence[str], grace: float) -> None:
    """Have servers end; those whose parents Ray is restarting have ended already."""
    asked = []
    for each in actors:
        with suppress(ValueError, ray.exceptions.RayError):
            asked.append(ray.get_actor(each, namespace=session.NAMESPACE).end.remote(grace))
    if asked:
        ray.wait(asked, num_returns=len(asked), timeout=grace + 1.0)


def _actors_of(ray: Any, name: str, but: Sequence[str] = ()) -> list[str]:
    """Return the names of a store's actors, the directory first."""
    return [
        each
        for each in session.actor_names(ray)
        if (each == name or each.startswith(f"{name}/")) and each not in but
    ]
