"""Put the fields of a record in numbered places, where Lua finds them in half the time.

A table with names as keys takes 40 bytes a field, and each look goes by the hash of the name; a list takes 16. Each
call looks at dozens of fields of a queue's state and of accounts, so the text for Redis has `q[4]` for `q.now`. The
sources have names. `-- @record q: keys fixed ...` in base.lua says which variables are such tables, and their fields;
`new_q{keys = KEYS, ...}` makes one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

_RECORD: Final = re.compile(r"-- @record (\w+(?:, \w+)*): (\w+(?: \w+)*)")
_CODE: Final = re.compile(r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|--.*|(?<![\w.:])(\w+)\.(\w+)""")
_NO_CODE: Final = re.compile(r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|--.*""")
_NAMELESS: Final = re.compile(r"[\])]\.(\w+)")
_NEW: Final = re.compile(r"\bnew_(\w+)\{")
_PIECE: Final = re.compile(r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|[(){}\[\],]""")
_FIELD: Final = re.compile(r"\s*(\w+)\s*=\s*(.*\S)\s*", re.DOTALL)

Records = Mapping[str, Mapping[str, int]]
"""By variable, the place of each field."""


def read(lines: Iterable[str]) -> Records:
    """Return the records that these lines declare."""
    found: dict[str, dict[str, int]] = {}
    text = " ".join(line.removeprefix("--   ") if line.startswith("--   ") else f"\n{line}" for line in lines)
    for names, fields in _RECORD.findall(text):
        places = {field: at for at, field in enumerate(fields.split(), 1)}
        found |= dict.fromkeys(names.split(", "), places)
    return found


def numbered(records: Records, text: str) -> str:
    """Return *text* with the numbers of fields in place of their names. ValueError if a record has no such field."""

    def place(found: re.Match[str]) -> str:
        record = records.get(found[1] or "")
        if record is None:
            return str(found[0])
        if found[2] not in record:
            raise ValueError(f"{found[1]} has no field {found[2]}: base.lua names them")
        return f"{found[1]}[{record[found[2]]}]"

    # Each process reads some 5,000 lines before its first call, so most are only glanced at.
    for field in _NAMELESS.findall(_NO_CODE.sub("", text)) if _NAMELESS.search(text) else ():
        if any(field in record for record in records.values()):
            raise ValueError(f"what has the field {field} must have a name first: local q = ... or local a = ...")
    return _CODE.sub(place, text) if "." in text else text


def made(records: Records, text: str) -> str:
    """Return *text*, a whole statement, with each `new_q{...}` as a list."""
    while "new_" in text and (found := _NEW.search(text)):
        ended = _parts(text, found.end())
        if ended is None:
            raise ValueError("a record is not closed")
        end, parts = ended
        record, values = records[found[1]], {}
        for part in parts:
            if not (field := _FIELD.fullmatch(part)) or field[1] not in record:
                raise ValueError(f"not a field of {found[1]}: {part.strip()}")
            values[record[field[1]]] = field[2]
        listed = ", ".join(values.get(at, "nil") for at in range(1, max(values) + 1))
        text = f"{text[: found.start()]}{{{listed}}}{text[end:]}"
    return text


def without_comment(line: str) -> str:
    """Return *line* without the comment at its end."""
    if "--" not in line:
        return line.rstrip()
    return _NO_CODE.sub(lambda found: "" if found[0].startswith("--") else found[0], line).rstrip()


def is_open(text: str) -> bool:
    """Return whether *text* begins a record and does not end it."""
    found = _NEW.search(text) if "new_" in text else None
    return found is not None and _parts(text, found.end()) is None


def _parts(text: str, start: int) -> tuple[int, list[str]] | None:
    """Return where the braces end that are open at *start*, and what commas separate in them. None if they do not."""
    depth, last, parts = 1, start, []
    for piece in _PIECE.finditer(text, start):
        depth += {"(": 1, "{": 1, "[": 1, ")": -1, "}": -1, "]": -1}.get(piece[0], 0)
        if depth == 0 or (depth == 1 and piece[0] == ","):
            if text[last : piece.start()].strip():
                parts.append(text[last : piece.start()])
            last = piece.end()
        if depth == 0:
            return piece.end(), parts
    return None
