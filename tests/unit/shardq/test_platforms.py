"""What a container may take, as Linux says it in both versions of control groups."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardq.platforms import memory_limit

MB = 1 << 20
UNLIMITED = 9223372036854771712
"""What version 1 says where there is no limit."""


@pytest.mark.parametrize(
    ("groups", "files", "limit"),
    [
        ("0::/\n", {"memory.max": f"{512 * MB}\n"}, 512 * MB),
        ("0::/\n", {"memory.max": "max\n"}, None),
        ("0::/\n", {}, None),
        ("0::/app.slice/worker\n", {"app.slice/memory.max": f"{MB}\n", "app.slice/worker/memory.max": "max\n"}, MB),
        ("0::/a/b\n", {"a/memory.max": f"{2 * MB}\n", "a/b/memory.max": f"{MB}\n"}, MB),
        ("0::/docker/of-the-host\n", {"memory.max": f"{MB}\n"}, MB),
        ("4:memory:/docker/1f\n0::/\n", {"memory/docker/1f/memory.limit_in_bytes": f"{MB}\n"}, MB),
        ("4:cpu,memory:/\n", {"memory/memory.limit_in_bytes": f"{UNLIMITED}\n"}, None),
        ("4:cpu:/x\n", {"memory/x/memory.limit_in_bytes": f"{MB}\n"}, None),
        ("0::/../../etc\n", {"memory.max": "no number\n"}, None),
        ("garbage\n\n::::\n" * 1000, {"memory.max": "0\n"}, None),
        ("", {}, None),
    ],
)
def test_the_least_limit_on_the_way_up_counts(
    tmp_path: Path, groups: str, files: dict[str, str], limit: int | None
) -> None:
    root = tmp_path / "cgroup"
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    own = tmp_path / "own"
    own.write_text(groups)
    assert memory_limit(own, root) == limit


def test_where_there_is_no_linux_there_is_no_limit(tmp_path: Path) -> None:
    assert memory_limit(tmp_path / "none") is None
