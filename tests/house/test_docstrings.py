"""The examples of the API reference do what they show."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.conftest import as_usual
from tests.house import api, docstrings
from tests.house.doc_blocks import ROOT
from tests.house.docstrings import Shown, run
from tests.servers import Server

pytestmark = pytest.mark.runs_in("test-all")

ELSEWHERE = {"shardq.spark"}
"""Modules whose examples need more than a server: tests/spark runs them."""
WITHOUT_IMPORT = {"shardq.django"}
"""Modules that need what this Python may lack, with examples that do not."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("module", [each for each in api.MODULES if each not in ELSEWHERE | WITHOUT_IMPORT])
def test_the_examples_of_a_module_run(module: str, server: Server) -> None:
    assert "\n".join(docstrings.run_all(module, lambda: as_usual(server).url)) == ""


@pytest.mark.parametrize("module", sorted(WITHOUT_IMPORT))
def test_examples_that_need_no_import_of_their_package_run(module: str) -> None:
    files = [str(each.filepath) for each in api.names(module) if docstrings.has_example(api.text(each))]
    assert files
    for file in files:
        told = subprocess.run([sys.executable, "-m", "doctest", file], cwd=ROOT, capture_output=True, text=True)
        assert (told.returncode, told.stdout + told.stderr) == (0, "")


def test_an_example_that_shows_something_else_is_found(server: Server) -> None:
    made = ">>> client = AsyncClient.from_url('redis://localhost:6379')\n>>> queue = client.queue('jobs', create=True)"
    text = ">>> await queue.len()\n1\n>>> await queue.pause(seconds=-1)\nTraceback (most recent call last):\nKeyError"
    found = [*run(Shown("shardq.AsyncQueue.len", "shardq", text, made), server.url)]
    assert [each.split("shows")[0] for each in found] == [
        "shardq.AsyncQueue.len:\nawait queue.len()\n",
        "shardq.AsyncQueue.len:\nawait queue.pause(seconds=-1)\n",
    ]
    assert [
        *run(Shown("shardq.Queue", "shardq", text.replace("\n1\n", "\n0\n").split("\n>>> ")[0], made), server.url)
    ] == []
