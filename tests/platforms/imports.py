"""Import the module that is named, and print how that ended; and a handler that does nothing."""

from __future__ import annotations

import sys
from importlib import import_module

from shardq import ConfigError


def handle(_: object) -> None:
    """Do nothing."""


if __name__ == "__main__":
    try:
        import_module(sys.argv[1])
    except ConfigError as error:
        print(error)
    else:
        print("imported")
