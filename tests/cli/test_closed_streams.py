"""A command whose input and outputs are closed, as some service managers start it, does its work."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from shardq import Client
from tests.servers import Server

WORDS = [(word, "streams") for word in ("stats", "peek", "tenants")] + [("write", "streams", "x", "-t", "t")]


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("words", WORDS, ids=lambda words: words[0])
def test_a_command_with_closed_streams_does_its_work(cli_server: Server, words: tuple[str, ...], closed: str) -> None:
    with Client.from_url(cli_server.url) as client:
        queue = client.queue("streams", streams=4)
        queue.declare()
        queue.purge()
        queue.write(b"x", shard_key="t")
    ended = run(f"{sys.executable} -m shardq.cli {' '.join(words)} {closed}", cli_server)
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_a_worker_with_closed_streams_works(cli_server: Server, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("def handle(delivery):\n    print(delivery.payload)\n")
    with Client.from_url(cli_server.url) as client:
        queue = client.queue("closed", streams=4)
        queue.write(b"x", shard_key="t")
        command = f"{sys.executable} -m shardq.cli worker app:handle -q closed --until empty"
        ended = run(f"{command} <&- >&- 2>&-", cli_server, tmp_path)
        assert (ended.returncode, queue.len(), queue.stats().dead) == (0, 0, 0)


def run(line: str, server: Server, folder: Path | None = None) -> subprocess.CompletedProcess[bytes]:
    environment = os.environ | {"SHARDQ_URL": server.url, "PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.run(["sh", "-c", line], cwd=folder, env=environment, capture_output=True, timeout=60)
