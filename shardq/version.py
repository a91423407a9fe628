"""Which version this is, for all layers; `pyproject.toml` says it, too."""

from __future__ import annotations

__version__ = "0.1.0"
