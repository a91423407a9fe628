"""What `register` says of executors with another shardq than the driver, or none."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from shardq.errors import ConfigError
from shardq.spark import shipped
from shardq.version import __version__


def cluster(monkeypatch: pytest.MonkeyPatch, *told: str) -> Any:
    """A context of two hosts, whose executors say this."""
    monkeypatch.setattr(shipped, "_CHECKED", set())
    monkeypatch.setattr(shipped, "_told", lambda context, cores: {(f"host-{at}", each) for at, each in enumerate(told)})
    return SimpleNamespace(master="spark://m:7077", applicationId="app-1", defaultParallelism=2)


def test_executors_with_the_drivers_version_are_fine(monkeypatch: pytest.MonkeyPatch) -> None:
    shipped.check_executors(cluster(monkeypatch, __version__, __version__))
    shipped.check_executors(cluster(monkeypatch))  # nobody had room to look


@pytest.mark.parametrize(
    ("told", "said"),
    [("0.0.7", r"on host-1 has shardq 0\.0\.7, and"), ("No module named 'redis'", r"host-1 cannot import shardq \(No")],
)
def test_others_are_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch, told: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        shipped.check_executors(cluster(monkeypatch, __version__, told))
