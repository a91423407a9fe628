"""`shardq pipeline load`: each value as the file has it, and each row of each version of a file once."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from shardq import Client
from shardq.client import Queue
from shardq.spark.pipelines import files, inputs
from shardq.spark.pipelines import load as load_module
from shardq.spark.pipelines.inputs import read_table
from shardq.spark.pipelines.load import LoadColumns, identity, messages
from tests.spark.pipelines.conftest import Shardq
from tests.spark.rows import drained

pytestmark = [pytest.mark.timeout(300), pytest.mark.runs_in("test-all")]
COLUMNS = LoadColumns("tenant")


def csv(path: Path, first: int, to: int, *, bad: int = -1) -> Path:
    """A file with the numbers from *first* up to *to*; that of the row *bad* has no tenant."""
    path.parent.mkdir(exist_ok=True)
    lines = (f"{'' if at == bad else f't-{at % 7}'},{at}\n" for at in range(first, to))
    path.write_text("tenant,n\n" + "".join(lines))
    return path


def loaded(queue: Queue) -> list[int]:
    """The numbers that *queue* has; it is empty then."""
    return sorted(int(each.payload["n"]) for each in drained(queue))


def said(err: str) -> str:
    """The last line on standard error that is no step."""
    return [line for line in err.splitlines() if not line.endswith(" ...")][-1]


def test_text_stays_text_in_csv_and_in_the_names_of_folders(shardq: Shardq, queue: Queue, tmp_path: Path) -> None:
    for tenant in ("007", "1e3"):
        (tmp_path / f"tenant={tenant}").mkdir()
        (tmp_path / f"tenant={tenant}" / "rows.csv").write_text("body\n01\n")
    shardq.report("load", str(tmp_path), queue.name, "--format", "csv", "--key", "tenant", "--payload", "body")
    assert sorted((each.shard_key, each.payload) for each in drained(queue)) == [("007", "01"), ("1e3", "01")]
    rows = str(tmp_path / "tenant=007" / "rows.csv")
    schema = ("--schema", "body int")
    shardq.report("load", rows, queue.name, "--key", "body", "--run-id", "typed", *schema)
    assert [(each.shard_key, each.payload) for each in drained(queue)] == [("1", {"body": 1})]


def test_readers_options_suffixes_in_capitals_headers_and_bounds(shardq: Shardq, queue: Queue, tmp_path: Path) -> None:
    path = tmp_path / "ROWS.CSV"
    path.write_text("tenant;body;wait\na;x;0\n")
    semicolon = ("--option", "sep=;", "--key", "tenant", "--payload", "body", "--delay", "wait")
    shardq.report("load", str(path), queue.name, *semicolon)
    assert [(each.shard_key, each.payload) for each in drained(queue)] == [("a", "x")]
    path.write_text("tenant;body;wait\na;longer;soon\n")
    code, _, err = shardq("load", str(path), queue.name, *semicolon)
    assert (code, "delay must be from 0 to" in said(err)) == (1, True), err
    path.write_text("tenant;body;wait\na;longer;1\n")
    code, _, err = shardq("load", str(path), queue.name, *semicolon, "--max-payload", "5")
    assert (code, "more than maxPayload = 5" in said(err)) == (1, True), err
    (tmp_path / "rows.json").write_text(json.dumps({"tenant": "a", "n": 1, "h": {"trace": "t-1", "rank": 2}}) + "\n")
    shardq.report("load", str(tmp_path / "rows.json"), queue.name, "--key", "tenant", "--headers", "h")
    assert [(each.payload, dict(each.headers)) for each in drained(queue)] == [
        ({"tenant": "a", "n": 1}, {"trace": "t-1", "rank": "2"})
    ]
    assert queue.stats().delayed == 0


def test_a_csv_file_with_other_columns_is_not_read_by_position(shardq: Shardq, queue: Queue, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("tenant,n\na,1\n")
    (tmp_path / "b.csv").write_text("n,tenant\n2,b\n")
    code, _, err = shardq("load", str(tmp_path), queue.name, "--format", "csv", "--key", "tenant")
    assert (code, "has other columns" in said(err)) == (1, True), err
    assert {each.shard_key for each in drained(queue)} <= {"a"}


def test_files_that_change_are_another_load(spark: Any, tmp_path: Path) -> None:
    """By size and by time of change; with other columns or options of the reader, too."""
    csv(tmp_path / "in" / "a.csv", 0, 10)

    def name(**options: str) -> str:
        rows = read_table(spark, str(tmp_path / "in"), form="csv", options=options)
        return identity(rows, "jobs", COLUMNS, sorted(options.items()))

    first = name()
    assert name() == first != name(quote="'")
    csv(tmp_path / "in" / "b.csv", 10, 20)
    more = name()
    assert more != first
    (tmp_path / "in" / "b.csv").write_text((tmp_path / "in" / "b.csv").read_text().replace("10", "99"))
    assert name() not in (first, more)
    for at in range(12):
        csv(tmp_path / "in" / f"c {at}%20ä.csv", 10, 20)
    many = name()
    assert many == name()
    (tmp_path / "in" / "c 3%20ä.csv").write_text("tenant,n\n")
    assert name() != many


def test_under_one_id_rows_are_known_by_their_files(shardq: Shardq, queue: Queue, tmp_path: Path) -> None:
    """More files add their rows, though Spark deals files to tasks by their sizes; a mended row is stored alone."""
    words = ("load", str(tmp_path / "in"), queue.name, "--format", "csv", "--key", "tenant")
    csv(tmp_path / "in" / "b.csv", 0, 300)
    csv(tmp_path / "in" / "c.csv", 300, 1000, bad=900)
    code, _, err = shardq(*words)
    told = re.search(
        r"line 602 of \S+c.csv is no valid message: shard_key is null; .* with the id (load-\w+)", said(err)
    )
    assert (code, told is not None) == (1, True), err
    csv(tmp_path / "in" / "c.csv", 300, 1000)
    again = ("--run-id", told[1] if told else "")
    assert shardq.report(*words, *again)["rows"] == 1000
    csv(tmp_path / "in" / "a.csv", 1000, 3000)
    assert shardq.report(*words, *again)["rows"] == 3000
    assert loaded(queue) == list(range(3000))


def test_the_report_tells_what_this_run_diverted_and_why(
    shardq: Shardq, client: Client, queue: Queue, tmp_path: Path
) -> None:
    """It is not what the error queue holds: that may be worked off meanwhile, or hold what others wrote."""
    errors = f"{queue.name}.errors"
    path = csv(tmp_path / "in" / "a.csv", 0, 50, bad=7)
    words = (
        "load",
        str(path),
        queue.name,
        "--key",
        "tenant",
        "--errors",
        errors,
        "--create",
        "--run-id",
        f"{queue.name}*",
    )
    others = client.queue(errors, create=True)
    others.write(b"of others", shard_key=f"{queue.name}*")
    report = shardq.report(*words)
    assert (report["rows"], report["diverted"], report["diverted_before"]) == (50, 1, 0)
    first, second = report["remarks"]
    assert first.startswith(f"50 rows are in {queue.name}, or if they are no messages in {errors}, each once")
    assert second == f"1 of them went to {errors} in this run, the first there now since its shard_key is null"
    assert len(drained(others)) == 2
    report = shardq.report(*words)
    assert (report["rows"], report["diverted"], report["diverted_before"]) == (50, 0, 1)
    assert report["remarks"][1] == f"0 of them went to {errors} in this run, and 1 in earlier ones with this id"
    assert queue.len() == 49


@pytest.mark.parametrize("how", [(), ("--follow", "--checkpoint")])
def test_create_makes_the_queue_and_that_of_the_errors(
    shardq: Shardq, client: Client, queue_name: str, tmp_path: Path, how: tuple[str, ...]
) -> None:
    rows = csv(tmp_path / "in" / "a.csv", 0, 50, bad=7).parent
    how += (str(tmp_path / "seen"),) if how else ()
    words = ("load", str(rows), queue_name, "--format", "csv", "--key", "tenant", "--errors", f"{queue_name}.errors")
    code, _, err = shardq(*words, *how)
    assert (code, f"no queue '{queue_name}'" in said(err)) == (3, True), err
    report = shardq.report(*words, *how, "--create")
    assert (report["rows"], report["diverted"]) == (50, 1)
    assert loaded(client.queue(queue_name)) == [each for each in range(50) if each != 7]
    assert client.queue(f"{queue_name}.errors").len() == 1


def test_a_diverted_row_that_is_mended_comes_in_a_file_of_its_own(shardq: Shardq, queue: Queue, tmp_path: Path) -> None:
    """In its place it would be a new row before those that are stored."""
    words = (queue.name, "--key", "tenant", "--errors", f"{queue.name}.errors", "--create")
    whole = shardq.report("load", str(csv(tmp_path / "in" / "a.csv", 0, 50, bad=7)), *words)
    code, _, err = shardq("load", str(csv(tmp_path / "in" / "a.csv", 0, 50)), *words, "--run-id", whole["id"])
    assert (code, "is not the one that an earlier" in said(err)) == (1, True), err
    shardq.report("load", str(csv(tmp_path / "in" / "b.csv", 7, 8)), *words)
    assert loaded(queue) == list(range(50))


def test_rows_of_files_that_come_again_in_another_load_are_told_of(
    shardq: Shardq, queue: Queue, tmp_path: Path
) -> None:
    """A folder and one in it share files, and a file that was touched is another version: all rows come again."""
    csv(tmp_path / "data" / "old year.csv", 0, 10)
    csv(tmp_path / "data" / "2026" / "ä.csv", 10, 30)
    words = (queue.name, "--format", "csv", "--key", "tenant", "--option", "recursiveFileLookup=true")
    inner = shardq.report("load", str(tmp_path / "data" / "2026"), *words)
    again = shardq.report("load", str(tmp_path / "data" / "2026"), *words)
    assert "known_files" not in inner.keys() | again.keys()
    code, out, err = shardq("load", str(tmp_path / "data"), *words)
    told = f"1 of the 2 files was loaded before, under {inner['id']}"
    assert (code, told in err, told in out) == (0, True, True), err
    assert loaded(queue) == sorted([*range(30), *range(10, 30)])
    os.utime(tmp_path / "data" / "old year.csv", (1, 1))
    assert shardq.report("load", str(tmp_path / "data"), *words)["known_files"] == 2
    assert loaded(queue) == list(range(30))


def test_a_query_that_mixes_rows_is_not_numbered_by_file(spark: Any, tmp_path: Path) -> None:
    path = csv(tmp_path / "in" / "a.csv", 0, 50)
    rows = read_table(spark, str(path))
    assert "part" in messages(rows.where("n > 3").select("n", "tenant"), COLUMNS).columns
    for other in (rows.repartition(3), rows.union(rows), rows.orderBy("n"), rows.groupBy("tenant").count()):
        assert "part" not in messages(other, COLUMNS).columns


def test_a_view_of_files_is_loaded(shardq: Shardq, spark: Any, queue: Queue, tmp_path: Path) -> None:
    """Spark does not tell of its rows which file they are of."""
    read_table(spark, str(csv(tmp_path / "in" / "a.csv", 0, 50))).createOrReplaceTempView("rows_of_files")
    words = ("load", "rows_of_files", queue.name, "--format", "table", "--key", "tenant")
    assert [shardq.report(*words)["rows"] for _ in range(2)] == [50, 50]
    assert loaded(queue) == list(range(50))


def test_a_file_is_cut_alike_beside_other_files(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "SPLIT_SETTINGS", dict.fromkeys(files.SPLIT_SETTINGS, "5000"))
    csv(tmp_path / "in" / "a.csv", 0, 2000)

    def parts() -> set[tuple[str, str]]:
        with files.overridden(spark, files.SPLIT_SETTINGS):
            found = messages(read_table(spark, str(tmp_path / "in"), form="csv"), COLUMNS)
            rows = found.where("cast(payload.n as int) < 2000").groupBy("part").agg({"payload.n": "min"}).collect()
        return {(row[0], row[1]) for row in rows}

    alone = parts()
    assert len(alone) > 2
    for at in range(1, 9):
        csv(tmp_path / "in" / f"{at}.csv", at * 2000, at * 2000 + 900 * at)
    assert parts() == alone


def test_rows_are_known_by_their_keys_in_any_order(shardq: Shardq, queue: Queue, tmp_path: Path) -> None:
    """Also those of another file: what the error of a load whose rows changed says to do."""
    csv(tmp_path / "a.csv", 0, 100)
    lines = csv(tmp_path / "b.csv", 0, 120).read_text().splitlines()
    (tmp_path / "b.csv").write_text("\n".join([lines[0], *reversed(lines[1:])]) + "\n")
    words = (queue.name, "--key", "tenant", "--dedup", "n", "--payload", "n")
    code, _, err = shardq("load", str(tmp_path / "a.csv"), *words[:3], "--idempotence", "key")
    assert (code, said(err)) == (2, "shardq: --idempotence key needs --dedup"), err
    shardq.report("load", str(tmp_path / "a.csv"), *words, "--run-id", "x")
    errors = f"{queue.name}-errors"
    keyed = ("--idempotence", "key", "--errors", errors, "--create")
    told = shardq.report("load", str(tmp_path / "b.csv"), *words, "--run-id", "x", *keyed)
    assert "diverted" not in told
    assert f"how many of them went to {errors} is not known without row numbers" in told["remarks"]
    assert sorted(int(each.payload) for each in drained(queue)) == list(range(120))


def test_a_bad_row_is_named_by_its_file_and_line(
    shardq: Shardq, client: Client, queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines that are blank are not counted; in the error queue, a row of a later piece is named by its number there."""
    path = csv(tmp_path / "in" / "a b.csv", 0, 50, bad=7)
    (tmp_path / "in" / "c.json").write_text('{"tenant": "t"}\n\n{"n": 1}\n')
    for name, line in (("a b.csv", 9), ("c.json", 2)):
        code, _, err = shardq("load", str(tmp_path / "in" / name), queue.name, "--key", "tenant")
        told = rf"line {line} of file:/+\S+/in/{name.replace(' ', '%20')} is no valid message: shard_key is null"
        assert (code, bool(re.search(told, said(err)))) == (1, True), err
    errors = client.queue(f"{queue.name}.errors")
    shardq.report("load", str(path), queue.name, "--key", "tenant", "--errors", errors.name, "--create")
    [found] = drained(errors)
    assert (found.payload["line"], found.payload["row"]) == (9, 7)
    assert found.payload["file"].endswith("/in/a%20b.csv")
    monkeypatch.setattr(files, "SPLIT_SETTINGS", dict.fromkeys(files.SPLIT_SETTINGS, "100"))
    monkeypatch.setattr(load_module, "SPLIT_SETTINGS", files.SPLIT_SETTINGS)
    csv(path, 0, 50, bad=40)
    shardq.report("load", str(path), queue.name, "--key", "tenant", "--errors", errors.name)
    [found] = drained(errors)
    assert found.payload["line"] is None
    assert re.fullmatch(r"[0-9A-F]{1,16}-[1-9]\d+", found.payload["partition"])


