"""The files of the page: what a browser gets as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Final

PAGE_FOLDER: Final = Path(__file__).parent / "page"
"""The folder with them."""
