"""`shardq serve token`: make a token for an edge producer, or for a person who looks at the page."""

from __future__ import annotations

from shardq.cli.exits import UsageError
from shardq.cli.output import remark
from shardq.cli.parsing import Args, argument, command, flag
from shardq.cli.shell import Shell

ABOUT = """Prints a fresh random token once: give it to its owner, since nothing else knows it. Below it are the lines
for a file, which have only its hash. With --role they are for a person and the file of people (shardq serve dashboard
--people): view looks, act may do what can be undone, admin may do all that the page offers.

Else they are for a producer and the gateway's file of tokens (shardq serve gateway --tokens). Edit the lists there:
queues, topics and shard keys. A * at the end stands for all that begin so.

A producer that may make up shard keys must not be many tenants of a queue. A pattern such as site-7/* names the
parent of all of them, so the queues need parents=1. With any other pattern the token gets one_tenant = true:
its messages have its name as shard key, and the given key as header. With one_tenant = false it is trusted to
name as many tenants as it likes."""

EXAMPLES = """  shardq serve token site-7 --allow-queue metrics --allow-tenant 'site-7/*'
  shardq serve token site-7 --json
  shardq serve token jonas --role act"""


@command(ABOUT, EXAMPLES)
@argument("name", metavar="NAME", help="the token's name: the person's, or one within which ids of messages are unique")
@flag("role", " of a person on the page: view, act or admin", choices=("view", "act", "admin"))
@argument("--allow-queue", action="append", default=[], metavar="PATTERN", help="a queue that it may write to")
@argument("--allow-topic", action="append", default=[], metavar="PATTERN", help="a topic that it may send to")
@argument("--allow-tenant", action="append", default=[], metavar="PATTERN", help="a shard key that it may name (*)")
def run(args: Args, shell: Shell) -> None:
    """Print a token, and its lines of TOML."""
    from shardq.bearer import NAME, fresh_token

    if not NAME.fullmatch(args.name):
        raise UsageError("a token's name has 1 to 100 letters, digits and . _ -")
    secret, digest = fresh_token()
    if args.role is not None:
        _show_person(args, shell, secret, digest)
    else:
        _show_producer(args, shell, secret, digest)


def _show_person(args: Args, shell: Shell, secret: str, digest: str) -> None:
    if args.allow_queue or args.allow_topic or args.allow_tenant:
        raise UsageError("--role is for a person who looks at the page, and --allow-... for a producer: not both")
    lines = {"name": args.name, "role": args.role, "sha256": digest}
    toml = "\n".join(["[[people]]", *(f"{key} = {_quoted(value)}" for key, value in lines.items())])
    shell.show(f"{secret}\n\n{toml}", {"token": secret, "toml": toml, **lines})


def _show_producer(args: Args, shell: Shell, secret: str, digest: str) -> None:
    from shardq.gateway.tokens import Patterns, has_parents

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
