"""Why a job failed, as one short line: the type of an exception and the first line of its message, without a stack."""

from __future__ import annotations

import re
from typing import Final

MAX_CAUSE: Final = 300
"""Characters of a cause."""

_TRACEBACK: Final = "Traceback (most recent call last):"
QUERY: Final = "\n=== Streaming Query ==="
"""Behind this line the text of a query's exception tells the query's state."""

_RAISED: Final = re.compile(r"[A-Za-z_][\w.]*(: .*)?")


def cause_of(error: BaseException) -> str:
    """The cause that *error* names.

    One that came out of Spark has stacks of several processes: the innermost is the job's own.
    """
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 (somebody else's __str__)
        text = ""
    first = text.strip().partition("\n")[0]
    return bounded(raised_in(text) or f"{type(error).__name__}: {first}".removesuffix(": "))


def raised_in(text: str) -> str:
    """The last line of the last stack of Python in *text*, such as "ValueError: no number"; empty without a stack."""
    stacks = text.partition(QUERY)[0].split(_TRACEBACK)[1:]
    for line in stacks[-1].splitlines() if stacks else ():
        if _RAISED.fullmatch(line):
            return line
    return ""


def bounded(text: str) -> str:
    """*text* as one line that can be stored."""
    return " ".join(text.split())[:MAX_CAUSE].encode(errors="replace").decode()
