"""Makes the picture of README: the story of the last query of a demo that failed over.

    python -m tests.e2e.picture URL docs/images/story.png

The gateway at URL is one that ``fusion demo --serve`` left.
"""

from __future__ import annotations

import sys
from pathlib import Path

import httpx
from playwright.sync_api import sync_playwright

from tests.browser import ARGUMENTS, CHROMIUM


def main(url: str, file: Path) -> None:
    """Draw the page of the query into a file."""
    queries = httpx.get(f"{url}/v1/queries").raise_for_status().json()["queries"]
    query_id = next(query["id"] for query in queries if len(query["attempts"]) > 1)
    with sync_playwright() as driver, driver.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS)) as browser:
        page = browser.new_page(viewport={"width": 1340, "height": 600})
        page.goto(f"{url}/dashboard/queries/{query_id}")
        page.screenshot(path=file)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
