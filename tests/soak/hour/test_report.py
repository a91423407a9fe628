"""The report of a run has all that its history says, in one file that asks for no other."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.soak.hour import made
from tests.soak.hour.events import typed
from tests.soak.hour.judge import judged
from tests.soak.hour.made import BEGIN, FAULTS
from tests.soak.hour.pictures import MAX_POINTS, Line, lines
from tests.soak.hour.record import Record
from tests.soak.hour.report import MAX_ROWS, Report, main

SVG = re.compile(r"<svg.*?</svg>", re.DOTALL)


def report(*more: made.Event) -> Report:
    record = Record()
    for events in [*made.run().values(), [*more]]:
        record.add(map(typed, events))
    return Report(record, judged(record))


def test_the_page_is_whole_and_asks_for_no_other_file() -> None:
    html = report().html()
    assert "No promise was broken." in html
    assert "prefers-color-scheme: dark" in html
    assert not re.search(r"<script|<link|<img|url\(|src=|href=", html)
    pictures = [ElementTree.fromstring(each) for each in SVG.findall(html)]  # noqa: S314 (we wrote it)
    names = [each.get("aria-label") for each in pictures]
    assert names[:2] == ["Deliveries", "Waits for the first delivery"]
    assert {"Messages of plain", "Memory of gateway (process 105)"} <= {*names}


def test_tables_say_how_long_faults_took_what_was_lost_and_what_calls_returned() -> None:
    found = report()
    tables = {table.title: table for table in found.tables()}
    assert [row[0] for row in tables["Faults"].rows] == sorted(FAULTS)
    assert all(int(row[1]) >= 3 and row[2] == "0" and all(row[3:]) for row in tables["Faults"].rows)
    assert [row[:-1] for row in tables["What promotions lost"].rows] == [
        ["paired", "process", "promotion", "lost", "yes"]
    ]
    assert ["write", "OutOfMemory"] in [row[:2] for row in tables["Calls"].rows]
    assert {row[0] for row in tables["Queues"].rows} == {*made.QUEUES}
    assert len(tables["Processes"].rows) == 7
    text = found.text()
    assert text.startswith("No promise was broken.")
    assert all(title in text for title in tables)


def test_what_is_wrong_stands_first_and_hostile_names_are_text() -> None:
    name = "<script>alert(1)</script>\u202e"
    facts = {"who": name, "call": "read", "queue": name, "at": BEGIN + 60, "answered": BEGIN + 61, "timeout": 20.0}
    found = report(*({"e": "told", "outcome": "BackendTimeout", **facts} for _ in range(MAX_ROWS + 1)))
    html = found.html()
    assert found.verdict == f"{MAX_ROWS + 1} violations: {MAX_ROWS + 1} told wrongly"
    assert 'class="verdict bad"' in html
    assert "<script" not in html
    assert "\u202e" not in html
    assert html.count("there was no fault") == MAX_ROWS


def test_a_run_of_nothing_has_a_report() -> None:
    found = Report(Record(), judged(Record()))
    assert "No promise was broken." in found.html()
    assert found.text()


def test_a_long_line_keeps_its_highest_points() -> None:
    points = [(float(at), 100.0 if at == 5_000 else 1.0) for at in range(10_000)]
    (drawn,) = re.findall(r'points="([^"]*)"', lines("A", [Line("a", points)], "MiB", (0.0, 10_000.0)))
    places = [each.split(",") for each in drawn.split()]
    assert len(places) <= MAX_POINTS
    assert sum(float(y) < 100 for _, y in places) == 1


def test_the_command_fails_if_something_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made.main(tmp_path, 300, 2.0, 1)
    assert main(str(tmp_path), str(tmp_path / "page.html")) == 0
    (tmp_path / "other.jsonl").write_text("[]\n")
    assert main(str(tmp_path), str(tmp_path / "page.html")) == 1
    assert "history damaged" in capsys.readouterr().out
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")
