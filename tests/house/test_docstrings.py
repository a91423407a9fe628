"""The examples of the API reference do what they show."""

from __future__ import annotations

import pytest

from tests import parts
from tests.conftest import as_usual
from tests.house import api, docstrings
from tests.house.docstrings import Shown, run
from tests.servers import Server


@pytest.mark.parametrize("module", api.MODULES)
def test_the_examples_of_a_module_run(module: str, server: Server) -> None:
    if module == "shardq.spark":
        parts.JAVA.need()
    assert "\n".join(docstrings.run_all(module, lambda: as_usual(server).url)) == ""


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
