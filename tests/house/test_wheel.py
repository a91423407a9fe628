"""`make wheel` sees what it should: what pages install and show, and what a user meets in an environment."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.house.doc_blocks import ROOT
from tests.house.wheel.archives import LIBRARY, problems
from tests.house.wheel.environments import environments
from tests.house.wheel.pages import Install, Page, installs_in, page_of, pages
from tests.house.wheel.probe import Ended

PAGE = """
Run `pip install '.[edge,cron]'`, or `pip install "other[more]"`.

```console
$ python3 -m venv .venv
$ pip install '../shardq[embedded]' flask 'fakeredis[lua]'  # shardq[spark] is not needed
$ printf '[queues.jobs]' | shardq apply - --yes
$ shardq edge send jobs x -t t
shardq: ... worker ..., version ...
```

```python
text = "shardq stats jobs"
```
"""


@pytest.mark.parametrize(
    ("line", "extras", "others"),
    [
        ("pip install shardq", [], ()),
        ("RUN pip install --no-cache-dir 'shardq[embedded]'", ["embedded"], ("--no-cache-dir",)),
        ("`pip install .`", [], ()),
        ("$ pip install '../shardq[cron,plot]' flask", ["cron", "plot"], ("flask",)),
    ],
)
def test_a_line_that_installs_the_project_is_found(line: str, extras: list[str], others: tuple[str, ...]) -> None:
    assert [*installs_in(line)] == [Install(frozenset(extras), others)]


@pytest.mark.parametrize("line", ["pip install flask", "pip wheel shardq", "pip install -r requirements.txt"])
def test_a_line_that_installs_something_else_is_none(line: str) -> None:
    assert [*installs_in(line)] == []


def test_a_page_is_what_its_reader_installs_and_types(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(PAGE)
    assert page_of(tmp_path / "page.md") == Page(
        "page.md",
        (
            Install(frozenset({"edge", "cron"}), ()),
            Install(frozenset({"embedded"}), ("flask", "fakeredis[lua]")),
        ),
        ("apply", "edge send"),
    )


def test_the_pages_of_the_project_are_read() -> None:
    found = {page.name: page for page in pages()}
    assert Install(frozenset({"embedded"}), ("fastapi", "uvicorn")) in found["docs/tutorial.md"].installs
    assert {"embedded", "worker app"} <= {*found["docs/tutorial.md"].commands}
    assert found["docs/on-call.md"].installs == found["README.md"].installs != ()


def test_there_is_an_environment_for_the_core_each_extra_and_each_other_line() -> None:
    line = Install(frozenset({"embedded"}), ("flask",))
    made = [*environments([Page("a", (line,), ("len",)), Page("b", (line, Install(frozenset({"cli"}), ())), ("top",))])]
    assert made[0].install == Install(frozenset(), ())
    extras = {name for each in made for name in each.install.extras}
    assert extras == {
        "cli",
        "cron",
        "dashboard",
        "django",
        "edge",
        "embedded",
        "gateway",
        "jobs",
        "otel",
        "plot",
        "reports",
        "scaler",
        "spark",
    }
    assert len(made) == 1 + len(extras) + 1
    shown = {each.install: each.shown for each in made if each.shown}
    assert shown == {line: (("a", "len"), ("b", "top")), Install(frozenset({"cli"}), ()): (("b", "top"),)}


@pytest.mark.parametrize(
    ("ended", "problem"),
    [
        (Ended("shardq", 2, "", "usage: ..."), []),
        (Ended("shardq", 0, "usage: ...", ""), ["`shardq` ends with 0, and not with 2"]),
        (
            Ended(
                "shardq", 1, "", "Traceback (most recent call last):\n  ...\nModuleNotFoundError: No module 'google'\n"
            ),
            ["`shardq` ends in ModuleNotFoundError: No module 'google'"],
        ),
    ],
)
def test_how_a_command_ended_is_judged(ended: Ended, problem: list[str]) -> None:
    assert [*ended.problems(2)] == problem


MODULES = {
    "__init__": "",
    "_private": "raise ValueError",
    "alone": "import made_up.first; assert 'made_up.second' in __import__('sys').modules",
    "broken": "import nowhere",
    "edge": "raise ImportError(\"this needs the extra edge: pip install 'shardq[edge]' (grpc is missing)\")",
    "plot": "raise ImportError(\"this needs the extra plot: pip install 'shardq[plot]' (matplotlib is missing)\")",
    "first": "",
    "second": "",
    "warns": "import warnings; warnings.warn('old', DeprecationWarning)",
    "dies": "import os; os._exit(7)",
}
IMPORTED = """
import json
from tests.house.wheel.probe import folders_of, imported_alone, walked, with_packages
names = list(walked("made_up", folders_of("made_up")))
print(json.dumps(imported_alone("made_up", folders_of("made_up"), with_packages(names), {"plot"})))
"""


def test_each_module_is_imported_as_the_first_and_says_what_it_needs(tmp_path: Path) -> None:
    """In a process of its own, which has no threads and so may fork."""
    (tmp_path / "made_up").mkdir()
    for name, code in MODULES.items():
        (tmp_path / "made_up" / f"{name}.py").write_text(code)
    program = f"import sys; sys.path += [{str(tmp_path)!r}, {str(ROOT)!r}]\n{IMPORTED}"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    problems: dict[str, Any] = json.loads(told.stdout)
    assert problems == {
        "made_up": "",
        "made_up.alone": "AssertionError: ",
        "made_up.broken": "ModuleNotFoundError: No module named 'nowhere'",
        "made_up.dies": "the end of its process, with 7",
        "made_up.edge": None,
        "made_up.first": "",
        "made_up.plot": "ImportError: this needs the extra plot: pip install 'shardq[plot]' (matplotlib is missing)",
        "made_up.second": "",
        "made_up.warns": "DeprecationWarning: old",
    }


def test_a_wheel_with_another_library_than_that_of_lua_is_found(tmp_path: Path) -> None:
    file = tmp_path / "shardq.whl"
    for text, problem in ((None, f"{LIBRARY} is missing"), (b"another", f"{LIBRARY} is not what lua/ gives")):
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("shardq/py.typed", "")
            if text:
                archive.writestr(LIBRARY, text)
        assert [each for each in problems(file) if "library" in each] == [problem]
