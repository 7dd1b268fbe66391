"""What users can run on what they wrote themselves."""

from penstock.testing.loaders import check_position
from penstock.testing.samplers import NotConforming, check_sampler

__all__ = ["NotConforming", "check_position", "check_sampler"]
