"""What is served, and to whom."""

import gzip
import http.client
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from muster.cli.main import main
from muster.cli.status import Status
from muster.errors import ConfigError
from muster.pages.port import PagesPort, is_known_host, reply_to
from muster.pages.runs import Runs
from muster.pages.site import page
from muster.tables.reading import open_tables
from tests.answers import world as old
from tests.pages import world

TIMEOUT_S = 30.0


class Site:
    """Pages of the small cluster, or over tables that are there."""

    def __init__(self, path: Path, is_made: bool = True) -> None:
        self.path = path
        if is_made:
            world.publish(path)
        self.said: list[str] = []
        self.runs = Runs(str(path), {}, self.said.append)
        self.port = PagesPort("127.0.0.1", 0, self.runs)
        assert self.runs.wait_for_history(TIMEOUT_S)

    def close(self) -> None:
        self.port.close()
        self.runs.close()

    def ask(self, target: str, method: str = "GET", **headers: str) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection(self.port.url.split("/")[2], timeout=TIMEOUT_S)
        connection.request(method, target, headers=headers)
        return connection.getresponse()

    def content(self, target: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.ask(target).read())
        return found


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path / "tables")
    yield made
    made.close()


def test_every_page_has_a_twin_with_its_content(site: Site) -> None:
    at = world.NOW_MS - world.DAY_MS
    for asked in ("group?id=orders", "topic?name=clicks", "findings?", f"group?id=orders&at={at}", f"overview?at={at}"):
        path, _, query = asked.partition("?")
        shown = site.ask(f"/{asked}")
        assert shown.status == 200
        text = shown.read().decode()
        embedded = text.split('id="content">', 1)[1].split("</script>", 1)[0]
        assert json.loads(embedded) == site.content(f"/{path}.json?{query}")
        assert json.loads(embedded)["page"] == path


def test_pages_may_load_scripts_from_here_and_nothing_else(site: Site) -> None:
    reply = site.ask("/")
    policy = reply.headers["Content-Security-Policy"]
    assert "default-src 'none'; script-src 'self';" in policy
    assert "unsafe" not in policy
    assert reply.headers["X-Content-Type-Options"] == "nosniff"
    text = reply.read().decode()
    scripts = [part.split(">", 1)[0] for part in text.split("<script")[1:]]
    assert all("application/json" in each or 'src="/static/' in each for each in scripts)
    for name in ("style.css", "app.js"):
        assert site.ask(f"/static/{name}").status == 200
    for name in ("..%2fport.py", "../port.py", "nosuch.js", ""):
        assert site.ask(f"/static/{name}").status == 404


@pytest.mark.parametrize(
    ("host", "is_known"),
    [
        ("localhost", True), ("localhost:9310", True), ("127.0.0.1:9310", True), ("[::1]:9310", True),
        ("10.1.2.3", True),
        ("box.example:80", True), ("BOX.example", True), ("evil.example", False), ("127.0.0.1.evil.example", False),
        ("", False), ("[::1", False), ("localhost@evil.example", False),
    ],
)  # fmt: skip
def test_a_server_is_called_by_its_names(host: str, is_known: bool) -> None:
    assert is_known_host(host, {"box.example"}) == is_known


def test_others_are_told_nothing(site: Site) -> None:
    reply = site.ask("/overview.json", Host="evil.example")
    assert reply.status == 421
    assert b"orders" not in reply.read()
    assert site.ask("/", method="POST").status == 501
    head = site.ask("/", method="HEAD")
    assert (head.status, head.read()) == (200, b"")


def test_answers_are_packed_for_those_who_take_it(site: Site) -> None:
    reply = site.ask("/overview.json", **{"Accept-Encoding": "gzip"})
    assert reply.headers["Content-Encoding"] == "gzip"
    assert json.loads(gzip.decompress(reply.read())) == site.content("/overview.json")


@pytest.mark.parametrize(
    ("target", "status", "sentence"),
    [
        ("/group.json?id=nosuch", 404, "no group called 'nosuch'"),
        ("/group.json", 404, "which group?"),
        ("/topic.json?name=nosuch", 404, "no topic called 'nosuch'"),
        ("/nosuch", 404, "there is no page"),
        ("/overview.json?at=tomorrowish", 400, "is not a time"),
        (f"/overview.json?at={world.NOW_MS + world.DAY_MS}", 400, "nothing is known of"),
        ("/group.json?id=orders&range=1y", 400, "is no range"),
    ],
)
def test_what_cannot_be_shown_is_a_sentence(site: Site, target: str, status: int, sentence: str) -> None:
    reply = site.ask(target)
    assert reply.status == status
    assert sentence in reply.read().decode().replace("\\u0027", "'")


