"""The directory of a store on Ray: one small actor that knows where the servers are now.

Servers' parents report to it, readers wait at it for changes; nobody polls. It keeps nothing that
is not also known elsewhere: Ray makes it anew with the same arguments, and every parent that
notices reports again. It runs where Ray's own control plane does, so that the loss of another host
never takes it along.
"""

from __future__ import annotations

import asyncio
import uuid
from contextlib import suppress

from penstock.cluster.credentials import Credentials
from penstock.cluster.plan import StorePlan
from penstock.cluster.states import Look, Report


class Directory:
    """The actor. Its methods run in one event loop.

    Args:
        plan: The store.
        credentials: Those of its servers.
    """

    def __init__(self, plan: StorePlan, credentials: Credentials) -> None:
        self._plan = plan
        self._credentials = credentials
        self._boot = uuid.uuid4().hex
        self._changes = 0
        self._reports: dict[tuple[int, int], Report] = {}
        self._changed = asyncio.Condition()

    async def plan(self) -> tuple[StorePlan, Credentials]:
        """Return what the store is to be, and the credentials of its servers."""
        return self._plan, self._credentials

    async def access(self) -> tuple[bytes, str]:
        """Return what a reader needs: the certificate of the authority, and the token."""
        return self._credentials.ca, self._credentials.token

    async def report(self, report: Report) -> Look:
        """Take a report of a server's parent, and return what is known of all servers."""
        async with self._changed:
            self._reports[report.part, report.replica] = report
            self._changes += 1
            self._changed.notify_all()
        return self._look()

    async def forget(self, part: int, replica: int) -> None:
        """Forget what was reported of a server whose parent is no more: another one is made."""
        async with self._changed:
            if self._reports.pop((part, replica), None) is not None:
                self._changes += 1
                self._changed.notify_all()

    async def look(self, stamp: str = "", seconds: float = 0.0) -> Look:
        """Return what is known of all servers.

        Args:
            stamp: That of a former look: wait until something has changed since.
            seconds: How long to wait for that at most.
        """
        async with self._changed:
            with suppress(TimeoutError):
                await asyncio.wait_for(
                    self._changed.wait_for(lambda: self._stamp != stamp), seconds
                )
        return self._look()

    @property
    def _stamp(self) -> str:
        return f"{self._boot} {self._changes}"

    def _look(self) -> Look:
        return Look(stamp=self._stamp, reports=tuple(self._reports.values()))
