"""docs/metrics.md names each number that is of queues, of tenants or of Redis, with its kind, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from shardq.exporter.queues import OF_PARTITIONS, OF_QUEUES, OF_SERVER, OF_TENANTS
from shardq.telemetry.instruments import BUILD, LABELS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "metrics.md").read_text()
ROWS = re.findall(r"^\| `(\w+)` \| (\w+) \| (.*) \|$", PAGE, re.MULTILINE)
TOLD = (*OF_QUEUES, *OF_PARTITIONS, *OF_SERVER, *OF_TENANTS, BUILD)


def test_the_page_has_all_numbers_once() -> None:
    assert sorted((name, kind) for name, kind, _ in ROWS) == sorted((each.text, each.kind) for each in TOLD)


def test_the_page_has_the_labels_besides_the_queue() -> None:
    about = {name: text for name, _, text in ROWS}
    for each in TOLD:
        found = re.findall(r"label `(\w+)`", about[each.text])
        assert found == [LABELS[label] for label in each.labels], each.text
