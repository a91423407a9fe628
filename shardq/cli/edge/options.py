"""The common parts of the commands of `shardq edge`: the gateway, the spool, and how to open them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shardq.cli.exits import NothingThere, UsageError
from shardq.cli.parsing import Args, Parser
from shardq.files import MIB, read_file

if TYPE_CHECKING:
    from shardq.edge import Edge
    from shardq.edge.spool import Spool

GATEWAY, SPOOL, TOKEN = "SHARDQ_GATEWAY", "SHARDQ_SPOOL", "SHARDQ_EDGE_TOKEN"


def add_spool(parser: Parser) -> None:
    """Add the option for the spool's file."""
    parser.add_argument("--spool", metavar="FILE", help=f"the file in which messages wait (${SPOOL})")


def add_gateway(parser: Parser) -> None:
    """Add the options for the gateway and the spool."""
    add_spool(parser)
    parser.add_argument("--gateway", metavar="HOST:PORT", help=f"the gateway, or unix:PATH (${GATEWAY})")
    parser.add_argument("--token-file", type=Path, metavar="FILE", help=f"a file with the token (${TOKEN})")
    parser.add_argument("--tls", action="store_true", help="use TLS with the system's certificates")
    parser.add_argument("--ca", type=Path, metavar="FILE", help="use TLS with these root certificates (PEM)")
    parser.add_argument("--cert", type=Path, metavar="FILE", help="the client's own certificate (PEM), with --key")
    parser.add_argument("--key", type=Path, metavar="FILE", help="its key (PEM)")
    parser.add_argument("--name", default="edge", metavar="NAME", help="the name of this producer in the gateway's log")
    parser.add_argument("--max-bytes", type=int, metavar="N", help="the most bytes of the spool (1 GiB)")


def open_edge(args: Args) -> Edge:
    """The producer that the arguments describe."""
    from shardq.edge import Edge

    settings: dict[str, Any] = {"name": args.name, "tls": args.tls, "token": _token(args.token_file)}
    for name, option, path in (
        ("root_certificates", "--ca", args.ca), ("certificate", "--cert", args.cert), ("key", "--key", args.key),
    ):  # fmt: skip
        if path is not None:
            settings[name] = read_file(path, MIB, f"the file of {option}")
    if args.max_bytes is not None:
        settings["max_bytes"] = args.max_bytes
    gateway = args.gateway or os.environ.get(GATEWAY)
    if not gateway:
        raise UsageError(f"name the gateway with --gateway or ${GATEWAY}")
    return Edge(gateway, spool=_path(args), **settings)


def open_spool(args: Args) -> Spool:
    """The spool that the arguments name. Nothing if there is none."""
    from shardq.edge.spool import Spool

    path = _path(args)
    if not path.exists():
        raise NothingThere(f"there is no spool {str(path)!r}; the first message makes it")
    return Spool(path)


def read_ids(texts: Iterable[str]) -> list[bytes]:
    """The ids of messages, as they are printed. UsageError."""
    from shardq.edge.refusals import ids_of

    try:
        return ids_of(texts)
    except ValueError:
        raise UsageError("a message's id is hexadecimal, as `shardq edge send` prints it") from None


def _path(args: Args) -> Path:
    path = args.spool or os.environ.get(SPOOL)
    if not path:
        raise UsageError(f"name the spool with --spool or ${SPOOL}")
    return Path(path)


def _token(path: Path | None) -> str:
    if path is None:
        return os.environ.get(TOKEN, "")
    return read_file(path, MIB, "the file of --token-file").decode(errors="replace").strip()
