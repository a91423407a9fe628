"""`shardq serve token`: make a token for an edge producer."""

from __future__ import annotations

from shardq.cli.exits import UsageError
from shardq.cli.output import remark
from shardq.cli.parsing import Args, argument, command
from shardq.cli.shell import Shell

ABOUT = """Prints a fresh random token once: give it to the producer, since nothing else knows it. Below it are the
lines for the gateway's file of tokens (shardq serve gateway --tokens), which have only its hash. Edit the lists
there: queues, topics and shard keys. A * at the end stands for all that begin so.

A producer that may make up shard keys must not be many tenants of a queue. A pattern such as site-7/* names the
parent of all of them, so the queues need parents=1. With any other pattern the token gets one_tenant = true:
what it sends has its name as shard key, and the given key as header. With one_tenant = false it is trusted to
name as many tenants as it likes."""

EXAMPLES = """  shardq serve token site-7 --allow-queue metrics --allow-tenant 'site-7/*'
  shardq serve token site-7 --json"""


@command(ABOUT, EXAMPLES)
@argument("name", metavar="NAME", help="the token's name: ids of messages are unique within it")
@argument("--allow-queue", action="append", default=[], metavar="PATTERN", help="a queue that it may write to")
@argument("--allow-topic", action="append", default=[], metavar="PATTERN", help="a topic that it may send to")
@argument("--allow-tenant", action="append", default=[], metavar="PATTERN", help="a shard key that it may name (*)")
def run(args: Args, shell: Shell) -> None:
    """Print a token, and its lines of TOML."""
    from shardq.gateway.tokens import NAME, Patterns, fresh_token, has_parents

    if not NAME.fullmatch(args.name):
        raise UsageError("a token's name has 1 to 100 letters, digits and . _ -")
    secret, digest = fresh_token()
    lines = {"name": args.name, "sha256": digest}
    lists = {"queues": args.allow_queue, "topics": args.allow_topic, "shard_keys": args.allow_tenant or ["*"]}
    fields = [f"{key} = {_quoted(value)}" for key, value in lines.items()]
    fields += [f"{key} = [{', '.join(map(_quoted, values))}]" for key, values in lists.items()]
    made_up = Patterns.of(lists["shard_keys"]).prefixes
    if not has_parents(made_up):
        fields.append("one_tenant = true")
    toml = "\n".join(["[[tokens]]", *fields])
    shell.show(f"{secret}\n\n{toml}", {"token": secret, "toml": toml, **lines})
    if not has_parents(made_up):
        remark("this token counts as one tenant, whatever its shard keys; see shardq serve token --help")
    elif made_up:
        remark("a gateway takes this token only for queues that have parents=1; see shardq serve token --help")


def _quoted(text: str) -> str:
    return '"' + "".join(_escaped(each) for each in text) + '"'


def _escaped(char: str) -> str:
    return f"\\U{ord(char):08x}" if char in '"\\' or not char.isprintable() else char
