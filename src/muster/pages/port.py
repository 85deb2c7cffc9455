"""Serves pages over HTTP: read-only, to those that call it by a name that it has.

A page of another site can make a browser ask any address. It cannot read the answers, unless its own name is pointed at
this machine (DNS rebinding): so a request must name an address, `localhost`, or a host that was allowed. Scripts and
styles come from here alone (Content-Security-Policy), and what clients have written reaches a page only as text.
"""

import ipaddress
import json
from collections.abc import Collection
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

from muster.errors import MusterError, Unexpected
from muster.http_port import HasLeft, HttpPort, Reply
from muster.pages.runs import Runs
from muster.pages.shell import STATIC, as_json, served_page, static_file
from muster.pages.site import NotAsked, NotThere, Query, is_derived, page

if TYPE_CHECKING:  # it takes libraries that are not needed without a cluster
    from muster.pages.live import LiveCluster

TWIN, LIVE, RUN = ".json", "/live.json", "/run.json"
PAGES = {"/": "overview", "/overview": "overview", "/group": "group", "/topic": "topic", "/findings": "findings"}
JSON, HTML = "application/json; charset=utf-8", "text/html; charset=utf-8"
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def is_known_host(host: str, allowed: Collection[str]) -> bool:
    """Whether a request's Host header names this server: an address, `localhost`, or a name that was allowed."""
    try:
        name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return False
    if name == "localhost" or name in allowed:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def reply_to(runs: Runs, target: str, live: "LiveCluster | None", has_left: HasLeft) -> Reply:
    """What a path and its query are answered with."""
    path, _, text = target.partition("?")
    if path.startswith(STATIC):
        return _static(path)
    is_twin = path.endswith(TWIN)
    name = PAGES.get(path.removesuffix(TWIN), "")
    query = dict(parse_qsl(text, keep_blank_values=True, errors="replace"))
    if path == RUN:
        status, content = 200, _run(runs)
    elif path == LIVE:
        status, content = _live_alone(runs, live, query)
    else:
        status, content = _content(runs, name, query, has_left)
        if live is not None and not query.get("at"):
            content = _with_live(content, live.told(name, query, runs.current.manifest))
    if is_twin:
        return Reply(status, JSON, content)
    return Reply(status, HTML, served_page(content))


def _run(runs: Runs) -> bytes:
    """Which run is shown, and how much of history: for a page that is open, and may be of an earlier one."""
    shown = runs.current
    days = None if shown.totals is None else list(shown.totals.done)
    return as_json({"page": "run", "run_id": shown.manifest.run_id, "history_days": days})


def _content(runs: Runs, name: str, query: Query, has_left: HasLeft) -> tuple[int, bytes]:
    """A page as JSON. What goes wrong is a page, too: one sentence."""
    try:
        with runs.deriving() if is_derived(name, query) else runs.asked() as (shown, tables):
            if has_left():  # it may have waited for others
                raise NotAsked("the client has left.")
            key = name, tuple(sorted(query.items())), shown.totals and (shown.totals.run_id, shown.totals.done)
            return 200, shown.kept(key, lambda: as_json(page(name, tables, shown.totals, query)))
    except NotThere as error:
        return 404, _sentence(error)
    except NotAsked as error:
        return 400, _sentence(error)
    except (MusterError, OSError) as error:
        return 503, _sentence(error)


def _with_live(content: bytes, told: dict[str, Any]) -> bytes:
    """A page that is kept, and beside it what the cluster says, which is not."""
    return content[:-1] + b',"live":' + as_json(told) + b"}"


def _live_alone(runs: Runs, live: "LiveCluster | None", query: Query) -> tuple[int, bytes]:
    """What the cluster says of the page that `page` names, for one that is open: its tables have not changed."""
    if live is None:
        return 404, _sentence(NotThere("no live cluster: start the dashboard with --bootstrap-server."))
    told = live.told(query.get("page", ""), query, runs.current.manifest)
    return 200, as_json({"page": "live", "live": told})


def _sentence(error: Exception) -> bytes:
    return json.dumps({"page": "error", "sentence": str(error)}).encode()


def _static(path: str) -> Reply:
    found = static_file(path.removeprefix(STATIC))
    if found is None:
        return Reply(404, "text/plain; charset=utf-8", b"There is no such file.\n")
    return Reply(200, *found)


class PagesPort(HttpPort):
    """Serves the pages, with what a live cluster says beside them if there is one."""

    def __init__(
        self, host: str, port: int, runs: Runs, allowed: Collection[str] = (), live: "LiveCluster | None" = None
    ) -> None:
        names = {name.lower() for name in (host, *allowed)}

        def answer(target: str, called: str, has_left: HasLeft) -> Reply:
            if not is_known_host(called, names):
                return _secured(Reply(421, JSON, _sentence(ValueError("this server is not called that."))))
            try:
                return _secured(reply_to(runs, target, live, has_left))
            except Exception as error:  # a mistake of ours is a page, too
                sentence = _sentence(Unexpected(f"something unexpected happened: {error!r}"))
                return _secured(Reply(500, JSON, sentence))

        super().__init__(host, port, answer, "--port")


def _secured(reply: Reply) -> Reply:
    return reply._replace(headers=HEADERS)
