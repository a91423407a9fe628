"""The alerts and the dashboard of examples/monitoring: as Prometheus reads them, and by names that shardq has.

Each alert fires on real numbers in tests/drills/test_alerts.py.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from shardq.telemetry.instruments import INSTRUMENTS, LABELS
from tests.house.test_docs import broken_links, headings
from tests.parts import PROMETHEUS, prometheus

pytestmark = pytest.mark.once
ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "examples" / "monitoring"
ALERTS = yaml.safe_load((FOLDER / "alerts.yml").read_text())
DASHBOARD = json.loads((FOLDER / "dashboard.json").read_text())
RULES = [rule for group in ALERTS["groups"] for rule in group["rules"]]
NAMES = [
    *("NoWorker", "OldestAge", "NeverDrains", "Failing", "DeadGrows", "LeasesLost", "PausedForgotten", "RedisFull"),
    "Blind",
]
METRIC = re.compile(r"\b(?:shardq|messaging)_\w+")
OUTSIDE = {"cluster", "namespace", "job", "le", "alertname"}
"""Labels that Prometheus or whoever runs it adds."""


def told(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """What promtool says."""
    promtool = prometheus("promtool")
    assert promtool
    return subprocess.run([promtool, *words], capture_output=True, text=True, timeout=120)


def expressions() -> Iterator[str]:
    """All expressions of the dashboard, as Grafana would send them."""
    for each in [*DASHBOARD["panels"], *DASHBOARD["annotations"]["list"]]:
        for target in each.get("targets", [each]):
            if "expr" in target:
                yield target["expr"].replace("$__rate_interval", "5m").replace("$queue", ".*")


def metrics() -> dict[str, set[str]]:
    """All metrics that there are, by name, with their labels."""
    found = {}
    for each in INSTRUMENTS:
        own = {LABELS[attribute] for attribute in each.labels if attribute in LABELS} | {"queue"}
        for suffix in ("_bucket", "_sum", "_count") if each.kind == "histogram" else ("",):
            found[each.text + suffix] = own
    return found


ALL = [*(rule["expr"] for rule in RULES), *expressions()]


@pytest.mark.parametrize("expression", ALL)
def test_it_asks_for_what_there_is(expression: str) -> None:
    known, named = metrics(), set(METRIC.findall(expression))
    assert named <= set(known)
    labels = set(re.findall(r"(\w+)(?:=~|!=|=)\"", expression))
    for by in re.findall(r"by \(([^)]*)\)", expression):
        labels |= set(by.replace(" ", "").split(","))
    has: set[str] = set().union(*(known[name] for name in named)) if named else {"queue"}
    assert labels <= has | OUTSIDE | ({"alertstate"} if "ALERTS" in expression else set())


@PROMETHEUS.needed
def test_promtool_reads_the_alerts() -> None:
    assert (answer := told("check", "rules", FOLDER / "alerts.yml")).returncode == 0, answer.stdout + answer.stderr


@PROMETHEUS.needed
def test_promtool_reads_what_the_dashboard_asks(tmp_path: Path) -> None:
    rules = [{"record": f"panel:{at}", "expr": each} for at, each in enumerate(expressions())]
    assert len(rules) > 25
    (tmp_path / "panels.yml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    answer = told("check", "rules", tmp_path / "panels.yml")
    assert answer.returncode == 0, answer.stdout + answer.stderr


@PROMETHEUS.needed
def test_each_alert_fires_at_its_bound_and_is_silent_below() -> None:
    answer = told("test", "rules", *sorted(FOLDER.glob("*_test.yml")))
    assert answer.returncode == 0, answer.stdout + answer.stderr


MUTANTS = {
    "NoWorker": [("== 0\n", "== 1\n"), ("runnable) > 0", "runnable) >= 0"), ("paused) > 0", "paused) > 1"),
                 ("[1m]))", "[1m])) + 1"), ("backlog) > 0", "backlog) > 421")],
    "OldestAge": [("> 300", "> 299"), ("> 300", "> 301")],
    "NeverDrains": [("> 3600", ">= 3600"), ("runnable) > 0", "runnable) >= 0"), ("> 60", "> 4"), ("> 60", "> 61"),
                    ("1.05 *", "0.99 *"),
                    ("1.05 *", "1.07 *"), (" + rate(shardq_queue_expired_total[10m])", ""),
                    ("+ rate(shardq_queue_dead_lettered_total[10m])", "")],
    "Failing": [("> 0.2", "> 0.18"), ("> 0.2", "> 0.34"), ("> 1\n", "> 0.9\n"), ("> 1\n", "> 1.2\n")],
    "DeadGrows": [("> 10\nor", "> 9\nor"), ("> 10\nor", "> 11\nor"), ("[10m])) > 10", "[10m])) > 8"),
                  ("[10m])) > 10", "[10m])) > 40")],
    "LeasesLost": [("> 0.01", "> 0.009"), ("> 0.01", "> 0.02")],
    "PausedForgotten": [("offset 24h", "offset 23h"), ("min_over_time", "max_over_time"),
                        ("backlog) > 0", "backlog) >= 0"), ("left_seconds) >= 0", "left_seconds) < 0")],
    "RedisFull": [("> 0.9", "> 0.89"), ("> 0.9", "> 0.91"), ("increase", "changes")],
    "Blind": [("> 30", "> 29"), ("> 30", "> 31"), ("== 0", "== 2"), ("unless on ()", "or on ()"),
              ("or (absent(shardq_up) unless on () group(last_over_time(shardq_up[1h])))", "")],
}  # fmt: skip


@PROMETHEUS.needed
@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize("name", MUTANTS)
def test_those_tests_know_each_bound(name: str, tmp_path: Path) -> None:
    """Only the tests and rules of this alert run, since all of them take seconds."""
    path = FOLDER / ("alerts_day_test.yml" if name == "PausedForgotten" else "alerts_test.yml")
    test = yaml.load(path.read_text(), yaml.BaseLoader)  # noqa: S506 (all is text: to others 0x60 is a number)
    test["tests"] = [each for each in test["tests"] if each["name"].startswith(name)]
    (tmp_path / "test.yml").write_text(yaml.safe_dump(test))
    survived = []
    for old, new in [("", ""), *MUTANTS[name]]:
        own = [dict(each) for each in RULES if each["alert"] == f"Shardq{name}"]
        before = [f"{each['expr'].rstrip()}\n" for each in own]
        for each, text in zip(own, before, strict=True):
            each["expr"] = text.replace(old, new) if old else text
        assert not old or [each["expr"] for each in own] != before, f"no {old!r} there"
        (tmp_path / "alerts.yml").write_text(yaml.safe_dump({"groups": [{"name": "shardq", "rules": own}]}))
        if told("test", "rules", tmp_path / "test.yml").returncode == 0:
            survived.append((old, new))
    assert survived == [("", "")], "the alert itself passes, and none of its mutants"


def test_there_are_nine_alerts_each_with_what_somebody_who_is_called_needs() -> None:
    assert list(dict.fromkeys(rule["alert"] for rule in RULES)) == [f"Shardq{name}" for name in NAMES]
    sections = headings(ROOT / "docs" / "on-call.md")
    page = (ROOT / "docs" / "on-call.md").read_text()
    for rule in RULES:
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in ("page", "warn")
        assert set(rule["annotations"]) == {"summary", "runbook_url"}
        address, _, section = rule["annotations"]["runbook_url"].partition("#")
        assert address == "https://git.example.com/shardq/docs/on-call.md"
        assert section in sections
        assert f"`{rule['alert']}` | [" in page
        assert f"(#{section})" in page


def test_the_readme_tells_of_each_alert_as_it_is() -> None:
    text = (FOLDER / "README.md").read_text()
    assert broken_links(FOLDER / "README.md") == []
    rows = {line.split()[1]: line.split("|") for line in text.splitlines() if line.startswith("| Shardq")}
    assert list(rows) == [f"Shardq{name}" for name in NAMES]
    for rule in RULES:
        *_, lasts, severity, _ = rows[rule["alert"]]
        assert rule["labels"]["severity"] in severity
        assert lasts.strip().replace(" min", "m") == rule.get("for", "")


def test_the_dashboard_has_four_rows_of_panels_that_do_not_overlap() -> None:
    panels = DASHBOARD["panels"]
    assert [each["title"] for each in panels if each["type"] == "row"] == [
        *("Is work flowing", "Who waits", "What fails", "Who works"),
    ]
    numbers = [each["id"] for each in panels]
    assert len(set(numbers)) == len(numbers)
    covered: set[tuple[int, int]] = set()
    for each in panels:
        place = each["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not cells & covered
        covered |= cells


def test_the_dashboard_asks_the_source_that_is_chosen() -> None:
    variables = {each["name"]: each for each in DASHBOARD["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    chosen = {"type": "prometheus", "uid": "${datasource}"}
    assert variables["queue"]["datasource"] == chosen
    for each in DASHBOARD["panels"]:
        if each["type"] != "row":
            assert each["datasource"] == chosen
            letters = [target["refId"] for target in each["targets"]]
            assert len(set(letters)) == len(letters)
            assert all(target["legendFormat"] for target in each["targets"])
            assert each["description"]
            assert each["fieldConfig"]["defaults"]["unit"]
