"""The import contracts say what they mean to; `make layers` runs them."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
LAYERS, _, FORBIDDEN, _ = SETTINGS["contracts"]


def modules() -> set[str]:
    """The modules and packages right below shardq."""
    found = {path.stem for path in (ROOT / "shardq").glob("*.py")}
    return (found | {path.parent.name for path in (ROOT / "shardq").glob("*/__init__.py")}) - {"__init__"}


def test_the_contracts_hold() -> None:
    told = subprocess.run(
        [str(Path(sys.executable).with_name("lint-imports"))], cwd=ROOT, capture_output=True, text=True
    )
    assert told.returncode == 0, told.stdout + told.stderr


def test_everything_below_the_drivers_is_kept_from_doing_io() -> None:
    layers = [re.findall(r"\w+", layer) for layer in LAYERS["layers"]]
    drivers = next(at for at, layer in enumerate(layers) if "drivers" in layer)
    below = {name for layer in layers[drivers + 1 :] for name in layer} & modules()
    assert {name.removeprefix("shardq.") for name in FORBIDDEN["source_modules"]} == below
