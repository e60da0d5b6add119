"""Hook of mkdocs.yml: links from pages to files outside of docs/ become paths, since the site has no such files."""

from __future__ import annotations

import posixpath
import re
from typing import Any

LINK = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+[^)#\s]+)\)")


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
