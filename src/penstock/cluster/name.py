"""What "ray:NAME" stands for: the servers of a store on Ray, where they are now.

A thread waits at the store's directory for changes, and writes the addresses into a file, which
all processes of this host that read the store look into when they miss a server. Ray moves nothing
else for readers: batches come from the servers.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from typing import Any, Final, Self

from penstock.cluster import session
from penstock.cluster.credentials import SERVER_NAME
from penstock.cluster.plan import check_name
from penstock.cluster.states import Look
from penstock.errors import ServerGone
from penstock.rpc.deadline import Deadline
from penstock.store.address_file import AddressFile
from penstock.store.memory_file import MemoryFile

log = logging.getLogger(__name__)

# Seconds that a question to the directory waits for a change.
_WATCH_S: Final = 30.0
_ANSWER_S: Final = 5.0
_TRY_AGAIN_S: Final = 0.5


class RayName:
    """The name of a store, as it was resolved, and is, until it is closed.

    Args:
        name: The name, without "ray:".
        timeout: Seconds to wait until at least one server has an address; None: no limit.

    Raises:
        ValueError: Ray has no store of this name; the error names those that there are.
        ServerGone: No server has an address in time.
        PenstockError: No Ray cluster can be reached.
    """

    def __init__(self, name: str, timeout: float | None) -> None:
        check_name(name)
        self._name = name
        self._closed = threading.Event()
        self._wake = threading.Event()  # an answer has come, or this is closed
        self._closing = threading.Lock()
        self._ray = session.begin()
        try:
            self._directory = session.directory_of(self._ray, name)
            look, (ca, token) = self._first_look(Deadline(timeout))
        except BaseException:
            session.end()
            raise
        self._ca = MemoryFile(ca)
        self._file = AddressFile(look.addresses)
        self._addresses, self._stamp = look.addresses, look.stamp
        self._access = {
            "ca": self._ca.path,
            "server_name": SERVER_NAME,
            "token": token,
        }
        self._watching = threading.Thread(
            target=self._watch, name="penstock-directory", daemon=True
        )
        self._watching.start()

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses of the servers that have one; at least one."""
        return self._addresses

    @property
    def access(self) -> Mapping[str, Any]:
        """Credentials for the servers."""
        return self._access

    @property
    def address_file(self) -> str:
        """The file that has the addresses as they are now."""
        return self._file.path

    def close(self) -> None:
        """Stop watching, and disconnect from Ray if this has connected. Idempotent."""
        with self._closing:
            if self._closed.is_set():
                return
            self._closed.set()
        self._wake.set()
        self._watching.join(_ANSWER_S)  # without Ray's control plane it may hang in Ray
        self._file.close()
        self._ca.close()
        session.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- asking ------------------------------------------------------------------------------

    def _first_look(self, deadline: Deadline) -> tuple[Look, tuple[bytes, str]]:
        """Return where the servers are, once one of them is anywhere, and what they ask for."""
        ray, error, stamp = self._ray, "no server has an address yet", ""
        while True:
            wait = Deadline(_ANSWER_S).or_sooner(deadline)
            try:
                seconds = wait.remaining or 0.0
                look: Look = ray.get(
                    self._directory.look.remote(stamp, seconds), timeout=seconds + _ANSWER_S
                )
                if look.addresses:
                    return look, ray.get(self._directory.access.remote(), timeout=_ANSWER_S)
                stamp = look.stamp
            except ray.exceptions.RayError as failure:
                error = f"its directory does not answer: {failure}"
                time.sleep(Deadline(_TRY_AGAIN_S).or_sooner(deadline).remaining or 0.0)
                self._find_again()
            if deadline.passed:
                raise ServerGone(
                    f"the store {self._name!r} cannot be read (setting: timeout): {error}. See: "
                    f"penstock status ray:{self._name}"
                )

    def _watch(self) -> None:
        """Write the file whenever servers have moved."""
        while not self._closed.is_set():
            try:
                look = self._next_look()
            except Exception as error:  # whatever becomes of Ray: servers go on without it
                log.info("the directory of %s does not answer: %s", self._name, error)
                self._closed.wait(_TRY_AGAIN_S)
                self._find_again()
                continue
            if look is None:
                continue
            self._stamp = look.stamp
            # A directory that was made anew knows nothing until servers have reported again.
            if look.addresses and look.addresses != self._addresses:
                self._addresses = look.addresses
                self._file.write(look.addresses)

    def _next_look(self) -> Look | None:
        """Wait for a change, and return it; None if there was none, or this is closed."""
        self._wake.clear()
        if self._closed.is_set():
            return None
        self._check_connected()
        future = self._directory.look.remote(self._stamp, _WATCH_S).future()
        future.add_done_callback(lambda _: self._wake.set())
        self._wake.wait(_WATCH_S + _ANSWER_S)
        if self._closed.is_set():
            return None
        look: Look = future.result(timeout=0)
        return look

    def _find_again(self) -> None:
        """Take the directory that has the name now: another one, if the store was replaced."""
        try:
            self._check_connected()
            self._directory = self._ray.get_actor(self._name, namespace=session.NAMESPACE)
        except Exception as error:
            log.info("Ray knows no store %s now: %s", self._name, error)

    def _check_connected(self) -> None:
        """Raise unless there is a connection to Ray: without one, Ray would start a cluster."""
        if not self._ray.is_initialized():
            raise ConnectionError("this process has been disconnected from Ray")
