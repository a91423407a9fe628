"""A server of this folder's own, and Python with Django."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.parts import APPS, APPS_BIN
from tests.worker.conftest import default_server, url

__all__ = ["default_server", "url"]  # pytest finds the fixtures here

ROOT = Path(__file__).parents[2]
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def site(url: str, tmp_path: Path) -> dict[str, str]:
    """The environment of programs with Django's settings of this folder."""
    return os.environ | {
        "DJANGO_SETTINGS_MODULE": "tests.django.site.settings",
        "SHARDQ_URL": url,
        "SITE_DATABASE": str(tmp_path / "site.sqlite3"),
    }


@pytest.fixture
def run(site: dict[str, str]) -> Run:
    """Run a module with Django's settings of this folder."""
    APPS.need()

    def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        command = [str(APPS_BIN / "python"), "-W", "error::RuntimeWarning", "-m", *words]
        environment = site | environment
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=150)

    return run
