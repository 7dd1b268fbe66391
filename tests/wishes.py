"""Registrations as tests write them: the options of the channel beside the other fields."""

from __future__ import annotations

from typing import Any

from penstock.options import ChannelOptions
from penstock.wire.messages import Register


def register(**fields: Any) -> Register:
    """A `Register`, with those of the fields as its options that are options."""
    names = set(ChannelOptions.__struct_fields__) & set(fields)
    options = ChannelOptions(**{name: fields.pop(name) for name in names})
    return Register(options=options, **fields)
