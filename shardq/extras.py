"""The extras of shardq: which packages each brings, and what is said where one of them is missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Final

from shardq.errors import ExtraMissing

_EDGE: Final = ("backports.zstd", "google.protobuf", "grpc")
MODULES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "cron": ("cronsim",),
        "dashboard": ("starlette", "uvicorn"),
        "django": ("django",),
        "edge": _EDGE,
        "gateway": (*_EDGE, "grpc_health", "grpc_reflection"),
        "jobs": ("numpy", "pyarrow"),
        "plot": ("matplotlib",),
        "reports": ("duckdb", "numpy", "pyarrow"),
        "scaler": ("google.protobuf", "grpc", "grpc_health"),
        "spark": ("numpy", "pandas", "pyarrow", "pyspark"),
    }
)
"""The modules of the packages that an extra brings, by the extra's name: those that shardq cannot do without."""


@contextmanager
def extra(name: str, what: str = "this") -> Iterator[None]:
    """Let what is imported in this context come from the extra *name*. ExtraMissing if it is not installed.

    A package that is installed but broken raises what it raises: to install the extra would not mend it. *what* is
    what needs the extra, as in "cron lines".
    """
    try:
        yield
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if not any(f"{each}.".startswith(f"{missing}.") for each in MODULES[name]):
            raise
        raise ExtraMissing(f"{what} needs the extra {name}: {install(name)} ({missing} is missing)") from None


def install(name: str) -> str:
    """Return the command that installs an extra."""
    return f"pip install 'shardq[{name}]'"
