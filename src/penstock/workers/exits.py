"""Exit codes of workers that end without being asked; they replace a message."""

from __future__ import annotations

from typing import Final

EXIT_MEMORY: Final = 77  # met its own memory limit
EXIT_ORPHANED: Final = 78  # its hub is gone
EXIT_SAMPLER: Final = 79  # its user's sampler cannot be loaded
