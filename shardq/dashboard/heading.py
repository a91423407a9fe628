"""The heading of a screen: a sentence about one thing."""

from __future__ import annotations

from typing import Any, Final

from shardq.dashboard.marked import Toned, said
from shardq.outlook.said import Said
from shardq.outlook.sentence import Bold

TONES: Final = {
    "good": ("nobody suffers", "does not wait", "none noisy", "done"),
    "warn": ("suffer", "suffers", "failed"),
    "bad": ("no worker reads this queue", "No worker reads this queue", "a worker", "a dead letter"),
}
"""How bold words end that have a colour; the first that fits counts."""
BEGINS: Final = {"failed ": "bad"}
"""How bold words begin that have a colour: "failed 6 times"."""


def heading(found: Said) -> dict[str, Any]:
    """Return it with the colours of what it means."""
    return said(map(_toned, found.line), found.severity, found.second)


def _toned(part: str) -> str:
    tone = next((tone for tone, ends in TONES.items() if part.endswith(ends)), None)
    tone = tone or next((tone for begin, tone in BEGINS.items() if part.startswith(begin)), None)
    return Toned(part, tone) if tone and isinstance(part, Bold) else part
