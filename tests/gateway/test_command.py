"""The commands `shardq serve gateway` and `shardq serve token`: what they print, and what they refuse."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from shardq.gateway.tokens import Tokens
from tests.gateway.conftest import Start
from tests.gateway.producer import Producer, request
from tests.servers import Server

ROOT = Path(__file__).parents[2]


def shardq(*words: str, before: str = "") -> subprocess.CompletedProcess[str]:
    code = f"import sys; {before or 'pass'}; from shardq.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)


@pytest.mark.runs_in("test-all")
def test_a_fresh_token_is_shown_once_with_lines_for_the_file(tmp_path: Path) -> None:
    told = shardq(
        "serve", "token", "site-7", "--allow-queue", 'q"\\', "--allow-tenant", "site-7/*", "--allow-topic", "a.*"
    )
    secret, _, toml = told.stdout.partition("\n\n")
    (tmp_path / "t").write_text(toml)
    token = Tokens.read(tmp_path / "t").find(secret)
    assert token is not None
    assert token.name == "site-7"
    assert secret not in toml
    assert token.queues.allow(b'q"\\')
    assert token.shard_keys.allow(b"site-7/x")
    assert not token.shard_keys.allow(b"site-8/x")
    assert token.is_bounded
    assert "parents=1" in told.stderr
    again = json.loads(shardq("serve", "token", "site-7", "--json").stdout)
    assert again["token"] != secret


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize("words", [[], ["--allow-tenant", "site-*"], ["--allow-tenant", "a", "--allow-tenant", "b/*"]])
def test_the_lines_of_a_fresh_token_are_a_file_that_a_gateway_takes(tmp_path: Path, words: list[str]) -> None:
    told = shardq("serve", "token", "site-7", "--allow-queue", "metrics", *words)
    (tmp_path / "t").write_text(told.stdout.partition("\n\n")[2])
    token = Tokens.read(tmp_path / "t").by_name["site-7"]
    assert token.needs_parents == ("b/*" in words)
    assert ("counts as one tenant" in told.stderr) == (token.one_tenant is True)


def as_in_the_docs(url: str, directory: Path) -> tuple[str, str]:
    """Make the queue and the token of docs/gateway.md; the token's text, and the shard key of the docs' producer."""
    text = Path("docs/gateway.md").read_text() + Path("docs/edge.md").read_text()
    declared, words, shard_key = (
        re.search(pattern, text)[1]  # type: ignore[index]
        for pattern in (r"\$ printf '(.*)' \| shardq apply", r"\$ shardq (serve token .*)", r'shard_key="(.*)"\)')
    )
    (directory / "queues").write_text(declared.replace("\\n", "\n"))
    assert shardq("apply", str(directory / "queues"), "--yes", "--url", url).returncode == 0
    secret, _, toml = shardq(*shlex.split(words)).stdout.partition("\n\n")
    (directory / "tokens").write_text(toml)
    return secret, shard_key


@pytest.mark.once
@pytest.mark.runs_in("test-all")
async def test_the_example_of_the_docs_works_when_it_is_copied(start: Start, server: Server, tmp_path: Path) -> None:
    secret, shard_key = as_in_the_docs(server.url, tmp_path)
    async with start(tokens=tmp_path / "tokens") as (_, address), Producer(address, secret) as producer:
        await producer.send(
            request(1, "metrics", key=shard_key.encode()), request(2, "metrics", key=f"{shard_key}/host".encode())
        )
        await producer.until(lambda: len(producer.acked) == 2)


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["serve", "token", "a b"], "a token's name has"),
        (["serve", "gateway", "--listen", "127.0.0.1:0"], "without --tokens everybody may write"),
        (["serve", "gateway", "--listen", "0.0.0.0:0", "--tokens", "x"], "clear text"),
        (["serve", "gateway", "--listen", "127.0.0.1:0", "--tokens", "nowhere.toml"], "cannot be read"),
        (["serve", "gateway", "--listen", "x", "--insecure"], "HOST:PORT"),
        (["serve", "gateway", "--listen", "127.0.0.1:0", "--insecure", "--max-memory", "1000000"], "max_memory"),
        (["serve", "gateway", "--listen", "127.0.0.1:0", "--tls-cert", "x"], "belong together"),
    ],
)
def test_a_wrong_command_line_is_one_clear_line(words: list[str], text: str) -> None:
    told = shardq(*words)
    assert told.returncode == 2
    assert text in told.stderr
    assert len(told.stderr.splitlines()) == 1


@pytest.mark.runs_in("test-all")
def test_too_few_descriptors_for_the_bounds_are_one_clear_line() -> None:
    few = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (1000, 1000))"
    told = shardq("serve", "gateway", "--listen", "127.0.0.1:0", "--insecure", before=few)
    assert told.returncode == 2
    assert "open files" in told.stderr
    assert len(told.stderr.splitlines()) == 1


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize("package", ["grpc", "grpc_health", "google.protobuf", "backports"])
def test_a_missing_package_is_named_in_one_line(package: str) -> None:
    lacks = f"from tests.absent import Absent; sys.meta_path.insert(0, Absent([{package!r}]))"
    told = shardq("serve", "gateway", "--listen", "127.0.0.1:0", "--insecure", before=lacks)
    assert told.returncode == 2
    assert "pip install 'shardq[" in told.stderr
    assert len(told.stderr.splitlines()) == 1
    assert shardq("serve", "token", "a", before=lacks).returncode == 0


def test_a_hang_up_while_it_starts_does_not_end_it() -> None:
    """A renewed certificate is told by SIGHUP, also to a gateway that starts just then."""
    before = "import asyncio, signal; asyncio.run = lambda work: (work.close(), signal.raise_signal(signal.SIGHUP))"
    told = shardq("serve", "gateway", "--listen", "127.0.0.1:0", "--insecure", before=before)
    assert (told.returncode, told.stderr) == (0, "")
