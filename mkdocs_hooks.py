"""Hooks of mkdocs.yml: decisions in the navigation, and links to files outside of docs/, of which the site has none."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

LINK = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+[^)#\s]+)\)")


def on_config(config: Any) -> Any:
    """Add the section of decisions, in the order of their numbers."""
    pages = sorted(Path(config.docs_dir, "adr").glob("*.md"))
    config.nav.append({"Decisions": [f"adr/{page.name}" for page in pages]})
    return config


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Return a page's text in which each link out of docs/ is the link's text and the path in the repository."""
    folder = posixpath.dirname(posixpath.join("docs", page.file.src_uri))

    def as_path(link: re.Match[str]) -> str:
        text, target = link.groups()
        path = posixpath.normpath(posixpath.join(folder, target))
        if path.startswith("docs/"):
            return link.group()
        return f"`{path}`" if text.strip("`") in path else f"{text} (`{path}`)"

    return LINK.sub(as_path, markdown)
