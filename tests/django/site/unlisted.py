"""A module of the project that nothing imports. A message that names it does not, either."""

from __future__ import annotations

from django.tasks import task


class Boom(Exception):
    """An error that no task raises."""


@task
def wipe() -> None:
    """Do what nobody has asked for."""
