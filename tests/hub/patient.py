"""A hub that waits for the stacks of a worker it gives up, however busy the machine is."""

import sys

from penstock.hub import process
from penstock.workers import child

child.STACKS_WITHIN = 60.0  # type: ignore[misc]
child.STACKS_QUIET = 0.5  # type: ignore[misc]

if __name__ == "__main__":
    sys.exit(process.main())
