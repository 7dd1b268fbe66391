"""What the batches of a source are made of."""

from __future__ import annotations


class Template:
    """What a batch starts from: the class, and what it has that is not sampled."""
