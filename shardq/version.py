"""Which version this is, for all layers and for the build, which reads it here."""

from __future__ import annotations

__version__ = "0.1.0"
