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
    """

    device: str
    bytes: int
    staged: int
    pinned: int
    waited_for_batches: float
    waited_for_copies: float
