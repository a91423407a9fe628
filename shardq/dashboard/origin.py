"""The origin and the target of a request, by its own words."""

from __future__ import annotations

import ipaddress
from http import HTTPStatus
from typing import Final
from urllib.parse import SplitResult, urlsplit

from starlette.requests import Request

HEADER: Final = "x-shardq"
"""The header that a script of the page sends with each POST, and that a form of another site cannot send."""

OTHER_SITES: Final = frozenset({"cross-site", "same-site"})
"""How a browser calls pages of others: `same-site` are those on another port, or another name of one domain."""


def host_of(request: Request) -> str:
    """Return the host that a request names, without its port; '' if it names none."""
    return (_named(request).hostname or "").rstrip(".")


def port_of(request: Request) -> str:
    """Return the port that a request names; '' if it names none."""
    try:
        return str(_named(request).port or "")
    except ValueError:
        return ""


def path_of(request: Request) -> str:
    """Return what is asked of the page, whatever the prefix under which it is mounted."""
    path: str = request.scope["path"]
    return path.removeprefix(prefix_of(request))


def prefix_of(request: Request) -> str:
    """Return the prefix under which the page is mounted, without a slash at its end."""
    prefix: str = request.scope.get("root_path", "")
    return prefix.rstrip("/")


def address_of(request: Request) -> str:
    """Return from where somebody asks; '' through a socket of this machine."""
    return request.client.host if request.client else ""


def is_loopback(host: str) -> bool:
    """Whether *host* is this machine, whichever resolver is asked for its address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def foreign(request: Request) -> tuple[HTTPStatus, str] | None:
    """Say why a request is not one of this page, with the status of the refusal; None if it is."""
    sent = request.headers
    if request.method in ("GET", "HEAD"):
        # Its answer could not be read there, but it would take a stream. A link to the page is no such request.
        is_other = sent.get("sec-fetch-site") in OTHER_SITES and sent.get("sec-fetch-mode") != "navigate"
        return (HTTPStatus.FORBIDDEN, "another site asks") if is_other else None
    if HEADER not in sent:
        return HTTPStatus.FORBIDDEN, f"it lacks the header {HEADER}"
    if not _is_own(request, sent.get("origin", "")):
        return HTTPStatus.FORBIDDEN, "it comes from another origin"
    return None


def _is_own(request: Request, origin: str) -> bool:
    try:
        found = urlsplit(origin)
    except ValueError:
        return False
    # A proxy may have taken TLS off. A request that came by TLS to here was not sent by a page without it.
    schemes = ("https",) if request.url.scheme == "https" else ("https", "http")
    return found.scheme in schemes and found.netloc.lower() == request.headers.get("host", "").lower()


def _named(request: Request) -> SplitResult:
    host = request.headers.get("host", "")
    try:
        return urlsplit("" if "@" in host or "/" in host else f"//{host}")
    except ValueError:
        return urlsplit("")
