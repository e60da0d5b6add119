"""Chromium for tests of pages: its program, arguments and sizes of its window."""

from __future__ import annotations

import shutil

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
NO_CHROMIUM = "no chromium, chromium-browser or google-chrome on PATH"
ARGUMENTS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
WIDE = {"width": 1440, "height": 900}
NARROW = {"width": 390, "height": 844}
FITS_WIDTH = "document.scrollingElement.scrollWidth <= window.innerWidth"
