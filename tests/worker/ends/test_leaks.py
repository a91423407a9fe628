"""What a job sets of its context is gone with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.parts import APPS
from tests.selection import COMMAND
from tests.worker.ends.catalogue import DJANGO, FORMS, Form
from tests.worker.ends.elsewhere import with_django
from tests.worker.ends.leaks import leaks
from tests.worker.ends.running import Kind

COUNT = 60 if COMMAND == "test" else 12_500
"""Jobs of each form: more than 100,000 in all."""


@pytest.mark.timeout(180)
@pytest.mark.parametrize("form", [pytest.param(form, marks=[APPS.needed] * (form in DJANGO)) for form in FORMS])
def test_no_job_finds_what_others_have_set(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: Form
) -> None:
    monkeypatch.setenv("SHARDQ_TEST_LOG", str(tmp_path))
    kind = Kind(form, "context")
    if form in DJANGO:
        assert with_django("leaks", url, {"kind": kind, "count": COUNT}) == []
    else:
        assert leaks(url, tmp_path, kind, COUNT) == []
