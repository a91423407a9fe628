"""The benchmarks run: tiny, so that they never rot. Nothing here looks at a time."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from benchmarks import __main__ as program
from benchmarks import flow, service
from benchmarks.edge import sizes
from benchmarks.fairness import contenders, served
from benchmarks.prior_art import Bare, PriorArt
from benchmarks.publish import MARK, MISSING, SHORT, publish, shortened
from benchmarks.report import Table, Target, percentile
from tests.servers import Server

pytestmark = pytest.mark.runs_in("test-all")

ROOT = Path(__file__).resolve().parents[2]
TINY = (
    "--rounds", "1", "--messages", "40", "--seconds", "0.5", "--rate", "20", "--batch", "10",
)  # fmt: skip


OF_THEIR_OWN = {
    "calls",  # test_calls.py
    "day",  # test_day.py
    "modes",  # test_modes.py
    "instructions",  # test_instructions.py
    "slow",  # test_slow.py
    *("pipelines", "routing", "spark", "timing", "worker"),  # tests/routing, tests/spark, tests/timing, test_worker.py
}


def shorten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of dozens of rounds only the first, and less of what is sent over slow links."""
    monkeypatch.setattr(served, "SHAPES", contenders.SHAPES[:1])
    monkeypatch.setattr(sizes, "KINDS", ("log lines",))
    monkeypatch.setattr(sizes, "ALONE", sizes.ALONE // 4)
    monkeypatch.setattr(flow, "SPAN", 6.0)
    monkeypatch.setattr(service, "GOALS", {20: service.GOALS[20]})
    monkeypatch.setattr(service, "NUMBERS", (2,))
    monkeypatch.setattr(service, "WARM", 0.5)


@pytest.mark.parametrize(
    ("name", "aof"), [*((name, "off") for name in sorted({*program.NAMES} - OF_THEIR_OWN)), ("reads", "everysec")]
)
def test_each_benchmark_runs_and_keeps_its_numbers(
    name: str, aof: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shorten(monkeypatch)
    found = program.run([name, *TINY, "--aof", aof, "--link", "unix", "--json", str(tmp_path)])
    assert {path.stem for path in tmp_path.iterdir()} == {table.name for table in found}
    for table in found:
        assert {len(row) for row in table.rows} == {len(table.columns)}
        kept = json.loads((tmp_path / f"{table.name}.json").read_text())
        assert kept["data"]
        if not kept["context"].startswith("a model without I/O"):
            assert ("AOF everysec" in kept["context"]) == (aof == "everysec")
        assert table.title in table.text()
        assert all(row[0] in table.markdown() for row in table.rows)


def test_an_unknown_benchmark_is_refused() -> None:
    with pytest.raises(SystemExit, match="no benchmark 'speed'"):
        program.run(["speed"])


def test_the_prior_art_delivers_each_message_once_in_turns(server: Server) -> None:
    queue = PriorArt(server.url, "old", 8, 2)
    for number in range(20):
        queue.write(b"%d" % number, f"tenant-{number % 5}")
    assert queue.len() == 20
    found = [entry for _ in range(20) if (entry := queue.read())]
    assert sorted(int(payload) for _, _, payload in found) == list(range(20))
    assert len({key for key, _, _ in found[:4]}) == 4  # one stream after the other
    assert queue.read(0.01) is None
    for key, entry_id, _ in found:
        queue.ack(key, entry_id)
    assert queue.len() == 0


def test_the_bare_stream_delivers_each_message_once(server: Server) -> None:
    stream = Bare(server.url, "bare")
    stream.write(b"0")
    stream.write_many([b"1", b"2"])
    found = stream.read(10)
    assert [payload for _, payload in found] == [b"0", b"1", b"2"]
    stream.ack([entry for entry, _ in found])
    assert stream.redis.xlen("bare") == 0
    assert stream.read(10, 0.01) == []


def test_a_page_is_filled_in_between_its_marks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- benchmarks: one --quick -->\nold\n<!-- end -->\nafter\n")
    asked: list[list[str]] = []

    def run(words: list[str]) -> list[Table]:
        asked.append(words)
        return [Table("one", "One", "here", ("what", "how much"), [("a", "1")], [Target("a", 2, 3)])]

    publish(page, run)
    assert asked == [["one", "--quick"]]
    text = page.read_text()
    assert text.startswith("before\n<!-- benchmarks: one --quick -->\n")
    assert text.endswith("<!-- end -->\nafter\n")
    assert "| a | 1 |" in text
    assert "MISSED: a at least 3 x: 2.00 x" in text
    assert "old" not in text
    publish(page, run)
    assert page.read_text() == text


def test_a_part_of_a_page_is_filled_in(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- benchmarks: one -->\nold\n<!-- end -->\n<!-- benchmarks: two -->\nold\n<!-- end -->\n")
    publish(page, lambda words: [Table(words[0], words[0], "here", ("what",), [("new",)])], ["two"])
    first, second = page.read_text().split("<!-- end -->\n")[:2]
    assert first == "<!-- benchmarks: one -->\nold\n"
    assert "new" in second
    assert "old" not in second


def test_all_pages_of_a_folder_are_filled_in(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.md").write_text(f"<!-- benchmarks: {name} -->\nold\n<!-- end -->\n")
    (tmp_path / "c.md").write_text("without marks\n")
    (tmp_path / "d.txt").write_text("<!-- benchmarks: d -->\nold\n<!-- end -->\n")
    asked: list[str] = []

    def run(words: list[str]) -> list[Table]:
        asked.extend(words)
        return [Table(words[0], words[0], "here", ("what",), [("new",)])]

    publish(tmp_path, run)
    assert asked == ["a", "b"]
    assert all("new" in (tmp_path / f"{name}.md").read_text() for name in asked)
    assert (tmp_path / "c.md").read_text() == "without marks\n"
    assert "old" in (tmp_path / "d.txt").read_text()


def test_a_short_table_has_some_columns_of_a_page(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text(
        "**One.** here, commit 1.\n\n|  | x | y, z |\n|---|--:|--:|\n| a | 1 | 2 |\n| b |  | 4 |\n"
    )
    mark, end = "<!-- table: a.md | One | ; y, z -->\n", "<!-- end -->\n"
    text = f"{mark}old\n{end}"
    short = f"{mark}\nhere, commit 1.\n\n|  | y, z |\n|---|--:|\n| a | 2 |\n| b | 4 |\n{end}"
    assert shortened(text, tmp_path) == short
    assert shortened(short, tmp_path) == short
    assert MISSING in shortened(text.replace("One", "Two"), tmp_path)
    assert MISSING in shortened(text.replace("; y, z", "; y, z; w"), tmp_path)
    some = shortened(text.replace(" -->", " | b; c -->", 1), tmp_path)
    assert "| b | 4 |" in some
    assert "| a | 2 |" not in some


def test_the_short_tables_of_docs_are_those_of_the_pages() -> None:
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    assert SHORT.search(page)
    assert shortened(page) == page


def test_the_marks_name_benchmarks_and_stand_where_make_plots_fills_them_in() -> None:
    results = ROOT / "benchmarks" / "results"
    make = (ROOT / "Makefile").read_text()
    assert f"--publish {results.relative_to(ROOT)}\n" in make
    assert "--publish docs/benchmarks.md\n" in make
    asked = [mark[2] for page in sorted(results.glob("*.md")) for mark in MARK.finditer(page.read_text())]
    assert asked
    for words in asked:
        assert {*program.parser().parse_args(shlex.split(words)).names} <= {*program.NAMES}
    assert [page.name for page in (ROOT / "docs").glob("*.md") if MARK.search(page.read_text())] == []


def test_targets_know_both_sides() -> None:
    assert str(Target("a", 3, 3)).startswith("reached")
    assert str(Target("a", 2.9, 3)).startswith("MISSED")
    assert str(Target("a", 3.1, 3, most=True)).startswith("MISSED")
    assert str(Target("a", 3, 3, note="seen twice")).endswith("3.00 x (seen twice)")


def test_percentiles_are_values_that_were_seen() -> None:
    values = [float(n) for n in range(1, 101)]
    assert [percentile(values, share) for share in (0.5, 0.99, 1.0)] == [50.0, 99.0, 100.0]
    assert percentile([7.0], 0.99) == 7.0
