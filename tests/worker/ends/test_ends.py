"""Each end of a job, in each form and at each place: its message is settled as the table of docs/worker.md says.

All ends of a form and place are in one run. If its worker ends, or waits for ever, each is run again by itself: so the
test of that end fails, and no other one.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.servers import Server
from tests.worker.ends.catalogue import FORMS, Form, Place, ends_of
from tests.worker.ends.running import run

PLACES: tuple[Place, ...] = ("handler", "task", "middleware", "on_error", "on_dead")


def has_place(form: Form, place: Place) -> bool:
    if form in ("django", "async-django"):
        return False
    return place not in ("handler", "on_dead") or form in ("plain", "async", "child")


CASES = [
    pytest.param((form, place), name, id=f"{form}-{place}-{name}")
    for form in FORMS
    for place in PLACES
    if has_place(form, place)
    for name in ends_of(form, place)
]


class Runs:
    """The runs so far, by form and place."""

    def __init__(self, server: Server, folder: Path) -> None:
        self._server, self._folder = server, folder
        self._found: dict[Any, Mapping[str, str]] = {}

    def wrong(self, kind: tuple[Form, Place]) -> Mapping[str, str]:
        if kind not in self._found:
            names = list(ends_of(*kind))
            found = self._run(kind, names)
            if "worker" in found:
                alone = {name: self._run(kind, [name]) for name in names}
                found = {name: "; ".join(wrong.values()) for name, wrong in alone.items() if wrong}
            self._found[kind] = found
        return self._found[kind]

    def _run(self, kind: tuple[Form, Place], names: list[str]) -> Mapping[str, str]:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir()
        self._server.start()
        self._server.run("FLUSHALL")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SHARDQ_TEST_LOG", str(self._folder))
            return run(self._server.url, self._folder, *kind, names)


@pytest.fixture(scope="module")
def runs(default_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(default_server, tmp_path_factory.mktemp("ends") / "notes")


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_what_happens_to_a_job(runs: Runs, kind: tuple[Form, Place], name: str) -> None:
    found = runs.wrong(kind)
    assert found.get(name, found.get("worker", "")) == ""
