"""An operation on the state of a queue sees its head alone: those who run one go over the partitions, or say why not.

Outside of the client, the operations and the room of partitions, a module that takes a state uses `shardq.partitions`,
or is in the table below with its reason.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2] / "shardq"
WITHIN: Final = ("client", "partitions", "ops", "drivers", "testing", "protocol")
TAKES: Final = re.compile(
    r"\.(?:state_of|new_state|state_beside)\(|(?<!ops\.)\b(?:queue\w*|jobs|admin)(?:\([^)]*\))?\.state\b(?! import)|"
    r"\bstate_of_part\("
)
"""How a module takes the state of a queue."""
_SPARK: Final = "Spark refuses a queue with partitions (`_whole` of spark/connection.py)"
_PARTS: Final = "workers go by the partition of each delivery (`worker/jobs.py`)"
_SHARED: Final = "all partitions have it alike, and the head says it"
REASONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "cli/commands/failures.py": "`everything` goes over the partitions, which the look at the queue has found",
        "cli/looking.py": "the time of the server, which any node tells",
        "dashboard/deeds.py": _SHARED,
        "dashboard/redis_server.py": "it tells of the node of the head",
        "dashboard/scenes/tenant.py": _SHARED,
        "exporter/watcher.py": "it waits for what comes to each partition, of which the poller knows",
        "gateway/queues.py": "it keeps states; `storing` and `releases` go over the partitions",
        "gateway/readiness.py": "a key that nobody has is released: any node shows whether writes go well",
        "gateway/tenants.py": _SHARED,
        "jobs/live.py": "it reads the journal of each partition, which `partitions` lists",
        "spark/connection.py": _SPARK,
        "spark/pipelines/earlier.py": _SPARK,
        "whatif/crew.py": "the queue of a replay has no partitions",
        "whatif/replay.py": "the queue of a replay has no partitions",
        "worker/beats.py": "workers tell of themselves in the head",
        "worker/guard.py": _PARTS,
        "worker/lane.py": _PARTS,
        "worker/meter.py": _PARTS,
        "worker/own_loop.py": _PARTS,
        "worker/schedules.py": "declared schedules are attended in the head",
        "worker/time_limits.py": _PARTS,
        "worker/traffic.py": _PARTS,
        "worker/workers.py": _PARTS,
    }
)
"""Modules that see the head alone, and why."""


def test_who_takes_the_state_of_a_queue_goes_over_its_partitions_or_says_why_not() -> None:
    alone = {name for name in takers() if "shardq.partitions" not in (ROOT / name).read_text()}
    assert sorted(alone - REASONS.keys()) == []


def test_each_reason_is_of_a_module_that_takes_one() -> None:
    assert sorted(REASONS.keys() - takers()) == []


def takers() -> set[str]:
    """The modules that take the state of a queue."""
    found = set()
    for file in ROOT.rglob("*.py"):
        name = str(file.relative_to(ROOT))
        if name.split("/", maxsplit=1)[0] not in WITHIN and TAKES.search(file.read_text()):
            found.add(name)
    return found
