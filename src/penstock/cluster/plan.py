"""What a store on Ray is to be: which parts, how many replicas, what each server gets."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from penstock.client.sizes import parse_bytes
from penstock.errors import GraphFormatError

# Slashes separate the name of a store from those of its servers.
_NAME: Final = re.compile(r"[A-Za-z0-9][\w.-]{0,62}")
_RESOURCE: Final = re.compile(r"[A-Za-z_][\w.:-]*")
_MEMORY: Final = "memory"
# Options of `penstock serve` that its parent gives, or that are not for a server that Ray places.
_OWN: Final = (
    "--bind --workers --certificate --key --client-ca --tokens --allow-plaintext --allow-anyone "
    "--store --store-ca --store-server-name --unix --listen-fd --until-eof --json "
    "--exit-by-ranks --part-only"
)


class StorePlan(msgspec.Struct, frozen=True, kw_only=True):
    """A store as it was asked for.

    Attributes:
        name: Its name; readers connect to "ray:NAME".
        folder: The folder of its parts, the same on every host.
        num_parts: How many parts it has.
        replicas: How many servers each part has, on as many hosts.
        num_workers: Workers of each server.
        resources: What Ray reserves for each server on its host.
        serve_options: Further options of `penstock serve`.
        cut: Which graph the parts are of, and how it was cut, as part 0 says.

    Examples:
        >>> from penstock.cluster import StorePlan
        >>> plan = StorePlan(
        ...     name="products",
        ...     folder="/shared/parts",
        ...     num_parts=2,
        ...     replicas=1,
        ...     num_workers=1,
        ...     resources={"CPU": 1.0},
        ... )
        >>> list(plan.servers), plan.part_folder(1)
        ([(0, 0), (1, 0)], '/shared/parts/part-1')
    """

    name: str
    folder: str
    num_parts: int
    replicas: int
    num_workers: int | Literal["auto"]
    resources: dict[str, float]
    serve_options: tuple[str, ...] = ()
    cut: str = ""

    @property
    def servers(self) -> Iterator[tuple[int, int]]:
        """Each server, as its part and its replica."""
        return (
            (part, replica) for part in range(self.num_parts) for replica in range(self.replicas)
        )

    def part_folder(self, part: int) -> str:
        """Return the folder of a part.

        Args:
            part: The number of the part.
        """
        return os.path.join(self.folder, f"part-{part}")

    def differences(self, other: StorePlan) -> list[str]:
        """Return what another plan has differently, in words: "replicas 2 instead of 1".

        Args:
            other: The other plan.
        """
        return [
            f"{field} {_told(getattr(other, field))} instead of {_told(getattr(self, field))}"
            for field in self.__struct_fields__
            if getattr(self, field) != getattr(other, field)
        ]


def plan_of(
    name: str,
    parts: str | os.PathLike[str],
    replicas: int,
    num_workers: int | Literal["auto"],
    resources: Mapping[str, float | str] | None,
    serve_options: Sequence[str],
) -> StorePlan:
    """Return the plan that a user asks for.

    Raises:
        ValueError: An argument is not valid.
        GraphFormatError: The folder is no folder of all parts of a graph.
    """
    check_name(name)
    if not _is_count(replicas):
        raise ValueError(f"replicas is {replicas!r}; expected a number from 1")
    if not (num_workers == "auto" or _is_count(num_workers)):
        raise ValueError(f"num_workers is {num_workers!r}; expected a number from 1, or 'auto'")
    folder = Path(parts).absolute()
    num_parts = _parts_of(folder)
    return StorePlan(
        name=name,
        folder=str(folder),
        num_parts=num_parts,
        replicas=replicas,
        num_workers=num_workers,
        resources=_checked_resources(resources),
        serve_options=_checked_options(serve_options),
        cut=_cut_of(folder / "part-0"),
    )


def _is_count(given: Any) -> bool:
    return isinstance(given, int) and not isinstance(given, bool) and given >= 1


def check_name(name: Any) -> None:
    """Raise ValueError unless this can be the name of a store."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(f"name is {name!r}; expected up to 63 letters, digits, '-', '_' and '.'")


def _parts_of(folder: Path) -> int:
    from penstock.graph.partition.partition import parts_in  # which parents of servers do not need

    found = parts_in(folder)
    numbers = [int(each.name.removeprefix("part-")) for each in found]
    if not found:
        if not folder.is_dir():
            raise GraphFormatError(
                f"{folder} is not here: parts must be in a folder that every host reaches by the "
                "same path, this one included"
            )
        raise GraphFormatError(
            f"{folder} has no parts: cut the graph first (penstock partition GRAPH {folder} -n 2)"
        )
    if numbers != list(range(len(numbers))):
        missing = sorted(set(range(max(numbers) + 1)) - set(numbers))
        raise GraphFormatError(f"{folder} lacks part-{missing[0]}")
    return len(found)


def _cut_of(part: Path) -> str:
    from penstock.graph import Graph  # see above

    with Graph.open(part) as graph:
        return "" if graph.part is None else graph.part.cut


def _checked_resources(given: Mapping[Any, Any] | None) -> dict[str, float]:
    if given is None:
        return {"CPU": 1.0}
    found: dict[str, float] = {}
    for name, amount in given.items():
        if not isinstance(name, str) or not _RESOURCE.fullmatch(name):
            raise ValueError(f"resources has {name!r}; expected a name, such as 'CPU' or 'memory'")
        found[name] = _amount(name, amount)
    if not found:
        raise ValueError("resources is empty; expected at least one: Ray places servers by them")
    return found


def _amount(name: str, given: Any) -> float:
    if name == _MEMORY:
        return float(parse_bytes(given if isinstance(given, str) else int(given), "memory"))
    try:
        amount = float(given)
    except (TypeError, ValueError):
        amount = 0.0
    if not 0.0 < amount < float("inf"):
        raise ValueError(f"resources has {name}={given!r}; expected a number above 0")
    return amount


def _checked_options(given: Sequence[str]) -> tuple[str, ...]:
    if isinstance(given, str):
        raise ValueError(f"serve_options is {given!r}; expected a list: ['--lease', '10']")
    for each in given:
        if each.split("=")[0] in _OWN.split():
            raise ValueError(f"serve_options has {each}, which is given to each server already")
    return tuple(given)


def _told(value: Any) -> str:
    if isinstance(value, dict):
        return told_resources(value)
    return " ".join(value) or "none" if isinstance(value, tuple) else str(value)


def told_resources(resources: Mapping[str, float]) -> str:
    """Return resources in words: "CPU 1, memory 2 GB"."""
    return ", ".join(
        f"{name} {amount / (1 << 30):.3g} GB" if name == _MEMORY else f"{name} {amount:g}"
        for name, amount in resources.items()
    )
