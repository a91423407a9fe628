"""The manifests of examples/kubernetes: as their schemas want them, and of one piece with each other and the commands.

That their commands run is shown in tests/drills/test_on_one_machine.py.
"""

from __future__ import annotations

import copy
import os
import re
import shlex
import shutil
import subprocess
import sys
import urllib.parse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from shardq import Client
from shardq.cli.program import parser
from shardq.exporter.policy import Numbers
from shardq.exporter.scaler import shown
from shardq.exporter.trigger import policy_of, trigger_of
from tests.examples import schemas
from tests.house.doc_blocks import blocks
from tests.house.test_docs import broken_links
from tests.parts import REDIS, SCHEMAS
from tests.servers import Server, available

pytestmark = pytest.mark.once
FOLDER = Path(__file__).resolve().parents[2] / "examples" / "kubernetes"
FILES = sorted(FOLDER.glob("*.yaml"))
MORE = 5
"""Seconds of Kubernetes's patience above the grace of the workers."""


def documents(path: Path) -> list[Any]:
    """All manifests of a file."""
    return list(yaml.safe_load_all(path.read_text()))


ALL = [each for path in FILES for each in documents(path)]


def found(kind: str, name: str) -> Any:
    """The manifest of this kind and name."""
    [it] = [each for each in ALL if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return it


def container(name: str) -> Any:
    """The only container of a Deployment."""
    [it] = found("Deployment", name)["spec"]["template"]["spec"]["containers"]
    return it


def rule() -> Any:
    """The PrometheusRule that the README makes of the alerts."""
    [text] = [each.code for each in blocks(FOLDER / "README.md") if "PrometheusRule" in each.code]
    command = text.replace("kubectl apply -f -", "cat")
    told = subprocess.run(["bash", "-c", command], cwd=FOLDER, capture_output=True, text=True, timeout=60, check=True)
    return yaml.safe_load(told.stdout)


@pytest.mark.runs_in("test-all")
@SCHEMAS.needed
def test_the_schemas_want_them_so(tmp_path: Path) -> None:
    assert schemas.manifests([*ALL, rule()], tmp_path) == []


def _set(path: str, value: object) -> Callable[[Any], None]:
    def change(document: Any) -> None:
        *steps, last = (int(each) if each.isdigit() else each for each in path.split("/"))
        for step in steps:
            document = document[step]
        document[last] = value

    return change


WRONG = {
    "IPodTemplateSpec|IPodSpec": ("Deployment", "reports-worker", _set("spec/template/spec/gracePeriod", 35)),
    "ISecurityContext": (
        "Deployment", "reports-scaler", _set("spec/template/spec/containers/0/securityContext/readOnly", True),
    ),
    "IScaledObjectSpec": ("ScaledObject", "reports-worker", _set("spec/minReplicas", 1)),
    "behavior": ("ScaledObject", "reports-worker", _set("spec/fallback/behavior", "keep")),
    "string": ("ScaledObject", "reports-worker", _set("spec/triggers/0/metadata/target", 16)),
    "IPodMetricsEndpoint": ("PodMonitor", "reports", _set("spec/podMetricsEndpoints/0/every", "15s")),
    "interval": ("PodMonitor", "reports", _set("spec/podMetricsEndpoints/0/interval", "soon")),
    "policyTypes|NetworkPolicy": ("NetworkPolicy", "reports-scaler", _set("spec/ingress/0/ports/0/protocol", 6)),
}  # fmt: skip


@pytest.mark.runs_in("test-all")
@SCHEMAS.needed
def test_the_schemas_find_what_is_wrong(tmp_path: Path) -> None:
    broken = []
    for kind, name, change in WRONG.values():
        it = copy.deepcopy(next(each for each in ALL if (each["kind"], each["metadata"]["name"]) == (kind, name)))
        change(it)
        broken.append(it)
    told = schemas.manifests(broken, tmp_path)
    assert [words for words in WRONG if not re.search(words, "\n".join(told))] == [], told
    assert len(told) >= len(WRONG)


def test_the_time_to_stop_is_the_grace_and_some_seconds() -> None:
    pod = found("Deployment", "reports-worker")["spec"]["template"]["spec"]
    words = container("reports-worker")["command"]
    assert pod["terminationGracePeriodSeconds"] == float(words[words.index("--grace") + 1]) + MORE
    assert "lifecycle" not in container("reports-worker")


def test_the_probe_looks_at_the_file_that_the_worker_touches() -> None:
    it = container("reports-worker")
    path = it["command"][it["command"].index("--alive-file") + 1]
    assert path in it["livenessProbe"]["exec"]["command"][-1]
    assert Path(path).is_relative_to(it["volumeMounts"][0]["mountPath"])  # the rest is read-only


def test_ports_have_one_number_and_one_name() -> None:
    worker, scaler = container("reports-worker"), container("reports-scaler")
    declared = {each["name"]: each["containerPort"] for each in worker["ports"] + scaler["ports"]}
    assert declared == {"metrics": 9464, "http": 8080, "grpc": 6000}
    words = [*worker["command"], *scaler["command"]]
    for flag, name in (("--metrics", "metrics"), ("--listen", "http"), ("--grpc", "grpc")):
        assert words[words.index(flag) + 1].endswith(f":{declared[name]}")
    named = re.findall(r"port: (\w+)\b", "".join(path.read_text() for path in FILES))
    assert {each for each in named if not each.isdigit()} <= set(declared)
    service = {
        each["name"]: (each["port"], each["targetPort"]) for each in found("Service", "reports-scaler")["spec"]["ports"]
    }
    assert service == {name: (declared[name], name) for name in ("http", "grpc")}
    for each in ALL:
        if each["kind"] == "ScaledObject":
            [trigger] = each["spec"]["triggers"]
            told = trigger["metadata"].get("scalerAddress") or trigger["metadata"]["url"]
            port = declared["grpc" if trigger["type"] == "external-push" else "http"]
            assert re.match(rf"(http://)?reports-scaler\.default\.svc\.cluster\.local:{port}(/|$)", told)


def test_all_pods_are_selected_by_what_means_them() -> None:
    labels = {
        each["metadata"]["name"]: each["spec"]["template"]["metadata"]["labels"]
        for each in ALL
        if each["kind"] == "Deployment"
    }
    assert set(labels) == {"reports-worker", "reports-scaler"}
    for each in ALL:
        spec, name = each["spec"], each["metadata"]["name"]
        chosen = spec.get("selector") or spec.get("podSelector")
        if chosen:
            chosen = chosen.get("matchLabels", chosen)
            means = set(labels) if each["kind"] == "PodMonitor" else {name}
            assert {it for it, own in labels.items() if chosen.items() <= own.items()} == means


def test_both_forms_scale_the_workers_and_keep_them_while_nobody_knows() -> None:
    forms = [each["spec"] for each in ALL if each["kind"] == "ScaledObject"]
    assert sorted(each["triggers"][0]["type"] for each in forms) == ["external-push", "metrics-api"]
    for each in forms:
        assert each["scaleTargetRef"]["name"] == "reports-worker"
        assert each["fallback"]["behavior"] == "currentReplicasIfHigher"
        assert each["fallback"]["replicas"] > 0  # KEDA takes 0 for none, and then takes all workers away
        assert each["minReplicaCount"] <= each["fallback"]["replicas"] <= each["maxReplicaCount"]


def test_no_pod_has_rights_that_it_does_not_need() -> None:
    for name in ("reports-worker", "reports-scaler"):
        pod, it = found("Deployment", name)["spec"]["template"]["spec"], container(name)
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert it["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert set(it["resources"]) == {"requests", "limits"}


def test_the_readme_makes_what_the_manifests_need() -> None:
    text = (FOLDER / "README.md").read_text()
    assert broken_links(FOLDER / "README.md") == []
    for name in ("reports-worker", "reports-scaler"):
        [variable] = container(name)["env"]
        wanted = variable["valueFrom"]["secretKeyRef"]
        assert variable["name"] == "SHARDQ_URL"
        assert f"create secret generic {wanted['name']}" in text
        assert f"--from-literal={wanted['key']}=" in text
    [applied] = [line for line in text.splitlines() if line.startswith("kubectl apply")]
    words = shlex.split(applied)
    for path in FILES:
        assert f"]({path.name})" in text
        assert path.name in words or path.name == "scaled-object-http.yaml"


KUBECTL = """#!/bin/sh
printf '%s\\n' "$@" >> "$TOLD"
if [ "$1 $2 $3" = "apply -f -" ]; then cat >> "$TOLD"; fi
"""


@pytest.mark.runs_in("test-all")
@REDIS.needed
def test_the_readme_can_be_followed_in_order(tmp_path: Path) -> None:
    """All commands but those of Kubernetes are real: both users can do what they are for, and the queue is there."""
    folder, told, kubectl = tmp_path / "kubernetes", tmp_path / "told.txt", tmp_path / "bin" / "kubectl"
    shutil.copytree(FOLDER, folder)
    shutil.copytree(FOLDER.parent / "monitoring", tmp_path / "monitoring")
    kubectl.parent.mkdir()
    kubectl.write_text(KUBECTL)
    kubectl.chmod(0o755)
    path = os.pathsep.join((str(kubectl.parent), str(Path(sys.executable).parent), os.environ["PATH"]))
    commands = "\n".join(each.code for each in blocks(FOLDER / "README.md") if each.language == "bash")
    kind = next(each for each in available() if each.product == "redis")
    with Server(kind, port=0) as server:
        place = "{}:{}".format(*server.address)
        ended = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", commands.replace("localhost:6379", place)],
            cwd=folder, env=os.environ | {"PATH": path, "TOLD": str(told)}, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert ended.returncode == 0, ended.stderr
        assert ended.stdout.splitlines().count("OK") == 2, ended.stdout
        urls = {
            name: url.replace("@redis:6379", f"@{place}")
            for name, url in re.findall(r"^--from-literal=(\w+)-url=(.+)$", told.read_text(), re.MULTILINE)
        }
        with (
            Client.from_url(f"redis://{place}") as writer,
            Client.from_url(urls["worker"]) as worker,
            Client.from_url(urls["scaler"]) as scaler,
        ):
            assert scaler.queue("reports").stats().backlog == 0
            writer.queue("reports").write("x", shard_key="t")
            assert scaler.queue("reports").stats().backlog == 1
            worker.queue("reports").read().ack()
    for form in ("push", "http"):
        assert ".reports.svc." in (folder / f"scaled-object-{form}.yaml").read_text()
    assert "kind: PrometheusRule" in told.read_text()
    assert list(folder.glob("*.password")) == []


def test_prometheus_s_operator_takes_both() -> None:
    """That of kube-prometheus-stack takes what has its release's label."""
    wanted = {"release": "kube-prometheus-stack"}
    assert found("PodMonitor", "reports")["metadata"]["labels"] == wanted == rule()["metadata"]["labels"]


def test_the_commands_are_shardq_s() -> None:
    for name in ("reports-worker", "reports-scaler"):
        program, *words = container(name)["command"]
        assert program == "shardq"
        parser().parse_args(words)
    with pytest.raises(SystemExit):
        parser().parse_args(["worker", "app.tasks:tasks", "--metric-port", "9464"])


def test_the_scaler_takes_what_keda_sends_it() -> None:
    by_type = {
        each["spec"]["triggers"][0]["type"]: each["spec"]["triggers"][0]
        for each in ALL
        if each["kind"] == "ScaledObject"
    }
    push = trigger_of(by_type["external-push"]["metadata"])
    assert (push.queue, push.policy.metric, push.policy.target, push.policy.lead) == ("reports", "load", 16, 30)
    place = urllib.parse.urlsplit(by_type["metrics-api"]["metadata"]["url"])
    assert place.path == "/queues/reports"
    query = dict(urllib.parse.parse_qsl(place.query))
    numbers = Numbers(3, 2, 0, None, 1.0, None, 1, 16)
    policy = policy_of({"target": "1"} | query)
    assert policy.lead == 30
    assert shown(numbers, policy, query)[by_type["metrics-api"]["metadata"]["valueLocation"]] == 5
