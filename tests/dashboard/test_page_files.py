"""The page's files: nothing in them parses HTML or leaves the page's own address, and what they name is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.dashboard.stage import PAGE

FILES = sorted(each for each in PAGE.rglob("*") if each.is_file())
SCRIPTS = [each for each in FILES if each.suffix == ".js"]
PARSES = ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "DOMParser", "createContextualFragment",
          "setHTML", "srcdoc", "eval(", "new Function", "javascript:")  # fmt: skip
"""What makes elements, or a program, of a text."""
STYLES = re.compile(r"""\bstyle\s*[=:]|\.style\b|cssText|<style""")
ADDRESS = re.compile(r"""(?:https?:)?//[\w.-]+\.\w+[^\s"'`)]*""")
OWN = ("http://www.w3.org/2000/svg",)
"""Names of namespaces: nothing is fetched from there."""


def named(path: Path) -> str:
    return str(path.relative_to(PAGE))


@pytest.mark.parametrize("path", SCRIPTS, ids=named)
def test_text_is_only_ever_text(path: Path) -> None:
    text = path.read_text()
    # One comment says that it is not used.
    assert [each for each in PARSES if each in "\n".join(_without_comments(text))] == []


@pytest.mark.parametrize("path", [each for each in FILES if each.suffix in (".js", ".html")], ids=named)
def test_no_file_has_a_style_of_its_own(path: Path) -> None:
    """The policy of the page forbids it: such a style would do nothing but be reported."""
    text = "\n".join(_without_comments(path.read_text()))
    assert STYLES.findall(text) == []
    assert re.findall(r"<script(?![^>]*\bsrc=)|\son\w+=", text) == []


def test_a_row_that_takes_the_focus_opens_something() -> None:
    """Enter opens it, as a click does: what opens nothing is passed over by the keys."""
    rows = [line for path in SCRIPTS for line in path.read_text().splitlines() if "tabindex: 0" in line]
    assert [line for line in rows if 'h("tr"' in line and "onclick" not in line] == []


@pytest.mark.parametrize("path", FILES, ids=named)
def test_no_file_names_another_address(path: Path) -> None:
    text = "\n".join(_without_comments(path.read_text()))
    assert [each for each in ADDRESS.findall(text) if each not in OWN] == []
    assert re.findall(r"""(?:href|src|from|import|fetch\()\s*[=(]?\s*["'`]/""", text) == [], "no address from the root"


@pytest.mark.parametrize("path", SCRIPTS, ids=named)
def test_what_a_script_imports_is_there(path: Path) -> None:
    for name in re.findall(r"""from\s+"([^"]+)\"""", path.read_text()):
        assert name.startswith("."), "only files of the page"
        assert (path.parent / name).resolve() in FILES


def _without_comments(text: str) -> list[str]:
    found = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    return [re.sub(r"(?<![:\"'`])//.*", "", line) for line in found.splitlines()]
