"""`shardq edge refused`: the messages that were not stored, and why."""

from __future__ import annotations

import base64
from contextlib import closing
from typing import TYPE_CHECKING, Any

from shardq.cli.edge.options import add_spool, open_spool, read_ids
from shardq.cli.exits import EXIT_NOTHING, OK
from shardq.cli.output import remark
from shardq.cli.parsing import Args, argument, command, takes
from shardq.cli.shell import Shell
from shardq.cli.text import date_and_time, printable

if TYPE_CHECKING:
    from shardq.edge import Refused

ABOUT = """They were refused for good, held too long, found damaged, or dropped for newer ones. `shardq edge resend`
lets them wait again. With --show their payloads are printed, too."""

NEWLINE = "\n"

EXAMPLES = """  shardq edge refused --spool app.db
  shardq edge refused --show all --json --spool app.db"""


@command(ABOUT, EXAMPLES, extra="edge")
@takes(add_spool)
@argument("--show", metavar="ID|all", help="print the payload of this message, or of all")
def run(args: Args, shell: Shell) -> int:
    """Print a line for each."""
    wanted = None if args.show in (None, "all") else read_ids([args.show])[0]
    with closing(open_spool(args)) as spool:
        found = spool.refusals.kept(wanted)
    for each in found:
        request = _request(each)
        line, value = _about(each, request)
        if args.show is not None:
            payload = request.plain_message if request is not None else each.request
            line += f"\n{printable(payload.decode('utf-8', 'backslashreplace'), keep=NEWLINE)}"
            value["payload"] = base64.b64encode(payload).decode()
        shell.show(line, value)
    if not found:
        remark("no message was refused" if wanted is None else "no refused message has this id")
    return OK if found else EXIT_NOTHING


def _request(refused: Refused) -> Any:
    """The request of a message; None if it is damaged, or only its id is kept."""
    from google.protobuf.message import DecodeError

    from shardq.datasink.messages import Request

    try:
        return Request.FromString(refused.request) if refused.request else None
    except DecodeError:
        return None


def _about(each: Refused, request: Any) -> tuple[str, dict[str, Any]]:
    where = "?" if request is None else request.queue or f"topic {request.topic}"
    line = f"{date_and_time(each.at)}  {each.id.hex() or '?'}  {printable(f'{where}  {each.reason}  {each.text}')}"
    return line, {"message_id": each.id.hex(), "to": where, "reason": each.reason, "text": each.text, "at": each.at}
