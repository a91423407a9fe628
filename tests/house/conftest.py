"""What tests of the house have: a browser, for the site."""

from __future__ import annotations

from tests.dashboard.browser import chromium

__all__ = ["chromium"]
