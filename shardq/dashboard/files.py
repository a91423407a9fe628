"""The files of the page: a browser gets them as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Final

PAGE_FOLDER: Final = Path(__file__).parent / "page"
"""The folder with them."""
