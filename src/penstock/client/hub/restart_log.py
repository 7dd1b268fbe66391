"""Logs one warning for each worker, hub and server of a store that was lost.

The supervisor's thread calls these functions in the process that started the hub, as soon as it
happens and whatever the other threads do. A process that only joined a hub does not log this: its
channels go on, and log at level INFO when they have to register again.
"""

from __future__ import annotations

import logging

from penstock.wire.messages import Notice, WorkerGone

log = logging.getLogger(__name__)


def tell(news: WorkerGone | Notice) -> None:
    """Log what a hub says: that a worker died, or what a worker has noticed."""
    if isinstance(news, Notice):
        log.warning("%s", news.text)
    else:
        tell_of_worker(news)


def tell_of_worker(gone: WorkerGone) -> None:
    """Log that a worker died, or could not be started."""
    if gone.pid is None:
        log.warning("worker %d %s", gone.worker, gone.verdict)
        return
    held = f"; it held {gone.batch}" if gone.batch else ""
    log.warning("worker %d (pid %d) is lost: %s%s", gone.worker, gone.pid, gone.verdict, held)


def tell_of_hub(who: str, cause: str, pause: float) -> None:
    """Log that a hub ended without being asked to, and that another will be started."""
    log.warning("%s is lost: %s; another in %g s", who, cause, pause)
