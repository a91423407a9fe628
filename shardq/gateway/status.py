"""A gateway's report to its operator: JSON over a socket that only the gateway's own user may open."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from shardq.errors import ConfigError
from shardq.sockets import on_path

PATIENCE: Final = 5.0
"""Seconds that a reader has."""

Report = dict[str, Any]


class StatusSocket:
    """Answers each connection with what *report* returns, and ends it. Nothing is read."""

    def __init__(self, path: Path, report: Callable[[], Report]) -> None:
        self._path, self._report = path, report
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """Listen. ConfigError if that is not possible."""
        before = os.umask(0o177)  # so that it is never open to others, not even for a moment
        try:
            listener = on_path(self._path)
        except OSError as error:
            raise ConfigError(f"cannot listen on the status socket {self._path}: {error.strerror}") from None
        finally:
            os.umask(before)
        self._server = await asyncio.start_unix_server(self._answer, sock=listener)

    def close(self) -> None:
        """Listen no more."""
        if self._server is not None:
            self._server.close()
            self._path.unlink(missing_ok=True)
            self._server = None

    async def _answer(self, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            writer.write(json.dumps(self._report()).encode() + b"\n")
            async with asyncio.timeout(PATIENCE):
                await writer.drain()
        except (OSError, TimeoutError):
            pass
        finally:
            writer.close()
