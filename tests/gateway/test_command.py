"""The commands `shardq gateway` and `shardq gateway-token`: what they print, and what they refuse."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from shardq.gateway.tokens import Tokens


def shardq(*words: str, before: str = "") -> subprocess.CompletedProcess[str]:
    code = f"import sys; {before or 'pass'}; from shardq.cli import main; sys.exit(main(sys.argv[1:]))"
    return subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=120)


@pytest.mark.runs_in("test-all")
def test_a_fresh_token_is_shown_once_with_lines_for_the_file(tmp_path: Path) -> None:
    told = shardq("gateway-token", "site-7", "--queue", 'q"\\', "--shard-key", "site-7/*", "--topic", "a.*")
    secret, _, toml = told.stdout.partition("\n\n")
    (tmp_path / "t").write_text(toml)
    token = Tokens.read(tmp_path / "t").find(secret)
    assert token is not None
    assert token.name == "site-7"
    assert secret not in toml
    assert token.queues.allow(b'q"\\')
    assert token.shard_keys.allow(b"site-7/x")
    assert not token.shard_keys.allow(b"site-8/x")
    again = json.loads(shardq("gateway-token", "site-7", "--json").stdout)
    assert again["token"] != secret


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["gateway-token", "a b"], "a token's name has"),
        (["gateway", "--listen", "127.0.0.1:0"], "without --tokens everybody may write"),
        (["gateway", "--listen", "0.0.0.0:0", "--tokens", "x"], "clear text"),
        (["gateway", "--listen", "127.0.0.1:0", "--tokens", "nowhere.toml"], "cannot be read"),
        (["gateway", "--listen", "x", "--insecure"], "HOST:PORT"),
        (["gateway", "--listen", "127.0.0.1:0", "--tls-cert", "x"], "belong together"),
    ],
)
def test_a_wrong_command_line_is_one_clear_line(words: list[str], text: str) -> None:
    told = shardq(*words)
    assert told.returncode == 2
    assert text in told.stderr
    assert len(told.stderr.splitlines()) == 1


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize("package", ["grpc", "grpc_health", "google.protobuf", "backports"])
def test_a_missing_package_is_named_in_one_line(package: str) -> None:
    lacks = f"sys.modules[{package!r}] = None"
    told = shardq("gateway", "--listen", "127.0.0.1:0", "--insecure", before=lacks)
    assert told.returncode == 2
    assert "pip install 'shardq[" in told.stderr
    assert len(told.stderr.splitlines()) == 1
    assert shardq("gateway-token", "a", before=lacks).returncode == 0
