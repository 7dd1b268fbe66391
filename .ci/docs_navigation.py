"""The order of the site's pages and links to folders, for mkdocs (`hooks` in mkdocs.yml).

A page is found by its place, so that a new one needs no entry. A page that no pattern matches is a
warning, which the build takes for an error.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

Entry = str | dict[str, Any]

SECTIONS = {
    "Guides": [
        "docs/guides/training.md",
        "docs/guides/*.md",
        "deploy/README.md",
        "examples/README.md",
    ],
    "Coming from": ["docs/coming-from/*.md"],
    "Reference": ["docs/reference/index.md", "docs/reference/*.md", "docs/options.md"],
    "How it works": [
        "docs/architecture.md",
        "docs/glossary.md",
        "docs/sampling.md",
        "docs/ppr.md",
        "docs/random.md",
        "docs/digest.md",
        "docs/format.md",
        "docs/protocol.md",
        "docs/*.md",
    ],
    "Decisions": ["docs/adr/README.md", "docs/adr/*.md"],
    "The project": ["CONTRIBUTING.md", "CHANGELOG.md"],
}


def on_config(config: Any) -> Any:
    """Set the navigation; called by mkdocs before it reads the pages."""
    pages = Path(config["docs_dir"])
    taken: set[str] = {"docs/options.md"}  # named below, and matched by a later pattern as well
    navigation: list[Entry] = ["README.md"]
    for title, patterns in SECTIONS.items():
        found = [name for pattern in patterns for name in _matching(pages, pattern)]
        section = [name for name in dict.fromkeys(found) if name not in taken]
        if title == "Reference":
            section.append("docs/options.md")
        taken |= set(section)
        if section:
            navigation.append({title: section})
    config["nav"] = navigation
    return config


def _matching(pages: Path, pattern: str) -> list[str]:
    return sorted(str(path.relative_to(pages)) for path in pages.glob(pattern))


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Let a link to a folder lead to its README.md, as code forges do."""
    here = Path(config["docs_dir"], page.file.src_uri).parent

    def led(link: re.Match[str]) -> str:
        readme = Path(link[1], "README.md")
        return f"]({readme})" if (here / readme).is_file() else link[0]

    return re.sub(r"\]\(([\w./-]+)\)", led, markdown)
