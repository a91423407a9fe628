"""Which engine this process uses: the one of today, or the next one (docs/engine.md).

The layouts of the two in Redis share nothing, so all clients of a server must use the same one. The switch goes when the
next engine has all that today's has.
"""

from __future__ import annotations

import os
from typing import Final

NEXT: Final = os.environ.get("SHARDQ_ENGINE") == "next"
"""Whether this process uses the next engine."""
