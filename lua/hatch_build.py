"""What the build makes: the library of Lua functions, which a checkout reads from lua/, and the package's readme."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK: Final = re.compile(r"(!?)(\[[^\[\]]*\]\()(?![a-z]+:|#)")
"""The beginning of a link, or with the mark of a picture, to a file beside README.md."""


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


class ReadmeHook(MetadataHookInterface):
    """Makes the readme that a package index shows: README.md, whose links lead to the source of this version."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the field `readme`."""
        source, version = metadata["urls"]["Source"], metadata["version"]

        def lead(found: re.Match[str]) -> str:
            return f"{found[0]}{source}/{'raw' if found[1] else 'blob'}/v{version}/"

        text = LINK.sub(lead, Path(self.root, "README.md").read_text(encoding="utf-8"))
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
