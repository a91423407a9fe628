"""The site of `make site`: all pages are in its menu, and in a real browser each is whole, and for everybody."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urldefrag

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

from shardq.telemetry.instruments import INSTRUMENTS
from tests import parts
from tests.dashboard.browser import THEMES, Look, Theme, Windows, served
from tests.house.site import __main__ as site
from tests.house.site import names, reference, staging
from tests.surface import commands, error_classes

LINKS: Final = "[...document.querySelectorAll('a[href], img[src]')].map((each) => each.href || each.src)"
NARROW, WIDE = 360, 1440


def test_the_menu_has_each_page_once() -> None:
    files = [file for _, _, file in site.menu(site.config()["nav"])]
    of_docs = {path.relative_to(staging.DOCS).as_posix() for path in staging.DOCS.rglob("*.md")}
    written = {f"reference/{name}" for name in reference.pages("")} | {
        f"reference/api/{name}" for name in names.pages()
    }
    assert sorted(files) == sorted(of_docs | written | {"CHANGELOG.md"})


def test_each_page_of_the_menu_is_listed_for_programs() -> None:
    listed = re.findall(r"^- \[.+\]\((.+)\)$", site.listing(site.config()), re.MULTILINE)
    assert listed == [site.config()["site_url"] + file for _, _, file in site.menu(site.config()["nav"])]


def test_the_first_page_leads_each_reader() -> None:
    first = (staging.DOCS / "README.md").read_text()
    headings = {heading for heading, _, _ in site.menu(site.config()["nav"]) if heading.startswith("I ")}
    assert headings == {"I build with it", "I am on call", "I run the platform", "I am a data engineer"}
    assert headings <= {*re.findall(r"^## (.+)$", first, re.MULTILINE)}


def test_the_pages_of_the_code_have_all_that_it_has() -> None:
    pages = reference.pages("")
    assert {f"shardq {each}" for each in commands()} <= {*re.findall(r"^## (.+)$", pages["commands.md"], re.MULTILINE)}
    assert {*re.findall(r"^\| `(\w+)`", pages["metrics.md"], re.MULTILINE)} == {each.text for each in INSTRUMENTS}
    assert {*re.findall(r"^## (.+)$", pages["errors.md"], re.MULTILINE)} == {*error_classes()}


def test_a_docstring_is_markdown() -> None:
    assert names.markdown("Do it::\n\n    run(1 < 2)\n\nA `<b>` is <b>.\n") == (
        "Do it:\n\n```python\nrun(1 < 2)\n```\n\nA `<b>` is &lt;b&gt;."
    )
    assert names.markdown("Do it.\n\n>>> run(1 < 2)\nTrue\n>>> run()\n\nAnd.") == (
        "Do it.\n\n```pycon\n>>> run(1 < 2)\nTrue\n>>> run()\n```\n\nAnd."
    )
    assert [*names.split("a: dict[str, int] = {}, b: str = ','")] == ["a: dict[str, int] = {}", "b: str = ','"]


def test_links_lead_to_where_pages_are_on_the_site(tmp_path: Path) -> None:
    page = staging.DOCS / "coming_from" / "made_up.md"
    there = {
        "[a](../tasks.md#b)": "[a](../tasks.md#b)",
        "[a](../../CHANGELOG.md)": "[a](../CHANGELOG.md)",
        "[a](../../shardq)": "[a](https://x.example/tree/main/shardq)",
        "`[a](../../CHANGELOG.md)`": "`[a](../../CHANGELOG.md)`",
        "[a](https://b.example)": "[a](https://b.example)",
    }
    assert {link: staging.written_anew(link, page, "https://x.example") for link in there} == there


# --- in a browser ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory) -> Path:
    parts.SITE.need()
    return site.make(tmp_path_factory.mktemp("site"))


@pytest.fixture(scope="module")
def address(html: Path) -> Iterator[str]:
    with served(Starlette(routes=[Mount("/docs", StaticFiles(directory=html, html=True))])) as top:
        yield f"{top}docs/"


@cache
def anchors(path: Path) -> set[str]:
    """What a page has for links to lead to."""
    return {*re.findall(r'\bid="([^"]+)"', path.read_text(encoding="utf-8"))}


def broken(look: Look, html: Path) -> Iterator[str]:
    """The links of a page to what the site has not."""
    for link in set(look.page.evaluate(LINKS)):
        to, anchor = urldefrag(link)
        if not to.startswith(look.address):
            continue
        path = html / (unquote(to.removeprefix(look.address)) or "index.html")
        if not path.is_file() or (anchor and path.suffix == ".html" and unquote(anchor) not in anchors(path)):
            yield f"{look.page.url} leads to {link}"


@pytest.mark.runs_in("test-all")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("theme", THEMES)
def test_each_page_is_whole_and_for_everybody(chromium: Windows, html: Path, address: str, theme: Theme) -> None:
    """Half of the pages in each theme: the whole of it is made of the same pieces. None asks another server."""
    asked: list[str] = []
    with chromium.open(address, NARROW, theme) as look:
        look.page.on("request", lambda request: asked.append(request.url))
        for path in sorted(html.rglob("*.html"))[THEMES.index(theme) :: len(THEMES)]:
            assert {"404.html": path, "index.html": html / "README.md"}.get(
                path.name, path.with_suffix(".md")
            ).is_file()
            look.go(path.relative_to(html).as_posix())
            assert [*broken(look, html)] == []
            look.check_width()
            look.check_axe()
        look.check()
    assert [url for url in asked if not url.startswith(address)] == []


@pytest.mark.runs_in("test-all")
def test_what_is_searched_is_found_and_diagrams_are_drawn(chromium: Windows, address: str) -> None:
    with chromium.open(address, WIDE) as look:
        look.go().fill(".md-search__input", "visibility_timeout")
        look.page.wait_for_selector(".md-search-result__item")
        look.go("internals/flow.html").wait_for_selector(".mermaid")
        look.until("() => !document.querySelector('pre.mermaid')")  # the theme puts a drawing in its place
        look.check()
