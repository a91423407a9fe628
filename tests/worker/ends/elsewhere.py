"""A process that has Django, for which the project's own Python may be too old."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from tests.parts import APPS_BIN
from tests.worker.ends.catalogue import SETTINGS

ROOT = Path(__file__).parents[3]


def environment_of(url: str) -> dict[str, str]:
    """What such a process finds in its environment."""
    return os.environ | {
        "DJANGO_SETTINGS_MODULE": "tests.django.site.settings", "SHARDQ_URL": url,
        "SITE_OPTIONS": json.dumps(SETTINGS | {"retries": 4, "tasks": ["tests.django.site.ends"]}),
    }  # fmt: skip


def with_django(module: str, url: str, asked: object) -> Any:
    """Ask a module of this folder, as JSON. Return what it prints."""
    told = subprocess.run(
        [APPS_BIN / "python", "-m", f"tests.worker.ends.{module}"], cwd=ROOT, env=environment_of(url), text=True,
        input=json.dumps(asked), capture_output=True, timeout=140,
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
    return json.loads(told.stdout)
