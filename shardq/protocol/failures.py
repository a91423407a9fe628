"""Read what is stored of failures: see lua/failures.lua."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, get_args

from shardq.model.failure import Failure, FailureReason
from shardq.protocol.bodies import text_or_bytes

SLOT: Final = 300
"""Seconds that one count covers."""
SLOTS: Final = 12
_REASONS: Final[Mapping[str, FailureReason]] = {each.replace(" ", "-"): each for each in get_args(FailureReason)}
_RECORD: Final = re.compile(
    rb"(\d{1,15})\|(\d{1,15})\|(\d{1,16})\|(\d{1,16})\|([^|]*)\|\d+\|(\d*)\|(\d{1,12})\|(\d+(?:,\d+)*)"
    rb"\|([0-9a-f,]*);([0-9a-f,]*)\|\d(.*)",
    re.DOTALL,
)
_TRACE: Final = b"trace|"
_COUNT: Final = re.compile(rb"\d{1,15}")
_TENANT: Final = re.compile(rb"(\d{1,4}):")


class Group(NamedTuple):
    """The common part of all tries of a group."""

    task: str
    error_type: str
    reason: FailureReason


def group_of(text: str) -> Group | None:
    """Read the name of a group; None if it is none."""
    parts = text.split("|")
    if len(parts) != 3 or parts[2] not in _REASONS:
        return None
    return Group(parts[0], parts[1], _REASONS[parts[2]])


def failures(reply: Sequence[Any]) -> list[Failure]:
    """Read the reply of `failures`: the worst first. Groups of another program are left out."""
    now_ms, letters, flat = int(reply[0]), int(reply[1]), reply[2]
    texts = dict(zip(flat[::2], flat[1::2], strict=True))
    found = []
    for field, text in texts.items():
        group = group_of(field.decode(errors="replace"))
        record = _RECORD.fullmatch(text) if group else None
        if group and record:
            apart = _apart(texts, b"+%b|%b" % (record[6], field)), _apart(texts, b"x%b|%b" % (record[6], field))
            found.append(_failure(group, record, apart, now_ms, letters, texts.get(_TRACE + field, b"")))
    return sorted(found, key=lambda each: (-each.recent, -each.last))


def _apart(texts: Mapping[bytes, bytes], field: bytes) -> int:
    """How many tries were counted apart from the record."""
    text = texts.get(field, b"0")
    return int(text) if _COUNT.fullmatch(text) else 0


def _failure(
    group: Group, record: re.Match[bytes], apart: tuple[int, int], now_ms: int, letters: int, trace: bytes
) -> Failure:
    retried, dead, first, last, newest, _, slot, counts, codes, codes_before, tenants = record.groups()
    now, passed = now_ms // 1000 // SLOT, now_ms / 1000 % SLOT / SLOT
    ago = now - int(slot)
    ago = SLOTS if ago < -1 else max(0, ago)  # the clock was set back
    numbers_then = [int(each[:15]) for each in counts.split(b",")]
    numbers_then[0] += sum(apart)
    numbers = [*[0] * min(ago, SLOTS), *numbers_then, *[0] * SLOTS][:SLOTS]
    # The pieces whose tries are `recent`, as far as they are known: the last two in which any failed.
    lately = {*codes.split(b",")} if ago <= 2 else set()
    if ago <= 1:
        lately |= {*codes_before.split(b",")}
    return Failure(
        task=group.task,
        error_type=group.error_type,
        reason=group.reason,
        retried=int(retried) + apart[0],
        dead=min(int(dead) + apart[1], letters),
        first=int(first) / 1000,
        last=int(last) / 1000,
        newest=newest.decode(errors="replace"),
        minutes=tuple(reversed(numbers)),
        recent=numbers[0] + numbers[1] + round(numbers[2] * (1 - passed)),
        tenants=tuple(_tenants(tenants)),
        tenants_lately=len(lately - {b""}),
        trace=trace.decode(errors="replace"),
    )


def _tenants(raw: bytes) -> list[str | bytes]:
    found = []
    while size := _TENANT.match(raw):
        end = size.end() + int(size[1])
        found.append(text_or_bytes(raw[size.end() : end]))
        raw = raw[end:]
    return found
