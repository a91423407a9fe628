"""Make the site in build/site/html: `python -m tests.house.site`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from tests.house.doc_blocks import ROOT
from tests.house.site import names, reference, staging
from tests.parts import SITE_HOME

CONFIG: Final = ROOT / "docs" / "mkdocs.yml"
SITE: Final = ROOT / "build" / "site"
"""Where `make site` makes it: pages in Markdown, and html."""
MERMAID: Final = SITE_HOME / "node_modules" / "mermaid" / "dist" / "mermaid.min.js"


def config() -> dict[str, Any]:
    """Return what docs/mkdocs.yml says, without the functions of Python that it names."""
    loader: Any = type("Loader", (yaml.SafeLoader,), {})
    loader.add_constructor(None, lambda *_: None)
    read: dict[str, Any] = yaml.load(CONFIG.read_text(encoding="utf-8"), loader)  # noqa: S506 - it is a SafeLoader
    return read


def menu(nav: list[Any], heading: str = "") -> Iterator[tuple[str, str, str]]:
    """The pages of the menu: the heading that each is below, its title, and its file."""
    for each in nav:
        for title, inner in each.items() if isinstance(each, dict) else [("All pages", each)]:
            if isinstance(inner, list):
                yield from menu(inner, heading or title)
            else:
                yield heading, title, inner


def listing(site: dict[str, Any]) -> str:
    """Return llms.txt: all pages of the menu, as Markdown."""
    text, before = f"# {site['site_name']}\n\n> {site['site_description']}\n", ""
    for heading, title, file in menu(site["nav"]):
        text += f"\n## {heading}\n\n" if heading != before else ""
        text += f"- [{title}]({site['site_url']}{file})\n"
        before = heading
    return text


def source() -> str:
    """Return where the source is."""
    urls: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
    return urls["Source"]


def write_pages(folder: Path) -> None:
    """Put all pages into a folder."""
    drawn = staging.stage(folder, source())
    with (folder / "README.md").open("a", encoding="utf-8") as first:
        first.write("\n## Reference\n\n")
        first.writelines(
            f"- [{title}]({file})\n" for above, title, file in menu(config()["nav"]) if above == "Reference"
        )
    reference.write(folder / "reference", source())
    names.write(folder / "reference" / "api")
    (folder / "assets").mkdir()
    shutil.copyfile(MERMAID, folder / "assets" / "mermaid.min.js")
    for page in drawn:
        up = "../" * (len(page.relative_to(folder).parts) - 1)
        with page.open("a", encoding="utf-8") as file:
            file.write(staging.SCRIPT.format(up=up))


def make(folder: Path) -> Path:
    """Make the site below a folder. Return where its first page is. It ends with an error for a link to nowhere."""
    shutil.rmtree(folder, ignore_errors=True)
    pages, html = folder / "pages", folder / "html"
    write_pages(pages)
    command: list[str | Path] = [SITE_HOME / "bin" / "mkdocs", "build", "-q", "--strict", "-f", CONFIG, "-d", html]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "SHARDQ_PAGES": str(pages)}
    if subprocess.run(command, cwd=ROOT, env=environment).returncode:
        sys.exit("site: MkDocs found what it says above")
    for page in pages.rglob("*.md"):
        shutil.copyfile(page, html / page.relative_to(pages))
    (html / "llms.txt").write_text(listing(config()), encoding="utf-8")
    return html


if __name__ == "__main__":
    made = make(SITE)
    print(f"site: {len([*made.rglob('*.html')])} pages in {made.relative_to(ROOT)}, begin with index.html")