def test_a_newer_run_is_shown(site: Site) -> None:
    assert site.content("/overview.json")["run"]["run_id"] == world.RUN_ID
    world.publish(site.path, "second", world.NOW_MS + world.HOUR_MS)
    site.runs.look()
    content = site.content("/overview.json")
    assert content["run"]["run_id"] == "second"
    assert content["at_ms"] == world.NOW_MS + world.HOUR_MS
    assert content["history_days"] == [4, 4]


def test_a_table_that_is_damaged_is_one_page_with_a_sentence(site: Site) -> None:
    for file in (site.path / "findings").glob("*.parquet"):
        file.write_bytes(b"nothing")
    world.publish(site.path / "other")  # an unharmed neighbour
    damaged = Runs(str(site.path), {}, print)
    port = PagesPort("127.0.0.1", 0, damaged)
    try:
        site.port, kept = port, site.port
        reply = site.ask("/findings.json")
        assert reply.status == 503
        assert "cannot be read" in json.loads(reply.read())["sentence"]
        site.port = kept
    finally:
        port.close()
        damaged.close()


def test_tables_that_go_away_leave_what_was_read(site: Site) -> None:
    (site.path / "_manifest").rename(site.path / "elsewhere")
    site.runs.look()
    assert site.content("/overview.json")["page"] == "overview"


@pytest.mark.parametrize("error", [ValueError("half a file"), KeyError("tables"), OSError("gone")])
def test_whatever_a_look_fails_with_the_next_may_do_better(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr("muster.pages.runs.LOOK_EVERY_S", 0.01)
    store, said = world.publish(tmp_path), threading.Event()
    runs = Runs(str(tmp_path), {}, lambda _: said.set())
    try:
        with monkeypatch.context() as broken:
            broken.setattr(runs._store, "manifest", _raising(error))
            assert said.wait(TIMEOUT_S)
        world.publish(tmp_path, "second", world.NOW_MS + world.HOUR_MS)
        with runs._looked:
            assert runs._looked.wait_for(lambda: runs.current.manifest.run_id == "second", TIMEOUT_S)
    finally:
        runs.close()
    assert store.published().run_id == "second"


def _raising(error: Exception) -> Callable[[], None]:
    def ask() -> None:
        raise error

    return ask


def test_a_page_that_is_open_learns_of_a_newer_run(site: Site) -> None:
    content = site.content("/overview.json")
    told = site.content("/run.json")
    assert (told["run_id"], told["history_days"]) == (content["run"]["run_id"], content["history_days"])


def test_nothing_is_worked_out_for_one_who_has_left(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    monkeypatch.setattr("muster.pages.port.page", lambda name, *_: made.append(name) or {})
    target = f"/findings.json?at={world.NOW_MS - world.DAY_MS}"
    assert reply_to(site.runs, target, None, lambda: True).status == 400
    assert made == []
    assert reply_to(site.runs, target, None, lambda: False).status == 200
    assert made == ["findings"]


def test_a_copy_that_is_read_years_later_is_as_it_was(tmp_path: Path) -> None:
    """As the command line has it: everything counts from the newest record."""
    for name, late_ms in (("then", 0), ("late", 1000 * world.DAY_MS)):
        old.publish(tmp_path / name, read_at_ms=old.NOW_MS + late_ms)
    with open_tables(tmp_path / "then") as then, open_tables(tmp_path / "late") as late:
        for name, query in (("overview", {}), ("group", {"id": "orders-app"}), ("topic", {"name": "orders"})):
            told, told_late = (page(name, tables, None, query) for tables in (then, late))
            assert told_late.pop("run") | {"observed_at_ms": old.NOW_MS} == told.pop("run")
            assert told_late == told
            assert told["at_ms"] == old.NOW_MS


def test_a_taken_port_and_missing_tables_are_sentences(
    site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    number = int(site.port.url.rsplit(":", 1)[1].strip("/"))
    with pytest.raises(ConfigError, match="cannot listen on"):
        PagesPort("127.0.0.1", number, site.runs)
    assert main(["dashboard", "--tables", str(tmp_path / "nosuch")]) == Status.BAD_INPUT
    assert "there are no tables at" in capsys.readouterr().err


def test_several_ask_at_once(site: Site) -> None:
    from concurrent.futures import ThreadPoolExecutor

    targets = [f"/group.json?id=orders&at={world.NOW_MS - hours * world.HOUR_MS}" for hours in range(1, 25)]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(site.content, targets))
    assert together == [site.content(target) for target in targets]
