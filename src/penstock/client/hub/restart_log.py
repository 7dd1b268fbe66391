"""One line in the log, a warning, for each worker and each hub that was lost and is replaced.

Told by the keeper's thread, in the process that started the hub, as soon as it happens and whatever
the other threads do. A process that only joined a hub says nothing of that: its channels go on, and
tell at level INFO when they have to begin anew.
"""

from __future__ import annotations

import logging

from penstock.wire.messages import WorkerGone

log = logging.getLogger(__name__)


def tell_of_worker(gone: WorkerGone) -> None:
    """A worker died, or could not be started."""
    if gone.pid is None:
        log.warning("worker %d %s", gone.worker, gone.verdict)
        return
    held = f"; it held {gone.batch}" if gone.batch else ""
    log.warning("worker %d (pid %d) is lost: %s%s", gone.worker, gone.pid, gone.verdict, held)


def tell_of_hub(who: str, cause: str, pause: float) -> None:
    """A hub ended unasked, and another will be started."""
    log.warning("%s is lost: %s; another in %g s", who, cause, pause)
