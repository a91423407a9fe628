"""`shardq serve NAME`: programs that others connect to."""

from __future__ import annotations

from typing import Final

from shardq.cli.menu import Menu
from shardq.cli.parsing import group

ABOUT = """Programs that others connect to: people, Prometheus, an autoscaler, or producers without access to
Redis; and the tokens of people and producers. A program runs until SIGTERM or Ctrl-C."""

EXAMPLES = """  shardq serve dashboard
  shardq serve token site-7 --allow-queue metrics
  shardq serve gateway --listen 127.0.0.1:7400 --tokens tokens.toml
  shardq serve metrics --listen 127.0.0.1:9464
  shardq serve scaler --listen :8080 --grpc :6000"""

MENU: Final = Menu(
    "shardq.cli.serve",
    {
        "": {
            "dashboard": "the page that says why each message waits",
            "gateway": "store what edge producers send",
            "metrics": "the numbers of queues for Prometheus",
            "scaler": "say how many workers are wanted, for KEDA and others",
            "token": "make a token for a producer or a person",
        }
    },
)

run = group(MENU, ABOUT, EXAMPLES)
