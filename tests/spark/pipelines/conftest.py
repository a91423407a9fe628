"""The command `shardq pipeline` in the session of the tests."""

from __future__ import annotations

import json
from typing import Any

import pytest

from shardq.cli.program import main


class Shardq:
    """Runs the command in this process."""

    def __init__(self, url: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.url = url
        self.capsys = capsys

    def __call__(self, *words: str) -> tuple[int, str, str]:
        code = main(["--url", self.url, "pipeline", *words])
        out, err = self.capsys.readouterr()
        return code, out, err

    def report(self, *words: str) -> dict[str, Any]:
        """What a run that went well told programs."""
        code, out, err = self(*words, "--json")
        assert code == 0, err
        return dict(json.loads(out))


@pytest.fixture
def shardq(spark: Any, url: str, capsys: pytest.CaptureFixture[str]) -> Shardq:
    return Shardq(url, capsys)
