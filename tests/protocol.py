"""The parts of docs/protocol.md that are made from the tables in the code.

`python -m tests.protocol` writes them anew, and a test compares.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from penstock.client.dist_calls import TRANSPORT, VERBS
from penstock.store.calls import STORE_VERBS
from penstock.wire.conversation import Medium, diagram, lists

PAGE = Path(__file__).parents[1] / "docs" / "protocol.md"


def parts() -> dict[str, str]:
    """By the name of the place where it stands."""
    found = {}
    for medium in Medium:
        found[f"diagram {medium.value}"] = "\n".join(["```mermaid", *diagram(medium), "```"])
        found[f"lists {medium.value}"] = "\n".join(lists(medium))
    found["calls"] = "\n".join(_calls())
    return found


def _calls() -> Iterator[str]:
    yield "| call | may be repeated | what it does |"
    yield "|---|---|---|"
    for verb in (*VERBS.values(), *STORE_VERBS.values(), *TRANSPORT.values()):
        names = ", ".join(verb.takes.__struct_fields__)
        reads = "yes" if verb.traits.reads else "no"
        yield f"| `{verb.name}({names})` | {reads} | {verb.description} |"


def written(page: str) -> str:
    """The page with these parts as they are to be."""
    for name, text in parts().items():
        begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
        assert len(pattern.findall(page)) == 1, f"docs/protocol.md has no place for {name}"
        page = pattern.sub(lambda _, text=f"{begin}\n{text}\n{end}": text, page)  # type: ignore[misc]
    return page


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
    sys.exit()
