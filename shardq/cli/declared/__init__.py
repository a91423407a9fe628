"""A file that declares queues, for the commands: the changes that it would make, and how one is written."""

from __future__ import annotations

from shardq.cli.declared.changes import changes, settings_of
from shardq.cli.declared.export import exported

__all__ = ["changes", "exported", "settings_of"]
