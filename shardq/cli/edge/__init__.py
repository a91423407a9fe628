"""One module per command of `shardq edge`."""

from __future__ import annotations

from types import ModuleType

from shardq.cli.edge import refused, run, send, status, tail

ALL: tuple[ModuleType, ...] = (send, run, status, tail, refused)
"""The commands, in the order in which the help lists them."""
