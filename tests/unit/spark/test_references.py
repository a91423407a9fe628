"""The url of format("shardq"): itself, or where each process finds it."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardq.errors import ConfigError
from shardq.spark.references import MAX_URL, url_of

URL = "redis://user:s3cret@host:6379"


def test_a_url_is_itself_or_found_in_a_file_or_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "url").write_text(f"{URL}\n")
    monkeypatch.setenv("MY_QUEUES", URL)
    assert {url_of(each) for each in (URL, f"file:{tmp_path / 'url'}", "env:MY_QUEUES")} == {URL}


def test_a_reference_that_leads_nowhere_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "long").write_text("x" * (MAX_URL + 1))
    for given, said in {
        "env:NOT_SET": "no environment variable NOT_SET",
        f"file:{tmp_path / 'empty'}": "this file is empty",
        f"file:{tmp_path / 'long'}": "the file of the url",
        f"file:{tmp_path / 'none'}": "the file of the url",
    }.items():
        with pytest.raises(ConfigError, match=said):
            url_of(given)
