"""What docs/internals/lua.md says of the state of a call is so: the fields that it names are there."""

from __future__ import annotations

import re

from tests.house.doc_blocks import ROOT
from tests.house.lua_lint import FOLDER
from tests.house.lua_modules import Modules

PAGE = (ROOT / "docs" / "internals" / "lua.md").read_text()
MODULES = Modules(FOLDER)
MOST_LINES = 180


def test_the_fields_that_the_page_names_are_fields_of_the_state() -> None:
    """`state.lua` says what each is; the table of the page has those to know."""
    table = PAGE.partition("| field |")[2].partition("\n\n")[0]
    fields = {
        each for row in table.splitlines() for each in re.findall(r"`(\w+)`", row.partition("|")[2].partition("|")[0])
    }
    (text,) = [module.text for module in MODULES.all if module.name == "state"]
    listed = set(re.findall(r"\w+", text.partition("State.COMMON")[0]))
    assert fields - listed == set()
    assert len(fields) > 8


def test_the_page_is_read_in_ten_minutes() -> None:
    assert PAGE.count("\n") <= MOST_LINES