@pytest.mark.parametrize("words", [("csv",), ("json",), ("json", "--schema", "n int, tenant string")], ids=" ".join)
def test_a_bad_row_of_a_later_piece_is_named_by_its_line(
    shardq: Shardq, queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    """The rows before it are counted only then, as the reader counts them: without lines that are blank."""
    for each in (files, load_module, inputs):
        monkeypatch.setattr(each, "SPLIT_SETTINGS", dict.fromkeys(files.SPLIT_SETTINGS, "100"))
    form = words[0]
    rows = [f"t-{at % 7},{at}" for at in range(80)]
    if form == "json":
        rows = [json.dumps({"n": at, "tenant": f"t-{at % 7}"}) for at in range(80)]
    head = ["tenant,n"] if form == "csv" else []
    bad = ",61" if form == "csv" else '{"n": 61}'
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "good").write_text("\n".join([*head, *rows, ""]))
    lines = [*head, *rows[:20], "", *rows[20:30], "  ", *rows[30:61], bad, *rows[62:], ""]
    (tmp_path / "in" / "b d").write_text("\n".join(lines))
    code, _, err = shardq("load", str(tmp_path / "in"), queue.name, "--key", "tenant", "--format", *words)
    told = rf"line {62 + len(head)} of file:/+\S+/in/b%20d is no valid message: shard_key is null"
    assert (code, bool(re.search(told, said(err)))) == (1, True), err


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("a.json", '{"tenant": "t"}\n{"tenant": \n', "line 2 of {} cannot be parsed: fix it"),
        ("a.csv", "tenant,n\nt,1\nt,1,2\n", "line 3 of {} cannot be parsed: fix it"),
        (
            "latin.csv",
            "tenant,n\nt,1\nM\xfcller,2\n",
            "line 3 of {} is no valid message: it has bytes that are not UTF-8",
        ),
        (
            "latin.json",
            '{"tenant": "M\xfcller"}\n',
            "line 1 of {}, which is no UTF-8 (name its encoding) cannot be parsed",
        ),
    ],
)
def test_a_line_that_is_cut_or_no_utf8_is_named(
    shardq: Shardq, queue: Queue, tmp_path: Path, name: str, text: str, told: str
) -> None:
    path = tmp_path / name
    path.write_bytes(text.encode("latin1"))
    code, _, err = shardq("load", str(path), queue.name, "--key", "tenant", "--schema", "tenant string, n string")
    assert (code, told.format(f"file://{path}") in said(err).replace("file:/t", "file:///t")) == (1, True), err
    code, _, err = shardq("load", str(path), queue.name, "--key", "tenant")
    assert (code, told.format(f"file://{path}") in said(err).replace("file:/t", "file:///t")) == (1, True), err
    assert queue.stats().written == 0 or "csv" in name
    if name == "latin.csv":
        shardq.report("load", str(path), queue.name, "--key", "tenant", "--option", "encoding=ISO-8859-1")
        assert {each.shard_key for each in drained(queue)} == {"t", "M\xfcller"}
