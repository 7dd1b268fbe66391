"""Performs tasks on Ray: each in some process on some host, and again if that process dies.

It knows nothing of what tasks do. Answers are small; what tasks make is in files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, Self

from penstock.cluster import session
from penstock.errors import PenstockError

# How often a task is performed again whose process, or host, has died.
_RETRIES: Final = 3
# Seconds after which it is looked again whether anybody wants this to end.
_LOOK_S: Final = 1.0
_CANCEL_S: Final = 10.0
# Of what Ray gives to a CPU; Ray's own object store, and the pages of files, need some as well.
_SHARE: Final = 2
_LEAST: Final = 64 << 20


class RayTasks:
    """Ray, as something that performs tasks.

    Args:
        address: The cluster; None: the one that RAY_ADDRESS names, or this host's.

    Raises:
        PenstockError: No Ray cluster can be reached, or it has no CPU.
    """

    def __init__(self, address: str | None = None) -> None:
        self._address = address
        self._ray: Any = None
        self._memory = 0

    def __enter__(self) -> Self:
        self._ray = session.begin(self._address)
        try:
            if not self._hosts():
                raise PenstockError("Ray has no host with a CPU: tasks of a build take one each")
        except BaseException:
            session.end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        session.end()

    @property
    def cpus(self) -> int:
        """How many tasks are performed at a time."""
        return sum(cpus for cpus, _ in self._hosts())

    @property
    def memory(self) -> int:
        """What a task may use: half of a CPU's share, on the host where that is least."""
        return max(_LEAST, min(memory // cpus for cpus, memory in self._hosts()) // _SHARE)

    def reserve(self, memory: int) -> None:
        """Have Ray give so many bytes of memory to each task.

        Raises:
            ValueError: No host has so many.
        """
        most = max(there for _, there in self._hosts())
        if memory > most:
            raise ValueError(
                f"memory is {memory >> 20} MiB, which each task takes, and no host of Ray's has "
                f"more than {most >> 20} MiB for tasks: give less"
            )
        self._memory = memory

    def _hosts(self) -> list[tuple[int, int]]:
        """Return the CPUs and the memory of hosts that have any."""
        found = [each["Resources"] for each in self._ray.nodes() if each["Alive"]]
        return [
            (int(each["CPU"]), int(each.get("memory", 0)))
            for each in found
            if int(each.get("CPU", 0)) > 0
        ]

    def put(self, value: Any) -> Any:
        """Return something that stands for a value that many tasks are called with."""
        return self._ray.put(value)

    def run(self, calls: Sequence[Any], done: Callable[[int], object]) -> list[Any]:
        """Perform tasks, and return their answers in order; see `penstock.ingest.tasks.runner`."""
        task = self._ray.remote(num_cpus=1, max_retries=_RETRIES, scheduling_strategy="SPREAD")(
            _called
        )
        refs = [
            task.options(name=call.name, memory=self._memory).remote(call.function, *call.args)
            for call in calls
        ]
        try:
            return self._answers(calls, refs, done)
        except BaseException:
            self._cancel(refs)
            raise

    def _answers(
        self, calls: Sequence[Any], refs: Sequence[Any], done: Callable[[int], object]
    ) -> list[Any]:
        """Wait for answers. Of several errors, the first is raised: that of the earliest task."""
        places = {ref: place for place, ref in enumerate(refs)}
        found: list[Any] = [None] * len(refs)
        failed: dict[int, BaseException] = {}
        pending = list(refs)
        while pending:
            ended, pending = self._ray.wait(pending, timeout=_LOOK_S)
            for ref in ended:
                place = places[ref]
                try:
                    found[place] = self._answer(calls[place], ref)
                except Exception as error:
                    failed[place] = error
                    continue
                if calls[place].then is not None:
                    calls[place].then(found[place])
                done(calls[place].nbytes)
            if failed:
                first = min(failed)
                pending = [ref for ref in pending if places[ref] < first]
        if failed:
            raise failed[min(failed)]
        return found

    def _answer(self, call: Any, ref: Any) -> Any:
        errors = self._ray.exceptions
        try:
            return self._ray.get(ref)
        except errors.RayTaskError as error:
            cause = error.cause
            if not isinstance(cause, Exception):  # one that Ray could not bring here as it is
                cause = PenstockError(f"the task {call.name!r} has failed: {error}")
        except errors.RayError as error:
            what = str(error).strip().partition("\n")[0]
            cause = PenstockError(
                f"Ray could not perform the task {call.name!r}, which it has tried "
                f"{_RETRIES + 1} times: {what}"
            )
        # Where in another process it was raised is nothing to users.
        cause.__cause__ = None
        cause.__suppress_context__ = True
        raise cause from None

    def _cancel(self, refs: Sequence[Any]) -> None:
        """End tasks, and wait until they have: their files are about to be removed."""
        with suppress(Exception):
            _, pending = self._ray.wait(list(refs), num_returns=len(refs), timeout=0)
            for ref in pending:
                self._ray.cancel(ref, force=True)
            if pending:
                self._ray.wait(pending, num_returns=len(pending), timeout=_CANCEL_S)


def _called(function: Callable[..., Any], *args: Any) -> Any:
    return function(*args)
