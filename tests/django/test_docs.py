"""The blocks of docs/django.md, in a project of their own: some name the file that they are, others are a program."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.house.doc_blocks import URL, Block, blocks
from tests.parts import APPS, APPS_BIN

pytestmark = [pytest.mark.once, pytest.mark.runs_in("test-all")]
ROOT = Path(__file__).parents[2]
BASE = """
SECRET_KEY = "of a page"
USE_TZ = True
INSTALLED_APPS = ["shop"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "site.sqlite3"}}
"""


def file_of(block: Block) -> str | None:
    """The file that a block is, as its first line says."""
    first = block.code.partition("\n")[0]
    return first.removeprefix("# ") if first.startswith("# ") else None


def test_the_page_works(url: str, tmp_path: Path) -> None:
    APPS.need()
    page = list(blocks(ROOT / "docs" / "django.md"))
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").touch()
    (tmp_path / "manage.py").write_text((ROOT / "examples/apps/django/manage.py").read_text())
    program = ["import django", "django.setup()"]
    for block in page:
        if block.language != "python":
            continue
        if (name := file_of(block)) is None:
            program.append(block.code)
        else:
            (tmp_path / name).write_text((BASE if name.endswith("settings.py") else "") + block.code.replace(URL, url))
    environment = os.environ | {"DJANGO_SETTINGS_MODULE": "shop.settings", "SHARDQ_URL": url}

    def run(*words: str) -> None:
        told = subprocess.run(
            [str(APPS_BIN / "python"), *words],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert told.returncode == 0, told.stderr

    run("-c", "\n".join(program))
    (command,) = [
        line.removeprefix("$ ") for block in page if block.language == "console" for line in block.code.splitlines()
    ]
    assert command.startswith("python manage.py ")
    run(*shlex.split(command)[1:], "--until", "empty")
    run("manage.py", "check", "--fail-level", "WARNING")
    assert {file_of(block) for block in page if block.language == "python"} == {
        None,
        "shop/settings.py",
        "shop/tasks.py",
    }
