"""Each end of a job, in each form and at each place: its message is settled as the table of docs/worker.md says.

All ends of a kind are in one run. If its worker ends or waits for ever, the others are run again without those that it
had begun: so the tests of these ends fail, and no other one.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.parts import APPS
from tests.servers import Server
from tests.worker.ends.catalogue import DJANGO, EVENTS, FORMS, SINGLE, Place
from tests.worker.ends.elsewhere import with_django
from tests.worker.ends.running import Kind, Run, kinds, run

PLACES: tuple[Place, ...] = ("handler", "task", "middleware", "on_error", "on_dead")
SHORT = {
    ("plain", "task"), ("async", "task"), ("mixed-batch", "task"), ("own-loop-batch", "task"), ("async-django", "task"),
    ("plain", "middleware"),
}  # fmt: skip
"""Forms and places that run in `make test`, with all that happens to the others there; the rest in `make test-all`.

Each worker runs functions of each kind there.
"""


def is_there(kind: Kind) -> bool:
    return kind.place not in ("handler", "on_dead") or kind.form in SINGLE


def marks(kind: Kind) -> list[pytest.MarkDecorator]:
    later = [] if (kind.form, kind.place) in SHORT else [pytest.mark.runs_in("test-all")]
    return [*later, *([APPS.needed] if kind.form in DJANGO else [])]


CASES = [
    pytest.param(kind, name, id=f"{kind.form}-{kind.place}-{name}", marks=marks(kind))
    for kind in filter(is_there, kinds(FORMS, PLACES, EVENTS))
    for name in kind.names
]


class Runs:
    """The runs so far, by their kinds."""

    def __init__(self, server: Server, folder: Path) -> None:
        self._server, self._folder = server, folder
        self._found: dict[Kind, Mapping[str, str]] = {}

    def wrong(self, kind: Kind) -> Mapping[str, str]:
        if kind not in self._found:
            self._found[kind] = {
                name: wrong for names in kind.groups for name, wrong in run(kind, names, self._begin).items()
            }
        return self._found[kind]

    def _begin(self, kind: Kind, names: Sequence[str]) -> Run:
        folder = Path(
            tempfile.mkdtemp(dir=self._folder)
        )  # of its own: a job of the run before may still note something
        self._server.start()
        self._server.run("FLUSHALL")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SHARDQ_TEST_LOG", str(folder))
            return (ElsewhereRun if kind.form in DJANGO else Run)(self._server.url, folder, kind, names)


class ElsewhereRun(Run):
    """A run in a process of its own, which has Django."""

    def __init__(self, url: str, folder: Path, kind: Kind, names: Sequence[str]) -> None:
        self._folder = folder
        self.wrong = with_django("of_django", url, {"kind": kind, "names": names})


@pytest.fixture(scope="module")
def runs(default_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(default_server, tmp_path_factory.mktemp("ends"))


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_what_happens_to_a_job(runs: Runs, kind: Kind, name: str) -> None:
    assert runs.wrong(kind).get(name, "") == ""
