"""Checks that users can run on their own samplers and loaders.

`samplers` checks a sampler (with `batches` and `fresh`), `loaders` a loader's position (with
`digests`).
"""

from penstock.testing.loaders import check_position
from penstock.testing.samplers import NotConforming, check_sampler

__all__ = ["NotConforming", "check_position", "check_sampler"]
