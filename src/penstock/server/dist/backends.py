"""The backends of a server, by key and by number. Thread-safe.

    (none) ── first caller of a key ──▶ MAKING ──▶ UP ── last channel goes ──▶ GOING ──▶ (none)
                                          └─ fails ──▶ (none): the key can be tried again

Callers that ask for a key while its backend is being made wait for the first caller, and get the
same result or error. No lock is held while a backend is made or ended, since both take time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from penstock.client.backend import SharedDistSamplingBackend
from penstock.errors import ChannelClosed, Overloaded, PenstockError
from penstock.sampling.spec import Spec
from penstock.server.dist.handles import HandleKind, Handles

CLOSED: Final = "the server has ended"
# Limited because each has a connection to the hub.
MAX_BACKENDS: Final = 256


class BackendPhase(Enum):
    MAKING = "making"
    UP = "up"
    GOING = "going"
    GONE = "gone"


@dataclass(eq=False, slots=True)
class ServedBackend:
    """One backend. `entering` counts the channels that are being opened."""

    key: str
    spec: Spec
    phase: BackendPhase = BackendPhase.MAKING
    number: int = -1
    sampling: SharedDistSamplingBackend | None = None
    failure: BaseException | None = None
    channels: set[int] = field(default_factory=set)
    entering: int = 0
    had_channels: bool = False
    holders: set[int] = field(default_factory=set)  # sessions that asked for it

    @property
    def up(self) -> SharedDistSamplingBackend:
        """Return what samples; only once the backend is up."""
        assert self.sampling is not None
        return self.sampling

    @property
    def is_left(self) -> bool:
        """Return whether its last channel has gone."""
        return self.had_channels and not self.channels and not self.entering


class ServedBackends:
    """All backends of a server."""

    def __init__(self, numbers: Handles, most: int = MAX_BACKENDS) -> None:
        self._numbers = numbers
        self._most = most
        self._changed = threading.Condition()
        self._by_key: dict[str, ServedBackend] = {}
        self._by_number: dict[int, ServedBackend] = {}
        self._closed = False

    # --- making ---

    def obtain(
        self, key: str, spec: Spec, make: Callable[[], SharedDistSamplingBackend], holder: int
    ) -> int:
        """Return the number of the backend of a key, which is made if there is none."""
        with self._changed:
            backend, is_new = self._by_key.get(key), False
            self._check_open()
            if backend is None:
                self._check_room()
                backend, is_new = ServedBackend(key, spec), True
                self._by_key[key] = backend
                backend.holders.add(holder)
        return self._make(backend, make) if is_new else self._await(backend, spec, holder)

    def _make(self, backend: ServedBackend, make: Callable[[], SharedDistSamplingBackend]) -> int:
        try:
            sampling = make()
        except BaseException as error:
            with self._changed:
                backend.failure, backend.phase = error, BackendPhase.GONE
                del self._by_key[backend.key]
                self._changed.notify_all()
            raise
        with self._changed:
            backend.sampling, backend.phase = sampling, BackendPhase.UP
            backend.number = self._numbers.take(HandleKind.BACKEND)
            self._by_number[backend.number] = backend
            self._changed.notify_all()
            closed = self._closed
        if closed:  # the server was closed meanwhile
            self.close()
            self._check_open()
        return backend.number

    def _await(self, backend: ServedBackend, spec: Spec, holder: int) -> int:
        with self._changed:
            # The maker finishes within a bounded time, and sets the phase.
            self._changed.wait_for(lambda: backend.phase is not BackendPhase.MAKING)
            if backend.failure is not None:
                raise PenstockError(
                    f"backend {backend.key!r} could not be made: {backend.failure}"
                ) from backend.failure
            self._check_open()
            if backend.phase is not BackendPhase.UP:
                raise PenstockError(
                    f"backend {backend.key!r} is being torn down: try again in a moment"
                )
            if spec != backend.spec:
                raise ValueError(
                    f"sampling_config is {spec!r}; "
                    f"that of backend {backend.key!r} is {backend.spec!r}"
                )
            backend.holders.add(holder)
            return backend.number

    # --- channels ---

    def enter(self, number: Any) -> ServedBackend:
        """Return a backend, and keep it from ending until `stay` or `leave` is called.

        Raises:
            KeyError: There is no such backend.
        """
        self._numbers.check(number, HandleKind.BACKEND)
        with self._changed:
            self._check_open()
            backend = self._by_number.get(number)
            if backend is None or backend.phase is not BackendPhase.UP:
                raise KeyError(f"backend {number} was torn down with its last channel")
            backend.entering += 1
            return backend

    def stay(self, backend: ServedBackend, channel: int) -> None:
        """Record that a channel was opened."""
        with self._changed:
            backend.entering -= 1
            backend.channels.add(channel)
            backend.had_channels = True

    def leave(self, backend: ServedBackend, channel: int | None) -> bool:
        """Record that a channel has gone, or (None) could not be opened.

        Returns:
            Whether that was the last channel, and the backend has ended with it.
        """
        with self._changed:
            if channel is None:
                backend.entering -= 1
            else:
                backend.channels.discard(channel)
            if not backend.is_left or backend.phase is not BackendPhase.UP:
                return False
            backend.phase = BackendPhase.GOING
        self._end(backend)
        return True

    # --- ending ---

    def forget(self, holder: int) -> None:
        """Forget a session that has ended; end backends that only it asked for and nobody uses."""
        with self._changed:
            unused = []
            for backend in self._by_number.values():
                was_held = holder in backend.holders
                backend.holders.discard(holder)
                is_used = backend.channels or backend.entering or backend.holders
                if was_held and not is_used and backend.phase is BackendPhase.UP:
                    backend.phase = BackendPhase.GOING
                    unused.append(backend)
        for backend in unused:
            self._end(backend)

    def close(self) -> list[ServedBackend]:
        """End all backends, and return those that were up. Idempotent.

        A backend that is still being made is ended as soon as it is made.
        """
        with self._changed:
            self._closed = True
            there = [each for each in self._by_number.values() if each.phase is BackendPhase.UP]
            for backend in there:
                backend.phase = BackendPhase.GOING
        for backend in there:
            self._end(backend)
        return there

    def all(self) -> list[ServedBackend]:
        """Return the backends there are now."""
        with self._changed:
            return list(self._by_number.values())

    def _end(self, backend: ServedBackend) -> None:
        try:
            backend.up.shutdown()
        finally:
            with self._changed:
                backend.phase = BackendPhase.GONE
                del self._by_key[backend.key], self._by_number[backend.number]
                self._changed.notify_all()

    def _check_room(self) -> None:
        if len(self._by_key) >= self._most:
            raise Overloaded(
                f"the server has {self._most} backends, as many as it may have "
                "(setting: max_backends)"
            )

    def _check_open(self) -> None:
        if self._closed:
            raise ChannelClosed(CLOSED)
