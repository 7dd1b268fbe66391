"""How a worker ends that was not asked to: exit codes, which say what it cannot say any more."""

from __future__ import annotations

from typing import Final

EXIT_MEMORY: Final = 77  # met its own memory limit
EXIT_ORPHANED: Final = 78  # its hub is gone
EXIT_SAMPLER: Final = 79  # the user's sampler that it is for cannot be loaded
