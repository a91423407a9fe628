"""Build the wheel the way users get it, look into it, and import it where nothing else is: `make wheel`."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOPS = {"shardq", "pyspark_shardq", "pytest_shardq"}
NEEDED = ("shardq/py.typed", "pyspark_shardq/__init__.py", "pytest_shardq/__init__.py")
LOADS = (
    "import pyspark_shardq; from shardq.protocol import scripts; "
    "print(len([scripts.load(name).sha for name in scripts.names()]))"
)


def build(folder: Path) -> Path:
    """The wheel, by way of the sdist: what is missing there is missing for packagers."""
    told = subprocess.run(
        [sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT)], capture_output=True, text=True
    )
    if told.returncode:
        sys.exit(f"wheel: the build failed\n{told.stdout}{told.stderr}")
    return next(folder.glob("*.whl"))


def problems(wheel: Path) -> list[str]:
    """What differs between lua/ and the wheel's shardq/lua, and what should not be in a wheel at all."""
    with zipfile.ZipFile(wheel) as archive:
        shipped = {name: _digest(archive.read(name)) for name in archive.namelist()}
    wanted = {
        f"shardq/lua/{path.relative_to(ROOT / 'lua').as_posix()}": _digest(path.read_bytes())
        for path in (ROOT / "lua").rglob("*")
        if path.suffix == ".lua" or path.name in ("README.md", "order.txt")
    }
    found = {name: digest for name, digest in shipped.items() if name.startswith("shardq/lua/")}
    tops = {name.split("/")[0] for name in shipped if ".dist-info/" not in name}
    differ = {name for name in wanted.keys() & found.keys() if wanted[name] != found[name]}
    return [
        *(f"{name} is missing" for name in sorted(wanted.keys() - found.keys())),
        *(f"{name} should not be there" for name in sorted(found.keys() - wanted.keys())),
        *(f"{name} differs from the checkout" for name in sorted(differ)),
        *(f"{name} should not be at the top" for name in sorted(tops - TOPS)),
        *(f"{name} is missing" for name in NEEDED if name not in shipped),
    ]


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def loads(wheel: Path, folder: Path) -> str:
    """How many scripts a clean environment with just the wheel (and what it depends on) can load."""
    venv.create(folder / "clean", with_pip=True)
    python = folder / "clean" / "bin" / "python"
    for command in (
        [str(python), "-m", "pip", "install", "-qq", "--disable-pip-version-check", str(wheel)],
        [str(python), "-W", "error", "-c", LOADS],
    ):
        told = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        if told.returncode:
            sys.exit(f"wheel: in a clean environment this failed: {' '.join(command[1:3])}\n{told.stdout}{told.stderr}")
    return told.stdout.strip()


def main() -> None:
    """Build, look, install, load."""
    with tempfile.TemporaryDirectory() as name:
        wheel = build(Path(name))
        if found := problems(wheel):
            sys.exit("\n".join(f"wheel: {each}" for each in found))
        print(f"wheel: {wheel.name} is whole, and loads its {loads(wheel, Path(name))} scripts in a clean environment")


if __name__ == "__main__":
    main()
