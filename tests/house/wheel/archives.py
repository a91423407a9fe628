"""The sdist and the wheel, built the way users get them, and what is in the wheel."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from shardq.protocol import library, sources

ROOT = Path(__file__).resolve().parents[3]
TOPS = {"shardq", "pyspark_shardq", "pytest_shardq"}
LIBRARY = f"shardq/protocol/{library.FILE}"
PAGE = sorted((ROOT / "shardq" / "dashboard" / "page").rglob("*.*"))
NEEDED = (
    LIBRARY, "shardq/py.typed", "pyspark_shardq/__init__.py", "pytest_shardq/__init__.py",
    *(str(path.relative_to(ROOT)) for path in PAGE),
)  # fmt: skip
PIP = (sys.executable, "-m", "pip", "-qq", "--disable-pip-version-check")


class Failed(Exception):
    """What was built or installed failed; the text is what it printed."""


def built(folder: Path) -> Path:
    """The wheel, by way of the sdist: what is missing there is missing for packagers. Failed if it cannot be built.

    It has to be the one that pip builds from a checkout.
    """
    ran(sys.executable, "-m", "build", "--sdist", "--outdir", str(folder), str(ROOT))
    sources = {"sdist": next(folder.glob("*.tar.gz")), "checkout": ROOT}
    with ThreadPoolExecutor() as pool:
        of_sdist, of_checkout = pool.map(lambda name: _wheel(sources[name], folder / name), sources)
    if differ := _files(of_sdist).items() ^ _files(of_checkout).items():
        names = ", ".join(sorted({name for name, _ in differ}))
        raise Failed(f"what pip builds from the sdist is not what it builds from the checkout: {names}")
    return of_sdist


def _wheel(source: Path, folder: Path) -> Path:
    ran(*PIP, "wheel", "--no-deps", "--wheel-dir", str(folder), str(source))
    return next(folder.glob("*.whl"))


def ran(*command: str) -> str:
    """What a command has printed. Failed if it fails."""
    told = subprocess.run(command, capture_output=True, text=True)
    if told.returncode:
        raise Failed(f"{' '.join(command)} failed\n{told.stdout}{told.stderr}")
    return told.stdout


def problems(wheel: Path) -> list[str]:
    """Whether the wheel's library is not what lua/ gives, and what should not be in a wheel at all."""
    shipped = _files(wheel)
    tops = {name.split("/")[0] for name in shipped if ".dist-info/" not in name}
    wanted = _digest(library.encode(sources.read(ROOT / "lua")))
    return [
        *([f"{LIBRARY} is not what lua/ gives"] if shipped.get(LIBRARY, wanted) != wanted else []),
        *(f"{name} should not be at the top" for name in sorted(tops - TOPS)),
        *(f"{name} is missing" for name in NEEDED if name not in shipped),
    ]


def _files(wheel: Path) -> dict[str, str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: _digest(archive.read(name)) for name in archive.namelist()}


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
