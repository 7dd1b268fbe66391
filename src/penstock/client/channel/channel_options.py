"""Parses users' keywords into the options of a channel."""

from __future__ import annotations

from penstock.client import keywords
from penstock.option_types import ChannelKeywords
from penstock.options import BatchOptions, ChannelOptions


def check_names(given: ChannelKeywords) -> None:
    """Raise TypeError for an unknown option or a missing `batch_size`, as Python's own calls do."""
    keywords.check_names(given, "term", BatchOptions, ChannelOptions)
    if "batch_size" not in given:
        raise TypeError("batch_size is missing")


def parsed(given: ChannelKeywords) -> tuple[BatchOptions, ChannelOptions]:
    """Return how the inputs are cut, and the channel's options; ValueError for a wrong value."""
    return keywords.parsed(BatchOptions, given), keywords.parsed(ChannelOptions, given)
