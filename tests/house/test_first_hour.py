"""A reader's first hour, by the pages: each step is done as it stands there, and is one click from the one before.

`make wheel` has another reader do the same, in an environment with the wheel and nothing else.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from typing import Final

import pytest

from tests import parts
from tests.house import following
from tests.house.doc_blocks import ROOT
from tests.house.following import HOUR
from tests.house.test_docs import LINK

pytestmark = pytest.mark.runs_in("test-all")

STEPS: Final = {
    "install": (HOUR[0], "Install"),
    "first job": (HOUR[0], "A web server"),
    "first flood": (HOUR[0], "A flood"),
    "first failure": (HOUR[0], "A failure"),
    "first deploy": (HOUR[1], "systemd"),
    "first alert": (HOUR[2], "My first alert"),
}
"""The page of each step, and the heading under which it is done."""

DOORS: Final = ("README.md", "docs/README.md")
"""Where somebody comes in: the repository, and the site."""


def test_the_steps_stand_in_their_order() -> None:
    pages = {page: (ROOT / page).read_text() for page in HOUR}
    places = [(HOUR.index(page), pages[page].index(f"\n## {heading}\n")) for page, heading in STEPS.values()]
    assert places == sorted(places)


@pytest.mark.parametrize(("page", "following_page"), [*((door, HOUR[0]) for door in DOORS), *pairwise(HOUR)])
def test_each_page_leads_to_the_next(page: str, following_page: str) -> None:
    linked = {((ROOT / page).parent / path).resolve() for path, _ in LINK.findall((ROOT / page).read_text())}
    assert ROOT / following_page in linked


@pytest.mark.timeout(600)
def test_the_first_hour_is_followed(record_property: Callable[[str, object], None]) -> None:
    parts.CURL.need()
    pages = following.hour()
    if pages != [*HOUR]:
        record_property("note", f"the first alert was not tried: {parts.PROMETHEUS}")
    told = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.house.doc_blocks", "--together", *pages],
        cwd=ROOT, capture_output=True, text=True, timeout=580,
    )  # fmt: skip
    assert told.returncode == 0, told.stdout + told.stderr
    for line in told.stdout.splitlines():
        if line.startswith(following.NOTE):
            record_property("note", line.removeprefix(following.NOTE))
