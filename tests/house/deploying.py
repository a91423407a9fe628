"""What a page shows for deploying is tried: units of systemd, Dockerfiles, manifests of Kubernetes, prometheus.yml.

Each program that they name is started in the folder as they say, is probed as they say, and has to end with 0 after a
SIGTERM, well within the time that they give. No container is made: the programs run on the machine itself.
"""

from __future__ import annotations

import configparser
import contextlib
import http.client
import json
import re
import shlex
import shutil
import signal
import subprocess
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from shardq import Client
from tests.house.installed import satisfied
from tests.house.terminals import PATIENCE
from tests.parts import prometheus
from tests.waiting import eventually

NOTE = "of a page: "
"""How a line begins that a run of tests shall tell at its end."""
GRACE = 25.0  # seconds: that of a worker whose command names none
MORE = 5.0  # seconds that who stops it waits longer: as docs/deploys.md says
STARTED = re.compile(r"worker \d+, version|Uvicorn running on |scaler on ")


@contextmanager
def running(words: list[str], folder: Path, environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program as whoever starts it does; at the end it has to heed SIGTERM."""
    log = folder / "told.txt"
    with log.open("wb") as told:
        program = subprocess.Popen(words, cwd=folder, env=environment, stdout=told, stderr=told)
    try:
        eventually(
            lambda: STARTED.search(log.read_text()) or program.poll() is not None, PATIENCE, what=f"{words} starts"
        )
        assert program.poll() is None, log.read_text()
        yield program
        program.send_signal(signal.SIGTERM)
        code = program.wait(PATIENCE)
        assert code in (0, -signal.SIGTERM), log.read_text()  # uvicorn ends by the signal
    finally:
        program.kill()
        program.wait()


def grace(words: list[str]) -> float:
    """Return how long a worker with this command lets handlers finish."""
    return float(words[words.index("--grace") + 1]) if "--grace" in words else GRACE


def check_unit(path: Path, folder: Path, environment: dict[str, str]) -> None:
    """A unit of systemd: what systemd says of it, and what it runs."""
    if shutil.which("systemd-analyze"):
        told = subprocess.run(["systemd-analyze", "verify", path], capture_output=True, text=True, timeout=60)
        assert (told.returncode, told.stderr) == (0, ""), told.stderr
    else:
        print(f"{NOTE}systemd-analyze is missing, so systemd did not judge the unit of a page")
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(path)
    service = unit["Service"]
    words = shlex.split(service["ExecStart"])
    assert float(service["TimeoutStopSec"]) == grace(words) + MORE
    assert service["WorkingDirectory"] == str(folder)
    if "--processes" in words:  # else each process gets two signals, of which the second ends it at once
        assert service["KillMode"] == "mixed"
    given = dict(each.split("=", 1) for each in shlex.split(service.get("Environment", "")))
    with running(words, folder, environment | given):
        pass


def check_dockerfile(path: Path, folder: Path, environment: dict[str, str]) -> None:
    """A Dockerfile: what it copies is there, what it installs can be had, and its command runs."""
    given: dict[str, str] = {}
    for line in path.read_text().replace("\\\n", " ").splitlines():
        verb, _, rest = line.partition(" ")
        match verb:
            case "COPY":
                *sources, _to = rest.split()
                missing = [each for each in sources if not (folder / each).exists()]
                assert not missing, f"the page has made no {missing}"
            case "RUN":
                words = shlex.split(rest)
                assert words[:2] == ["pip", "install"], f"nothing tries RUN {rest}"
                satisfied(
                    [each for each in words[2:] if each != "--no-cache-dir"], folder, Path(environment["VIRTUAL_ENV"])
                )
            case "ENV":
                given |= dict(each.split("=", 1) for each in shlex.split(rest))
            case "CMD":
                print(f"{NOTE}the command of a Dockerfile was run without a container")
                with running(json.loads(rest), folder, environment | given):
                    pass
            case _:
                assert verb in ("FROM", "WORKDIR", "USER", "#", ""), f"nothing tries {line}"


def check_yaml(path: Path, folder: Path, environment: dict[str, str]) -> None:
    """Settings of Prometheus, or a manifest of Kubernetes.

    Containers of a manifest run, their probes find them well, and what scales them gets a number.
    """
    for each in yaml.safe_load_all(path.read_text()):
        if "scrape_configs" in each:
            _check_scrapes(path)
        else:
            KINDS[each["kind"]](each, folder, environment)


def _check_scrapes(path: Path) -> None:
    promtool = prometheus("promtool")
    assert promtool, "Prometheus is missing"
    told = subprocess.run([promtool, "check", "config", path], capture_output=True, text=True, timeout=60)
    assert told.returncode == 0, told.stdout + told.stderr


def _check_deployment(it: Any, folder: Path, environment: dict[str, str]) -> None:
    template = it["spec"]["template"]
    labels = it["spec"]["selector"]["matchLabels"]
    assert labels.items() <= template["metadata"]["labels"].items()
    for container in template["spec"]["containers"]:
        words = container["command"]
        if words[0] == "shardq":
            assert template["spec"]["terminationGracePeriodSeconds"] == grace(words) + MORE
        given = {name["name"]: name["value"] for name in container.get("env", [])}
        with running(words, folder, environment | given | {"SHARDQ_URL": environment["SHARDQ_URL"]}):
            for name in ("livenessProbe", "readinessProbe"):
                if name in container:
                    eventually(partial(_is_well, container[name], folder), every=0.1, what=name)


def asked(url: str) -> tuple[int, bytes]:
    """Return the status and the answer of a web server of this machine."""
    place = urllib.parse.urlsplit(url)
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", place.port, timeout=30)) as connection:
        connection.request("GET", f"{place.path}?{place.query}")
        answer = connection.getresponse()
        return answer.status, answer.read()


def _is_well(probe: Any, folder: Path) -> bool:
    if "exec" in probe:
        return subprocess.run(probe["exec"]["command"], cwd=folder, capture_output=True, timeout=30).returncode == 0
    there = probe["httpGet"]
    return asked(f"http://localhost:{there['port']}{there['path']}")[0] == 200


def _check_scaled_object(it: Any, folder: Path, environment: dict[str, str]) -> None:
    for trigger in it["spec"]["triggers"]:
        assert trigger["type"] == "metrics-api"
        told = trigger["metadata"]
        place = urllib.parse.urlsplit(told["url"])
        with Client.from_url(environment["SHARDQ_URL"]) as client:
            client.queue(place.path.removeprefix("/queues/"), create=True).read_many(1)
        words = ["shardq", "serve", "scaler", "--listen", f"127.0.0.1:{place.port}"]
        with running(words, folder, environment):
            status, answer = asked(told["url"])
        value = json.loads(answer)
        for name in told["valueLocation"].split("."):
            value = value[name]
        assert (status, isinstance(value, int | float)) == (200, True)
        assert float(told["targetValue"]) > 0


KINDS: dict[str, Callable[[Any, Path, dict[str, str]], None]] = {
    "Deployment": _check_deployment,
    "ScaledObject": _check_scaled_object,
}
CHECKS: dict[str, Callable[[Path, Path, dict[str, str]], None]] = {
    "ini": check_unit,
    "dockerfile": check_dockerfile,
    "yaml": check_yaml,
}
