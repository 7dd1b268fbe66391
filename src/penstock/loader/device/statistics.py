"""What a loader tells of the device that its batches are moved to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DeviceStatistics:
    """What was moved to a device, and what it waited for.

    Attributes:
        device: The device.
        bytes: Bytes that were moved.
        staged: Of these, bytes that were copied on the host first: what is not in slots.
        pinned: Bytes of memory that are page-locked now.
        waited_for_batches: Seconds in which the device had nothing to do before a batch was there.
        waited_for_copies: Seconds in which it had nothing to do but to receive a batch.
        features: Bytes of rows of nodes that are kept on the device.
        row_bytes: Bytes of all rows that batches were given by `features` or `feature_cache`.
        row_bytes_moved: Of these, bytes that were not on the device.
    """

    device: str
    bytes: int
    staged: int
    pinned: int
    waited_for_batches: float
    waited_for_copies: float
    features: int = 0
    row_bytes: int = 0
    row_bytes_moved: int = 0
