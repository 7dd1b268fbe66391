"""Numbers and errors as people read them, with as many digits as mean something."""

from __future__ import annotations

import math


def rounded(number: float, digits: int = 2) -> float:
    """Return a number with so many digits that are not leading zeros."""
    if not number or not math.isfinite(number):
        return number
    return round(number, digits - 1 - math.floor(math.log10(abs(number))))


def plain(number: float) -> str:
    """Return a measured number with two digits: 0.31, 4.7, 52, 1,300."""
    number = rounded(number)
    return f"{number:,.0f}" if abs(number) >= 10 else f"{number:.2g}"


def many(number: float) -> str:
    """Return a measured number that may be large: 840, 1,300, 25 million."""
    for limit, word in ((1e9, "billion"), (1e6, "million")):
        if number >= limit:
            return f"{plain(number / limit)} {word}"
    return plain(number)


def short(number: float) -> str:
    """Return a number with two decimal places at most: 4, 2.5, 0.25."""
    return f"{round(number, 2):g}"


def rate(nbytes: float) -> str:
    """Return bytes a second: 0.31 GB/s, 55 GB/s."""
    return f"{plain(nbytes / 1e9)} GB/s"


def counted(number: int, thing: str) -> str:
    """Return a count with its noun: 1 worker, 2 workers."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def in_one_line(error: object) -> str:
    """Return an error's text in one line, or the name of its class if it has none."""
    return " ".join(str(error).split()) or type(error).__name__
