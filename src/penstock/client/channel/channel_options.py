"""The options of a channel, from users' keywords."""

from __future__ import annotations

from penstock.client import keywords
from penstock.option_types import ChannelKeywords
from penstock.options import BatchOptions, ChannelOptions


def check_names(given: ChannelKeywords) -> None:
    """TypeError for an option that there is not, as Python has it."""
    keywords.check_names(given, "term", BatchOptions, ChannelOptions)
    if "batch_size" not in given:
        raise TypeError("batch_size is missing")


def parsed(given: ChannelKeywords) -> tuple[BatchOptions, ChannelOptions]:
    """How the inputs are cut, and the channel's terms; ValueError for a value of the wrong kind."""
    return keywords.parsed(BatchOptions, given), keywords.parsed(ChannelOptions, given)
