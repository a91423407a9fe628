"""The pages of reports: one file that asks for no other, whatever tenants are called, light and dark, on a phone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from shardq.reports.catalog import REPORTS, made
from tests.dashboard.browser import Windows, chromium
from tests.reports.rows import BEGIN, DAY, folder_of, job, worker

__all__ = ["chromium"]

HOSTILE = ("<script>alert(1)</script>", "\u202eevil", "\x1b[31mred", "a&b", '"quoted"', "long" * 60, "größe")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    jobs = [
        job(name, day * DAY + 60.0 * number, 9.0, wait=6.0 + 3.0 * number, parent=name, task=name, plan=name)
        for day in range(9)
        for number, name in enumerate(HOSTILE)
    ]
    return folder_of(tmp_path / "jobs", jobs, capacity=[worker("w", 0, None, 3)])


@pytest.mark.parametrize("name", REPORTS)
def test_a_page_holds_names_as_texts_and_asks_for_nothing(folder: Path, name: str) -> None:
    html = made(name, folder, until=BEGIN + 9 * DAY).html
    assert "<script" not in html
    assert not re.search(r"[\u202e\x1b]", html)
    assert "&lt;script&gt;" in html
    assert not re.search(r"(src|href)=|url\(|@import|https?:", html)
    assert "default-src 'none'" in html


@pytest.mark.parametrize("name", REPORTS)
def test_a_page_of_a_time_without_jobs_is_whole(folder: Path, name: str) -> None:
    html = made(name, folder, since=BEGIN - 9 * DAY, until=BEGIN - 8 * DAY).html
    assert html.count("<svg") == html.count("</svg>") == 1


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_pages_fit_a_phone_in_a_browser(folder: Path, tmp_path: Path, chromium: Windows, theme: str) -> None:
    context = chromium._browser.new_context(viewport={"width": 360, "height": 740}, color_scheme=theme)  # type: ignore[arg-type]
    page, asked, said = context.new_page(), [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    grounds = set()
    for name in REPORTS:
        file = tmp_path / f"{name}.html"
        file.write_text(made(name, folder, until=BEGIN + 9 * DAY).html, encoding="utf-8")
        page.goto(file.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") == 360, name
        assert page.locator("svg").bounding_box() is not None
        grounds.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    context.close()
    assert grounds == {"rgb(255, 255, 255)" if theme == "light" else "rgb(17, 17, 19)"}
    assert [each for each in asked if not each.startswith("file:")] == []
    assert said == []
