"""The browser that is installed."""

from __future__ import annotations

import shutil

# Chromium without its windows needs half the time; older systems only have the whole browser.
CHROMIUM = shutil.which("chromium-headless-shell") or shutil.which("chromium")
