"""How a store on Ray is: what its servers report, and what is told about it. Plain data."""

from __future__ import annotations

import msgspec

from penstock.cluster.plan import StorePlan

WAITING = "waiting"  # for Ray to find a host, or to start its actor there
STARTING = "starting"
SERVING = "serving"
FAILING = "failing"  # its process ended, or has not started; it is tried again
ENDING = "ending"


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What a server's parent says about it.

    Attributes:
        part: Its part.
        replica: Its number among the servers that have this part, from 0.
        state: "starting", "serving", "failing" or "ending".
        address: Where it listens; empty if it does not.
        host: The address of its host, as Ray knows it.
        node: Ray's id of its host.
        pid: The process that serves; 0 if there is none.
        starts: How often this parent has started it.
        failures: How many starts in a row have failed, or did not last.
        niceness: How far it gives way to other processes of its host.
        trouble: Why it ended last; empty if it has not.
    """

    part: int
    replica: int
    state: str
    address: str
    host: str
    node: str
    pid: int
    starts: int
    failures: int
    niceness: int
    trouble: str


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """What the directory knows at one moment.

    Attributes:
        stamp: Changes whenever anything else does.
        reports: The latest report of each server that has reported.
    """

    stamp: str
    reports: tuple[Report, ...]

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses of all servers that have one."""
        return tuple(each.address for each in self.reports if each.address)


class ServerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One server of a store on Ray.

    Attributes:
        part: Its part.
        replica: Its number among the servers that have this part, from 0.
        state: "waiting" for Ray, "starting", "serving", "failing" or "ending".
        address: Where it listens; None if it does not.
        host: The address of its host, as Ray knows it; None if it has none.
        node: Ray's id of its host; None if it has none.
        pid: The process that serves there; None if there is none.
        starts: How often it was started on this host.
        niceness: How far it gives way to other processes there; 0 is usual.
        trouble: What it waits for, or why it ended last.

    Examples:
        >>> from penstock.cluster import ServerStatus
        >>> ServerStatus(part=0, replica=1, state="waiting").label
        'part 0, replica 1'
    """

    part: int
    replica: int
    state: str
    address: str | None = None
    host: str | None = None
    node: str | None = None
    pid: int | None = None
    starts: int = 0
    niceness: int = 0
    trouble: str = ""

    @property
    def label(self) -> str:
        """Its name for people."""
        return f"part {self.part}, replica {self.replica}"


class StoreStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A store on Ray at one moment.

    Attributes:
        plan: What was asked for.
        servers: All servers that it is to have, by part and replica.

    Examples:
        >>> from penstock.cluster import ServerStatus, StorePlan, StoreStatus
        >>> plan = StorePlan(
        ...     name="products",
        ...     folder="/shared/parts",
        ...     num_parts=1,
        ...     replicas=1,
        ...     num_workers=1,
        ...     resources={"CPU": 1.0},
        ... )
        >>> status = StoreStatus(
        ...     plan=plan, servers=(ServerStatus(part=0, replica=0, state="waiting"),)
        ... )
        >>> status.is_up, status.missing
        (False, (0,))
    """

    plan: StorePlan
    servers: tuple[ServerStatus, ...]

    @property
    def name(self) -> str:
        """Its name; readers connect to "ray:NAME"."""
        return self.plan.name

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where its servers listen."""
        return tuple(each.address for each in self.servers if each.address is not None)

    @property
    def is_up(self) -> bool:
        """Whether all of its servers serve."""
        return all(each.state == SERVING for each in self.servers)

    @property
    def missing(self) -> tuple[int, ...]:
        """The parts that no server serves."""
        there = {each.part for each in self.servers if each.state == SERVING}
        return tuple(part for part in range(self.plan.num_parts) if part not in there)
