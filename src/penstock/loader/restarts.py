"""One line, in the log, for each restart that a rank learns of; however many loaders learn of it.

A hub says on its own standard error when a worker is lost, at once and as a warning; here the same
goes where the user's program logs, so it is no second warning. Of a hub's own death its keeper
warns, in the process that started it; those that joined it say so themselves.
"""

from __future__ import annotations

import logging
import threading
from typing import Any, Final

log = logging.getLogger(__name__)

_LOCK: Final = threading.Lock()
_last_loss: dict[str, tuple[float, int]] = {}  # boot of a hub -> of its losses, the last one told
_boots: dict[str, str] = {}  # address of a hub -> its boot


def learn(numbers: dict[str, Any], *, ours: bool) -> None:
    """Tells what is news in a hub's numbers. `ours`: this process started it."""
    with _LOCK:
        boot, address = str(numbers["hub"]["boot"]), numbers["hub"]["address"]
        before = _boots.get(address)
        _boots[address] = boot
        told = _last_loss.get(boot, (0.0, -1))
        news = [loss for loss in numbers["losses"] if (loss["at"], loss["worker"]) > told]
        if news:
            _last_loss[boot] = max((loss["at"], loss["worker"]) for loss in news)
    if before not in (None, boot) and not ours:
        log.warning("the hub at %s was lost; another has taken its place", address)
    for loss in news:
        over = f", over {loss['batch']}" if loss["batch"] else ""
        log.info("worker %d (pid %d) was lost%s: %s", *_named(loss), over, loss["verdict"])


def _named(loss: dict[str, Any]) -> tuple[int, int]:
    return loss["worker"], loss["pid"]
