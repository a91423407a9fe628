"""Which engine runs the queues of this process: the scripts of lua/, or the library of functions of lua/engine/.

The environment variable SHARDQ_ENGINE says so, once for the whole process: `old` (the default) or `new`. A verb that
the new engine does not define is the old engine's script. All clients of a queue must use the same engine.
"""

from __future__ import annotations

import os
from typing import Final

from shardq.errors import ConfigError

_WANTED: Final = os.environ.get("SHARDQ_ENGINE") or "old"
if _WANTED not in ("old", "new"):
    raise ConfigError(f"SHARDQ_ENGINE must be old or new, not {_WANTED!r}")

NEW: Final = _WANTED == "new"
"""Whether it is the library."""
