"""`shardq report NAME`: say what queues did, from the table of their jobs."""

from __future__ import annotations

from typing import Final

from shardq.cli.menu import Menu
from shardq.cli.parsing import group

ABOUT = """A report is of the folder of tables that `shardq jobs` makes. Its first line is the verdict. With --html it
is also written as one page, which needs no other file and can be sent to others."""

EXAMPLES = """  shardq jobs mails --out mails.jobs
  shardq report fair mails.jobs
  shardq report used mails.jobs --since 7d --html used.html"""

MENU: Final = Menu(
    "shardq.cli.reports",
    {
        "": {
            "used": "say who used what",
            "fair": "say whether it was fair, and which tenant was ahead of another",
            "slo": "say whether jobs began in time, and what budget is left",
            "cost": "say what it cost, and what idle slots did",
            "noisy": "say who is noisier than usual",
        }
    },
)

run = group(MENU, ABOUT, EXAMPLES, title="reports", extra="reports")
