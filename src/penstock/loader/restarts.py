"""One line, in the log, for each lost worker that a rank learns of; however many loaders do.

A hub says on its own standard error when a worker is lost, at once and as a warning; here the same
goes where the user's program logs, so it is no second warning. Of the death of a hub others tell:
its keeper, in the process that started it, and the channels that read from it.
"""

from __future__ import annotations

import logging
import threading
from typing import Any, Final

log = logging.getLogger(__name__)

_LOCK: Final = threading.Lock()
_last_loss: dict[str, tuple[float, int]] = {}  # boot of a hub -> of its losses, the last one told


def learn(numbers: dict[str, Any]) -> None:
    """Tells what is news in a hub's numbers."""
    boot = str(numbers["hub"]["boot"])
    with _LOCK:
        told = _last_loss.get(boot, (0.0, -1))
        news = [loss for loss in numbers["losses"] if _order(loss) > told]
        if news:
            _last_loss[boot] = max(map(_order, news))
    for loss in news:
        over = f", over {loss['batch']}" if loss["batch"] else ""
        who = f"worker {loss['worker']} (pid {loss['pid']})"
        log.info("%s was lost%s: %s", who, over, loss["verdict"])


def _order(loss: dict[str, Any]) -> tuple[float, int]:
    return loss["at"], loss["worker"]
