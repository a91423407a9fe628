"""Decoding the journal: against a naive reading, in any range, past rubbish."""

from __future__ import annotations

import random
from typing import Any
from urllib.parse import quote

import pytest

from shardq.protocol.journal import BILLED, FORMAT, KINDS, EventColumns, decode

Row = dict[str, Any]
NAMES = (
    "number", "time_ms", "kind", "message_id", "shard_key", "stream", "count", "due_ms", "client", "task", "by", "note",
    "charged", "ran", "values", "version",
)  # fmt: skip


def events(rng: random.Random, first: int, count: int) -> list[Row]:
    """Events of one call."""
    ms, is_write, version = rng.randrange(10**12), rng.random() < 0.3, rng.choice((1, 2))
    kinds = ["written"] if is_write else [each for each in KINDS.values() if each != "written"]
    client = "" if is_write else rng.choice(("", "host-7"))
    by, note = ("", "") if is_write else rng.choice((("", ""), ("jonas", ""), ("", "why, 1|2"), ("jo nas", "why")))
    tasks = ["", "app.report"] if is_write and rng.random() < 0.5 else [""]
    rows = []
    for number in range(first, first + count):
        place, key = rng.choice(("0", "17", "4095", "d", "l", "o")), rng.choice((b"a", b"\n,\x00\xff", b"x" * 1024))
        owner = f".{quote(key, safe='')}" if place == "o" else ""  # nothing else leads to the overflow
        kind = rng.choice(kinds)
        tells, values = version == 2, rng.choice(({}, {"weight": "3"}, {"rate": "2.5", "burst": "a|b,c=d é"}))
        rows.append({
            "number": number, "time_ms": ms, "kind": kind,
            "message_id": f"{ms}-{number}-{place}{owner}",
            "shard_key": key if owner else rng.choice((None, key)),
            "stream": int(place) if place.isdigit() else None, "count": rng.choice((0, 1, 7)),
            "due_ms": rng.choice((None, 5)), "client": client, "task": rng.choice(tasks),
            "by": by or client, "note": note,
            "charged": rng.choice((0, 135)) if tells and kind in BILLED else None,
            "ran": rng.choice((None, 125)) if tells else None, "values": values if tells else {}, "version": version,
        })  # fmt: skip
    return rows


def entry(rows: list[Row], rng: random.Random) -> tuple[bytes, list[bytes]]:
    """The entry that holds them, spelled as docs/events.md says."""
    letters = {kind: letter for letter, kind in KINDS.items()}
    columns = [
        ",".join(str(len(row["shard_key"] or b"")) for row in rows),
        _short([str(row["count"]) for row in rows], rng),
        _short(["" if row["due_ms"] is None else str(row["due_ms"]) for row in rows], rng),
    ]
    ids = ",".join(row["message_id"] for row in rows)
    if rng.random() < 0.5:
        ms, number, _ = rows[0]["message_id"].split("-", 2)
        places = [row["message_id"].split("-", 2)[2].partition(".")[0] for row in rows]
        ids = f"{ms}|{int(number) - 1}|" + ",".join(places)
    tasks = ",".join(row["task"] for row in rows) if any(row["task"] for row in rows) else ""
    client, by, note = (rows[0][name] for name in ("client", "by", "note"))
    said = client if by == client and not note else f"{client}\x1f{by if by != client else ''}\x1f{note}"
    who = tasks or said
    version = rows[0]["version"]
    more = [_more(rows)] if version == 2 else []
    head = "\n".join(["".join(letters[row["kind"]] for row in rows), ids, *columns, who, *more, ""])
    value = head.encode() + b"".join(row["shard_key"] or b"" for row in rows)
    return f"{rows[-1]['number']}-{rows[0]['time_ms']}".encode(), [str(version).encode(), value]


def _more(rows: list[Row]) -> str:
    """What was charged, how long it ran, and the values; nothing where nothing is told."""
    charged, ran = (
        ",".join(spelled(row[name]) if row[name] else "" for row in rows) if any(row[name] for row in rows) else ""
        for name, spelled in (("charged", str), ("ran", lambda tenths: str(tenths / 10)))
    )
    values = "\x1e".join("\x1f".join(f"{name}={value}" for name, value in row["values"].items()) for row in rows)
    told = f"{charged}|{ran}|{values if any(row['values'] for row in rows) else ''}"
    return "" if told == "||" else told


def _short(words: list[str], rng: random.Random) -> str:
    """One word for all where all are the same, but not always."""
    same = len(set(words)) == 1 and rng.random() < 0.7
    if same and words[0] in {"", "0"}:
        return ""
    return words[0] if same else ",".join(words)


