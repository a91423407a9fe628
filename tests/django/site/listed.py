"""Tasks in a module that is not named `tasks`: OPTIONS["tasks"] lists it."""

from __future__ import annotations

from typing import Any

from django.tasks import task


@task
def counted(number: int) -> int:
    return number + 1


def __getattr__(name: str) -> Any:
    """Run code for a name that is not there, as lazy modules do."""
    raise AssertionError(f"somebody has asked for {name}")
