"""The errors of reports."""

from __future__ import annotations

from shardq.errors import ConfigError


class NoTables(ConfigError):
    """The folder has no tables of jobs."""
