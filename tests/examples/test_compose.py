"""The Compose file of examples/compose: as its schema wants it, and of one piece with what it mounts.

That its commands run, and are watched, is shown in tests/drills/test_on_one_machine.py.
"""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from shardq.cli.program import parser
from tests.examples import schemas
from tests.house.test_docs import broken_links
from tests.parts import PROMETHEUS, SCHEMAS, prometheus

pytestmark = pytest.mark.once
FOLDER = Path(__file__).resolve().parents[2] / "examples" / "compose"
COMPOSE = yaml.safe_load((FOLDER / "compose.yaml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
MORE = 5
"""Seconds of Docker's patience above the grace of the workers."""


@SCHEMAS.needed
def test_the_schema_wants_it_so(tmp_path: Path) -> None:
    assert schemas.compose(COMPOSE, tmp_path) == []


@SCHEMAS.needed
def test_the_schema_finds_what_is_wrong(tmp_path: Path) -> None:
    broken = yaml.safe_load((FOLDER / "compose.yaml").read_text())
    broken["services"]["worker"]["replicas"] = 2
    broken["services"]["valkey"]["healthcheck"]["retries"] = "many"
    told = "\n".join(schemas.compose(broken, tmp_path))
    assert "replicas" in told
    assert "/services/valkey/healthcheck/retries" in told


def test_what_is_mounted_is_there() -> None:
    for name, each in SERVICES.items():
        for volume in each.get("volumes", []):
            source, _, rest = volume.partition(":")
            if source.startswith("."):
                assert (FOLDER / source).is_file(), name
                assert rest.endswith(":ro"), name
            else:
                assert source in COMPOSE["volumes"]


def test_the_image_has_what_the_commands_need() -> None:
    lines = (FOLDER / "Dockerfile").read_text().splitlines()
    root = FOLDER / SERVICES["worker"]["build"]["context"]
    copied = [line.split()[1] for line in lines if line.startswith("COPY")]
    assert all((root / each).exists() for each in copied)
    assert "USER nobody" in lines
    for name in ("worker", "metrics"):
        program, *words = SERVICES[name]["command"]
        assert program == "shardq"
        parser().parse_args(words)


def test_the_image_is_built_from_what_it_needs_alone() -> None:
    """Docker looks for the list beside the Dockerfile, under its name. All else is left out."""
    file = Path(SERVICES["worker"]["build"]["dockerfile"])
    root = FOLDER / SERVICES["worker"]["build"]["context"]
    first, *rules = [
        line for line in (root / f"{file}.dockerignore").read_text().splitlines() if not line.startswith("#")
    ]
    sent = {line.removeprefix("!") for line in rules if line.startswith("!")}
    assert first == "*"
    assert [each for each in sorted(sent) if not (root / each).exists()] == []
    build = tomllib.loads((root / "pyproject.toml").read_text())
    wheel = build["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {"pyproject.toml", "README.md", *build["project"]["license-files"], *wheel["only-include"]}
    needed.add(str(Path(wheel["hooks"]["custom"]["path"]).parent))
    copied = [line.split()[1] for line in (root / file).read_text().splitlines() if line.startswith("COPY")]
    assert sent == needed | {each for each in copied if each != "."}


def test_the_time_to_stop_is_the_grace_and_some_seconds() -> None:
    words = SERVICES["worker"]["command"]
    patience = float(SERVICES["worker"]["stop_grace_period"].removesuffix("s"))
    assert patience == float(words[words.index("--grace") + 1]) + MORE


def test_prometheus_scrapes_where_the_services_listen() -> None:
    scraped = yaml.safe_load((FOLDER / "prometheus.yml").read_text())["scrape_configs"]
    [metrics, worker] = scraped
    listens = SERVICES["metrics"]["command"][SERVICES["metrics"]["command"].index("--listen") + 1]
    assert metrics["static_configs"] == [{"targets": [f"metrics:{listens.rpartition(':')[2]}"]}]
    [by_name] = worker["dns_sd_configs"]
    told = SERVICES["worker"]["command"][SERVICES["worker"]["command"].index("--metrics") + 1]
    assert (by_name["names"], by_name["port"]) == (["worker"], int(told.rpartition(":")[2]))


@PROMETHEUS.needed
def test_promtool_reads_what_prometheus_is_given(tmp_path: Path) -> None:
    promtool = prometheus("promtool")
    assert promtool
    for volume in SERVICES["prometheus"]["volumes"]:
        source, target, _ = volume.split(":")
        (tmp_path / Path(target).name).write_bytes((FOLDER / source).read_bytes())
    told = subprocess.run([promtool, "check", "config", tmp_path / "prometheus.yml"], capture_output=True, text=True)
    assert told.returncode == 0, told.stdout + told.stderr


def test_grafana_is_given_the_dashboard_and_its_source() -> None:
    targets = dict(volume.split(":")[:2][::-1] for volume in SERVICES["grafana"]["volumes"])
    provider = yaml.safe_load((FOLDER / "grafana" / "dashboards.yaml").read_text())["providers"][0]
    home = SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert home in targets
    assert str(Path(home).parent) == provider["options"]["path"]
    assert json.loads((FOLDER / targets[home]).read_text())["title"] == "shardq"
    source = yaml.safe_load((FOLDER / "grafana" / "datasource.yaml").read_text())["datasources"][0]
    assert (source["type"], source["url"]) == ("prometheus", "http://prometheus:9090")


def test_only_this_machine_reaches_its_ports() -> None:
    ports = [port for each in SERVICES.values() for port in each.get("ports", [])]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_the_readme_names_what_there_is() -> None:
    text = (FOLDER / "README.md").read_text()
    assert broken_links(FOLDER / "README.md") == []
    for named in re.findall(r"docker compose (?:stop|exec) (\w+)", text):
        assert named in SERVICES