def rows_of(columns: EventColumns) -> list[Row]:
    return [dict(zip(NAMES, row, strict=True)) for row in zip(*(getattr(columns, name) for name in NAMES), strict=True)]


def test_any_range_of_any_journal_is_decoded_as_it_was_written(rng: random.Random) -> None:
    for _ in range(100):
        every: list[Row] = []
        entries, number = [], rng.randrange(1, 10**15)
        begin = number - 1
        for _ in range(rng.randrange(1, 8)):
            call = events(rng, number, rng.randrange(1, 9))
            number += len(call)
            if rng.random() < 0.85:  # or else this entry is lost
                entries.append(entry(call, rng))
                every += call
        after, until = sorted((rng.randrange(begin, number), rng.randrange(begin, number)))
        columns = decode(entries, after, until)
        found = [row for row in every if after < row["number"] <= until]
        assert rows_of(columns) == found
        assert columns.position == (found[-1]["number"] if found else after)
        assert columns.lost == columns.position - after - len(found)


@pytest.mark.parametrize(
    "row",
    [
        (b"9-1", [b"3", b"w\n1-1-1\n0\n\n\n\n\n"]),
        (b"9-1", [b"1", b"w\n1-1-1\n0\n\n\n\n", b"more", b""]),
        (b"9-1", [b"1", b"w"]),
        (b"9-1", [b"1", b"?\n1-1-1\n0\n\n\n\n"]),
        (b"9-1", [b"1", b"ww\n1-1-1\n0\n\n\n\n"]),
        (b"9-1", [b"1", b"w\n1-1-1\n0,0\n\n\n\n"]),
        (b"9-1", [b"1", b"w\n1-1-1\nx\n\n\n\n"]),
        (b"9-1", [b"1", b"w\n\xff\n0\n\n\n\n"]),
        (b"9-1", [b"1", b"w\n1|x|1\n0\n\n\n\n"]),
        (b"9-1", [b"1", b"w\n1-1-\xc2\xb2\n0\n\n\n\n"]),
        (b"9-1", [b"1", b"\n\n\n\n\n\n"]),
        (b"x-1", [b"1", b"w\n1-1-1\n0\n\n\n\n"]),
        (b"9-1", [b"2", b"w\n1-1-1\n0\n\n\n\n"]),
        (b"9-1", [b"2", b"a\n1-1-1\n0\n\n\n\nx||\n"]),
        (b"9-1", [b"2", b"a\n1-1-1\n0\n\n\n\n|1,2|\n"]),
        (b"9-1", [b"2", b"o\n\n0\n\n\n\n||a=1\x1eb=2\n"]),
    ],
)
def test_what_is_no_entry_of_ours_is_passed_over_and_counts_as_lost(row: tuple[bytes, list[bytes]]) -> None:
    good = (b"10-1", [FORMAT, b"w\n1-1-1\n0\n\n\n\n\n"])
    columns = decode([row, good], after=5)
    assert (columns.number, columns.lost, columns.position) == ([10], 4, 10)


def test_an_entry_of_a_version_that_told_nobody_is_read() -> None:
    """Who made the call asked for it."""
    columns = decode([(b"10-1", [b"1", b"h\n\n1\n0\n\nhost-7\nt"])], after=9)
    assert (columns.kind, columns.client, columns.by, columns.note) == (["paused"], ["host-7"], ["host-7"], [""])


def test_versions_that_know_nobody_read_an_entry_that_tells_who_asked() -> None:
    """All but the client, behind which they find it: the entry has as many parts as ever."""
    value = b"h\n\n1\n0\n\nhost-7\x1fjonas\x1fticket 4711\nt"
    columns = decode([(b"10-1", [b"1", value])], after=9)
    assert (columns.client, columns.by, columns.note) == (["host-7"], ["jonas"], ["ticket 4711"])
    assert len(value.split(b"\n", 6)) == 7


def test_an_event_tells_what_was_charged_how_long_it_ran_and_what_was_set() -> None:
    more = b"135,,|12.5,,0.7|\x1ejournal=9\x1ffair=time\x1e"
    value = b"\n".join([b"aoa", b"9-1-0,,9-2-0", b"1,0,1", b"1,0,1", b"", b"host-7", more, b"tt"])
    columns = decode([(b"12-1", [FORMAT, value])], after=9)
    assert columns.charged == [135, None, 0]
    assert columns.ran == [125, None, 7]
    assert columns.values == [{}, {"journal": "9", "fair": "time"}, {}]
    assert columns.version == [2, 2, 2]


def test_values_of_any_bytes_are_read() -> None:
    columns = decode([(b"10-1", [FORMAT, b"o\n\n0\n\n\n\n||name=\xff=|\x1fodd\n"])], after=9)
    assert columns.values == [{"name": "\ufffd=|", "odd": ""}]
