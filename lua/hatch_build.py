"""What the build of a wheel makes: the library of Lua functions, which a checkout reads from lua/ at each start."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class LibraryHook(BuildHookInterface):
    """Puts the library into a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Make the library, but for an editable install, where lua/ may change."""
        self._made = TemporaryDirectory()
        if version == "editable":
            return
        sys.path.insert(0, self.root)
        from shardq.protocol import library, sources

        file = Path(self._made.name, library.FILE)
        file.write_bytes(library.encode(sources.read(Path(self.root, "lua"))))
        build_data["force_include"][str(file)] = f"shardq/protocol/{library.FILE}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was made: the wheel has it."""
        self._made.cleanup()
