"""A URL that is not written down: the option says where each process finds it, so that no plan and no job has it."""

from __future__ import annotations

import os
from typing import Final

from shardq.errors import ConfigError
from shardq.files import read_file

MAX_URL: Final = 4096
"""Bytes of a file that has a URL."""
ENVIRONMENT: Final = "env:"
FILE: Final = "file:"


def is_reference(given: str) -> bool:
    """Whether a URL that is *given* says where the URL is."""
    return given.startswith((ENVIRONMENT, FILE))


def url_of(given: str) -> str:
    """The URL *given*: itself, or what `env:NAME` (a variable of this process) or `file:PATH` (a file here) has.

    ConfigError that names the reference, and never what it holds.
    """
    if given.startswith(ENVIRONMENT):
        name = given.removeprefix(ENVIRONMENT)
        found = os.environ.get(name, "")
        if not found:
            raise ConfigError(
                f"the url is {given}, and this process has no environment variable {name}: it must be set for the "
                "driver before Spark starts, and for the executors by what starts them"
            )
        return found
    if given.startswith(FILE):
        found = read_file(given.removeprefix(FILE), MAX_URL, "the file of the url").decode(errors="replace").strip()
        if not found:
            raise ConfigError(f"the url is {given}, and this file is empty")
        return found
    return given
