"""A real Prometheus that scrapes each second, with the alerts of examples/monitoring in a hurry."""

from __future__ import annotations

import http.client
import json
import re
import subprocess
import urllib.parse
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import yaml

from tests.parts import prometheus
from tests.servers import free_ports
from tests.waiting import eventually

ALERTS = Path(__file__).resolve().parents[2] / "examples" / "monitoring" / "alerts.yml"
HURRY = (
    ("offset 24h", "offset 4s"),
    ("[24h:5m]", "[4s:1s]"),
    ("[10m:15s]", "[1m:1s]"),
    ("[10m]", "[20s]"),
    ("[5m]", "[20s]"),
    ("delivered_total[1m]", "delivered_total[5s]"),
    ("age_seconds) > 300", "age_seconds) > 4"),
    ("age_seconds) > 60", "age_seconds) > 4"),
    ("poll_age_seconds) > 30", "poll_age_seconds) > 4"),
)
"""What takes longer than a drill, and what stands for it. promtool's tests have the real times."""


def hurried() -> Any:
    """The alerts, so that each fires after seconds: all bounds that are no times stay."""
    text = ALERTS.read_text()
    for usual, short in HURRY:
        assert usual in text, f"no alert has {usual}"
        text = text.replace(usual, short)
    return yaml.safe_load(re.sub(r"for: \d+m", "for: 1s", text))


def unchanged() -> Any:
    """The alerts as they are, but what is so for 10 s fires: a scrape that a busy machine missed does not."""
    return yaml.safe_load(re.sub(r"for: \d+m", "for: 10s", ALERTS.read_text()))


class Prometheus:
    """Scrapes addresses by jobs, and knows which alerts fire, until the *stack* ends."""

    def __init__(self, stack: ExitStack, folder: Path, jobs: Mapping[str, Sequence[str]], alerts: Any) -> None:
        program = prometheus("prometheus")
        assert program
        [self.port] = free_ports(1)
        (folder / "alerts.yml").write_text(yaml.safe_dump(alerts))
        scraped = [{"job_name": job, "static_configs": [{"targets": list(them)}]} for job, them in jobs.items()]
        settings = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": ["alerts.yml"],
            "scrape_configs": scraped,
        }
        (folder / "prometheus.yml").write_text(yaml.safe_dump(settings))
        log = stack.enter_context((folder / "prometheus.log").open("wb"))
        words = [
            program, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
            f"--web.listen-address=127.0.0.1:{self.port}", "--log.level=warn",
        ]  # fmt: skip
        self._process = stack.enter_context(subprocess.Popen(words, stdout=log, stderr=log))
        stack.callback(self._process.kill)
        self._log = folder / "prometheus.log"
        eventually(self._is_ready, 60, every=0.1, what="a Prometheus that is ready")
        targets = sum(map(len, jobs.values()))
        eventually(lambda: len(self.ask("up == 1")) == targets, 60, every=0.2, what="that all is scraped")

    def ask(self, expression: str) -> list[Any]:
        """The series of an expression now."""
        result: list[Any] = self._get("/api/v1/query?" + urllib.parse.urlencode({"query": expression}))["result"]
        return result

    def firing(self) -> dict[str, str]:
        """The alerts that fire, each with its summary; several of one name in lines."""
        found: dict[str, str] = {}
        for each in self._get("/api/v1/alerts")["alerts"]:
            if each["state"] == "firing":
                name, text = each["labels"]["alertname"], each["annotations"]["summary"]
                found[name] = f"{found[name]}\n{text}" if name in found else text
        return found

    def fires(self, name: str, summary: str, within: float = 90.0) -> None:
        """Wait until an alert fires, with a summary that fits."""
        last: dict[str, str] = {}

        def does() -> bool:
            nonlocal last
            last = self.firing()
            return re.search(summary, last.get(f"Shardq{name}", ""), re.MULTILINE) is not None

        eventually(does, within, every=0.2, what=f"that Shardq{name} fires as {summary!r}")

    def calms(self, name: str, within: float = 90.0) -> None:
        """Wait until an alert does not fire any more."""
        eventually(lambda: f"Shardq{name}" not in self.firing(), within, every=0.2, what=f"that Shardq{name} ends")

    def _is_ready(self) -> bool:
        assert self._process.poll() is None, self._log.read_text()
        try:
            self.ask("1")
        except (OSError, http.client.HTTPException, AssertionError):
            return False
        return True

    def _get(self, path: str) -> Any:
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)) as connection:
            connection.request("GET", path)
            answer = connection.getresponse()
            body = answer.read()
        assert answer.status == 200, body
        return json.loads(body)["data"]
