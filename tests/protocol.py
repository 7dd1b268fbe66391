"""The parts of docs/protocol.md that are made from the table in the code.

`python -m tests.protocol` writes them anew, and a test compares.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from penstock.wire.conversation import Medium, diagram, lists

PAGE = Path(__file__).parents[1] / "docs" / "protocol.md"


def parts() -> dict[str, str]:
    """By the name of the place where it stands."""
    found = {}
    for medium in Medium:
        found[f"diagram {medium.value}"] = "\n".join(["```mermaid", *diagram(medium), "```"])
        found[f"lists {medium.value}"] = "\n".join(lists(medium))
    return found


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
