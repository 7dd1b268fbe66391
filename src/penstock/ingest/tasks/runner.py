"""Who performs the tasks of a build, as the build sees them."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final, Protocol, cast

# Named, since it knows Ray, and is in a layer above this one.
_ON_RAY: Final = "penstock.cluster.tasks:RayTasks"


@dataclass(frozen=True)
class Call:
    """A task that is to be performed.

    Attributes:
        name: What it is called in errors and in Ray's lists.
        function: A function of a module.
        args: What it is called with; what `Runner.put` has returned is replaced by what that was.
        nbytes: How much it reads, about.
        then: Called with its answer, once it is there, in the process that wanted it performed.
    """

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    nbytes: int
    then: Callable[[Any], object] | None = None


class Runner(Protocol):
    """Performs tasks, each in whichever process there is.

    A task whose process died is performed again: it may be performed twice, even at the same time.
    """

    @property
    def cpus(self) -> int:
        """How many tasks are performed at a time."""
        ...

    @property
    def memory(self) -> int:
        """How many bytes of memory a task may use, if nothing else is said."""
        ...

    def reserve(self, memory: int) -> None:
        """Take note of how many bytes each task will use.

        Raises:
            ValueError: No host has so many.
        """
        ...

    def put(self, value: Any) -> Any:
        """Return something that stands for a value that many tasks are called with."""
        ...

    def run(self, calls: Sequence[Call], done: Callable[[int], object]) -> list[Any]:
        """Perform tasks, and return their answers in order.

        Args:
            calls: The tasks.
            done: Called with `nbytes` of each that has been performed.

        Raises:
            Exception: That of the first task, in order, that has raised one.
            PenstockError: A task's process died again and again.
        """
        ...


def on_ray(address: str | None) -> AbstractContextManager[Runner]:
    """Return what performs tasks on a Ray cluster: the one at an address, or this host's."""
    module, name = _ON_RAY.split(":")
    found = getattr(importlib.import_module(module), name)(address)
    return cast("AbstractContextManager[Runner]", found)
