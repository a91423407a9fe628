"""`shardq server acl`: the user that Redis is to have for a role, with no right that the role does not need."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Final

from shardq.arguments import check_name
from shardq.cli.exits import UsageError
from shardq.cli.parsing import Args, argument, command, flag
from shardq.cli.shell import Shell
from shardq.cli.table import draw
from shardq.durability import Durability
from shardq.protocol.roles import ROLES, rules

ABOUT = f"""ROLE is one of {", ".join(ROLES)}; --roles says their purposes. It prints a line for an ACL file, or with
--setuser a command, and asks no server. The line is made for this version of shardq: print it again after an update.
Without --password-file it holds the word >PASSWORD, which is to be replaced.

The limits of ACLs are in docs/acls.md."""

EXAMPLES = """  shardq server acl --roles
  shardq server acl producer orders invoices
  shardq server acl gateway orders --router default --password-file secret.txt
  shardq server acl producer orders --also cancel --setuser
  shardq server acl consumer orders --no-eval"""

PLACEHOLDER: Final = ">PASSWORD"
MAX_PASSWORD: Final = 4096
"""Bytes of a password."""


@command(ABOUT, EXAMPLES)
@argument("role", metavar="ROLE", nargs="?", choices=[*ROLES], help="the purpose of the user")
@argument("queues", metavar="QUEUE", nargs="*", help="the queues that it is for")
@argument("--roles", action="store_true", help="list the roles")
@flag("user", " that has the role (named as the role)")
@argument("--password-file", metavar="FILE", help="print the hash of the password in FILE; - is stdin")
@argument("--setuser", action="store_true", help="print ACL SETUSER, for redis-cli, not a line of an ACL file")
@flag("router", ", whose bindings it may follow")
@argument("--also", metavar="VERB", action="append", default=[], help="one more verb that it may run; may be repeated")
@flag("durability", " of its clients")
@argument("--legacy-stream", metavar="KEY", help="the key of the queue's legacy stream")
@argument("--cluster", action="store_true", help="the server is a cluster")
@argument("--partitioned", action="store_true", help="the queues have partitions, or may get some")
@argument("--database", action="store_true", help="its URL names another database than 0")
@argument("--no-eval", action="store_true", help="it may call functions, but run no scripts")
def run(args: Args, shell: Shell) -> None:
    """Print one user, or the roles."""
    if args.roles:
        _list(shell)
        return
    role = ROLES.get(args.role)
    if role is None:
        raise UsageError("name a role: shardq server acl --roles lists them")
    if role.verbs and not role.server and not args.queues:
        raise UsageError(f"name the queues that the {role.name} is for")
    user = check_name(args.user or role.name)
    words = rules(
        role, args.queues, router=args.router, also=args.also, legacy=args.legacy_stream, cluster=args.cluster,
        replicas=Durability.parse(args.durability).level == "replica", database=args.database, scripts=not args.no_eval,
        partitions=args.partitioned,
    )  # fmt: skip
    words = ["on", _password(args.password_file), *words]
    begins = f"ACL SETUSER {user} reset" if args.setuser else f"user {user}"
    shell.show(f"{begins} {' '.join(words)}", {"role": role.name, "user": user, "rules": words})


def _list(shell: Shell) -> None:
    if shell.json:
        for role in ROLES.values():
            shell.show("", {"role": role.name, "about": role.about, "verbs": role.verbs.split()})
        return
    draw(("role", "what it is for"), [(role.name, role.about) for role in ROLES.values()], folded={"what it is for"})


def _password(file: str | None) -> str:
    """The rule with the password's hash: the printed line may lie in a file that many read."""
    if file is None:
        return PLACEHOLDER
    if file == "-":
        raw = sys.stdin.buffer.read(MAX_PASSWORD + 2)
    else:
        with Path(file).open("rb") as source:
            raw = source.read(MAX_PASSWORD + 2)
    password = raw.removesuffix(b"\n").removesuffix(b"\r")
    if not 0 < len(password) <= MAX_PASSWORD or b"\n" in password:
        raise UsageError(f"the password must be one line of 1 to {MAX_PASSWORD:,} bytes")
    return f"#{hashlib.sha256(password).hexdigest()}"
