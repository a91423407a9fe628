"""What is published: `make release` makes it of the last commit, in dist/, and looks whether others can install it.

Wheel and sdist are built twice, in two places, and must have the same bytes. Nothing is uploaded.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from email.message import Message
from email.parser import BytesParser
from pathlib import Path
from typing import Final

from tests.house.wheel import archives
from tests.house.wheel.archives import PIP, ROOT, Failed, ran
from tests.house.wheel.environments import Environment
from tests.house.wheel.pages import Install

PRODUCTION: Final = frozenset({"cli", "cron", "embedded", "gateway", "otel"})
"""The extras of a program of production: SBOM and constraints are about what they install."""
TOOLS: Final = ("cyclonedx-bom>=7,<8", "readme-renderer[md]>=44", "twine>=6.1,<8")
"""They have an environment of their own, and are in no file that is published."""
FIELDS: Final = (
    "Summary", "License-Expression", "License-File", "Requires-Python", "Keywords", "Description-Content-Type",
)  # fmt: skip
URLS: Final = ("Documentation", "Source", "Changes", "Support")
CLASSIFIERS: Final = ("Development Status", "Intended Audience", "Operating System", "Programming Language", "Topic")
NOWHERE: Final = ".example/"
"""What an address has that is nobody's."""


def export(folder: Path) -> None:
    """Put the last commit into a folder: what is not committed is not published."""
    folder.mkdir()
    with subprocess.Popen(["git", "archive", "HEAD"], cwd=ROOT, stdout=subprocess.PIPE) as archive:
        subprocess.run(["tar", "-x", "-C", str(folder)], stdin=archive.stdout, check=True)
    if archive.returncode:
        raise Failed("git archive failed: a release is made in a clone of the repository")


def build(source: Path, out: Path) -> dict[str, Path]:
    """Build sdist and wheel as of the time of the last commit. Return them by name."""
    epoch = ran("git", "-C", str(ROOT), "log", "-1", "--format=%ct").strip()
    command = [sys.executable, "-m", "build", "--outdir", str(out), str(source)]
    told = subprocess.run(command, env={**os.environ, "SOURCE_DATE_EPOCH": epoch}, capture_output=True, text=True)
    if told.returncode:
        raise Failed(f"the build failed\n{told.stdout}{told.stderr}")
    return {each.name: each for each in sorted(out.iterdir())}


def build_twice(folder: Path, out: Path) -> list[Path]:
    """Build in two places, and keep one. Failed if a file has other bytes in the other place."""
    built = []
    for place, where in (("once", out), ("again", folder / "built again")):
        export(folder / place)
        built.append(build(folder / place, where))
    once, again = ({name: digest(path) for name, path in files.items()} for files in built)
    if differ := sorted({name for name, _ in once.items() ^ again.items()}):
        raise Failed(f"two builds have other bytes: {', '.join(differ)}")
    return [*built[0].values()]


def digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def metadata_of(wheel: Path) -> Message:
    """Return what a package index reads."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return BytesParser().parsebytes(archive.read(name))


def lacks(metadata: Message) -> Iterator[str]:
    """What a reader of the package index misses."""
    urls = dict(each.split(", ", 1) for each in metadata.get_all("Project-URL", []))
    kinds = {each.split(" ::")[0] for each in metadata.get_all("Classifier", [])}
    yield from (f"the field {name}" for name in FIELDS if not metadata[name])
    yield from (f"the project URL {name}" for name in URLS if not urls.get(name, "").startswith("https://"))
    yield from (f"a classifier {name}" for name in CLASSIFIERS if name not in kinds)


def relative_links(html: str) -> list[str]:
    """The links and pictures of a page that lead nowhere on a package index."""
    return [each for each in re.findall(r'(?:href|src)="([^"]*)"', html) if not each.startswith(("https://", "#"))]


def check(files: list[Path], tools: Path, folder: Path) -> None:
    """Look at the files as a package index does. Failed if it would refuse them, or show a link that leads nowhere."""
    ran(str(tools), "-m", "twine", "check", "--strict", *map(str, files))
    metadata = metadata_of(next(path for path in files if path.suffix == ".whl"))
    if missing := [*lacks(metadata)]:
        raise Failed(f"the metadata have not: {', '.join(missing)}")
    readme = folder / "readme.md"
    readme.write_bytes(bytes(metadata.get_payload(decode=True)))
    if links := relative_links(ran(str(tools), "-m", "readme_renderer", str(readme))):
        raise Failed(f"links of the readme that lead nowhere on a package index: {', '.join(links)}")


def tried(files: list[Path], folder: Path) -> Path:
    """Install each file into an environment that has nothing else, and look at it there.

    Return the Python of the one that a program of production has. Failed if a user would meet a problem.
    """
    core, full = (Environment(Install(extras, ()), ()) for extras in (frozenset[str](), PRODUCTION))
    sdist, wheel = sorted(files, key=lambda path: path.suffix == ".whl")
    lacked: list[str] | None = None
    python = Path()
    for number, (file, each) in enumerate(((wheel, core), (sdist, core), (wheel, full))):
        python = each.make(file, sys.executable, folder / f"environment {number}")
        found = each.look(python, lacked)
        lacked = found.lacks
        if found.problems:
            raise Failed("\n".join(f"{file.name} with {each}: {problem}" for problem in found.problems))
    return python


def write_contents(python: Path, tools: Path, out: Path) -> None:
    """Write what an environment has, with versions: constraints for pip, and an SBOM."""
    for path in python.parents[1].glob("lib/*/site-packages/shardq-*.dist-info/direct_url.json"):
        path.unlink()  # it has a path of this machine
    frozen = ran(*PIP, "--python", str(python), "freeze").splitlines(keepends=True)
    (out / "constraints.txt").write_text("".join(line for line in frozen if not line.startswith("shardq")))
    sbom = ("environment", "--output-reproducible", "-o", str(out / "sbom.cdx.json"), str(python))
    ran(str(tools), "-m", "cyclonedx_py", *sbom)


def release(out: Path) -> Mapping[str, str]:
    """Make all that is published. Return the hash of each file. Failed if one is not fit for it."""
    out.mkdir(parents=True, exist_ok=True)
    for path in out.iterdir():
        path.unlink()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = build_twice(folder, out)
        if problems := archives.problems(next(out.glob("*.whl"))):
            raise Failed("\n".join(problems))
        ran(sys.executable, "-m", "venv", "--without-pip", str(folder / "tools"))
        tools = folder / "tools" / "bin" / "python"
        ran(*PIP, "--python", str(tools), "install", *TOOLS)
        check(files, tools, folder)
        write_contents(tried(files, folder), tools, out)
    hashes = {path.name: digest(path) for path in sorted(out.iterdir())}
    (out / "SHA256SUMS").write_text("".join(f"{each}  {name}\n" for name, each in hashes.items()))
    return hashes


def main() -> None:
    """Make it, and say what there is: `python -m tests.house.release [folder]`."""
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "dist"
    try:
        hashes = release(out)
    except Failed as error:
        sys.exit(f"release: {error}")
    if NOWHERE in str(metadata_of(next(out.glob("*.whl"))).get_all("Project-URL")):
        print("release: do not upload it yet: [project.urls] in pyproject.toml has addresses that are nobody's")
    commit = ran("git", "-C", str(ROOT), "log", "-1", "--format=%h, %s").strip()
    print(f"release: {out.name}/ has, of the commit {commit}: {' '.join(hashes)} SHA256SUMS")


if __name__ == "__main__":
    main()
