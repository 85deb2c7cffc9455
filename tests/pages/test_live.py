"""A live cluster beside the tables: what it says now, that it is away, that it is another."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from muster.cli.main import main
from muster.cli.status import Status
from muster.exporter import poll
from muster.pages import live
from muster.pages.live import LiveCluster
from muster.pages.port import PagesPort
from muster.pages.runs import Runs
from muster.tables.storage.store import TableStore
from tests.exporter.test_muster import commit, in_this_process, write
from tests.kit.kafka import free_ports
from tests.pages import world
from tests.pages.browser import Window, chromium
from tests.pages.test_port import Site
from tests.pipeline.world import run_here
from tests.server.raw import ServerProcess, create_topic

TIMEOUT_S = 30.0
Address = tuple[str, int]


class LiveSite(Site):
    """Pages over tables, beside a cluster."""

    def __init__(self, path: Path, address: Address) -> None:
        self.path, self.said = path, []
        self.runs = Runs(str(path), {}, self.said.append)
        self.live = LiveCluster({"bootstrap.servers": "{}:{}".format(*address)}, TableStore(path), self.said.append)
        self.port = PagesPort("127.0.0.1", 0, self.runs, live=self.live)
        assert self.live.wait_for_round(TIMEOUT_S)

    def close(self) -> None:
        super().close()
        self.live.close()

    def told(self, target: str) -> dict[str, Any]:
        found: dict[str, Any] = self.content(target)["live"]
        return found

    def told_when(
        self, target: str, is_up: bool, lag: int | None = None, within_s: float = TIMEOUT_S
    ) -> dict[str, Any]:
        """Rounds until the cluster is up or not, and a group has this lag."""
        last_s = time.monotonic() + within_s
        while True:
            told = self.told(target)
            if told["is_up"] == is_up and (lag is None or (told.get("group") or {}).get("lag") == lag):
                return told
            assert time.monotonic() < last_s, (told, self.said)
            assert self.live.wait_for_round(TIMEOUT_S), (told, self.said)


def rows(listed: dict[str, Any]) -> list[dict[str, Any]]:
    return [dict(zip(listed["columns"], row, strict=True)) for row in listed["rows"]]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Round upon round, and nobody waits for a broker that is away on purpose."""
    monkeypatch.setattr(live, "ASK_EVERY_S", 0.05)
    monkeypatch.setattr(poll, "PATIENCE_S", 0.2)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


def test_pages_of_now_have_beside_the_tables_what_the_cluster_says(tmp_path: Path, browser: Any) -> None:
    with in_this_process() as server:
        address = server.address
        create_topic(address, "orders", 2)
        write(address, "orders", 0, 10)
        commit(address, "shop", "orders", {0: 4, 1: 0})
        run_here(tmp_path, "kafka://{}:{}".format(*address))
        write(address, "orders", 0, 5)
        commit(address, "shop", "orders", {0: 9})
        commit(address, "till", "orders", {0: 1})
        site = LiveSite(tmp_path, address)
        window = Window(browser)
        try:
            told = site.told("/overview.json")
            assert (told["is_up"], told["is_whole"], told["sentence"]) == (True, True, None)
            assert 0 <= told["age_ms"] < 60_000
            shop, till = rows(told["groups"])
            assert (shop["group_id"], shop["state"], shop["members"], shop["lag"]) == ("shop", "Empty", 0, 6)
            assert (till["group_id"], till["lag"], till["partitions"]) == ("till", 14, 1)
            (in_tables,) = rows(site.content("/overview.json")["groups"])
            assert in_tables["lag"] == 6, "10 - 4, as the run saw it"

            told = site.told("/group.json?id=shop")
            assert told["group"]["last_commit_ms"] is not None
            here = [(each["partition"], each["committed_offset"], each["log_end_offset"], each["lag"])
                    for each in rows(told["partitions"])]  # fmt: skip
            assert here == [(0, 9, 15, 6), (1, 0, 0, 0)]
            told = site.told("/topic.json?name=orders")
            assert [(each["group_id"], each["lag"]) for each in rows(told["groups"])] == [("shop", 6), ("till", 14)]
            assert [each["log_end_offset"] for each in rows(told["partitions"])] == [15, 0]
            assert "groups" not in site.told("/findings.json")
            at = site.content("/overview.json")["run"]["last_ms"]
            assert "live" not in site.content(f"/overview.json?at={at}"), "of a past moment nothing live is shown"
            reply = site.ask("/group.json?id=till")
            assert (reply.status, json.loads(reply.read())["live"]["group"]["lag"]) == (404, 14)

            shown_in_a_browser(window, site, address)
            assert site.said == []
        finally:
            window.close()
            site.close()


def shows_at_last(window: Window, lag: str) -> None:
    """Asked again and again: on a busy machine a round may fail in between."""
    first = "document.querySelector('td.c-lagnow .live').textContent"
    window.wait_until(f"muster.live.refresh().then(() => {first} === '{lag}')")


def shown_in_a_browser(window: Window, site: LiveSite, address: Address) -> None:
    window.open(site.port.url, "td.c-lagnow .live")
    assert window.texts("main .row-link") == ["shop", "till"]
    assert window.column("table", "Lag now") == ["6", "14"]
    assert window.column("table", "State now") == ["Empty, 0 members"] * 2
    assert "Now: what the cluster said" in window.text(".live-bar")
    commit(address, "shop", "orders", {0: 15})
    assert site.live.wait_for_round(TIMEOUT_S)
    shows_at_last(window, "0")
    window.page.click("[data-sort=lagnow]")
    assert window.column("table", "Lag now") == ["14", "0"], "what was asked again stays when the page is drawn again"
    window.page.click("text=shop")
    window.page.wait_for_selector(".facts.now")
    assert window.text(".facts.now dd") == "0"
    assert window.column("section:has(.c-verdict)", "Committed now") == ["15", "0"]
    assert window.column("section:has(.c-verdict)", "End now") == ["15", "0"]
    window.page.click("section table .row-link")
    window.page.wait_for_selector("main.topic .live")
    assert window.column("section:has(.c-group)", "Lag now")[:1] == ["0"]
    assert window.troubles == []
    window.open(f"{site.port.url}group?id=till", ".sentence")
    assert "no group called 'till'" in window.text(".sentence")
    assert window.text(".facts.now dd") == "14"


def test_a_cluster_that_is_away_is_unknown_and_pages_answer(tmp_path: Path, browser: Any) -> None:
    (port,) = free_ports(1)
    tables = tmp_path / "tables"
    world.publish(tables, cluster_id=None)
    site = LiveSite(tables, ("127.0.0.1", port))
    window = Window(browser)
    try:
        told = site.told("/overview.json")
        assert (told["is_up"], told["age_ms"]) == (False, None)
        assert f"127.0.0.1:{port}" in told["sentence"]
        window.open(site.port.url, "td.c-lagnow .live")
        assert set(window.column("table", "Lag now")) == {"unknown"}
        assert "Now: unknown." in window.text(".live-bar")
        with ServerProcess(tmp_path / "data", port=port) as server:
            create_topic(server.address, "clicks", 1)
            write(server.address, "clicks", 0, 10)
            commit(server.address, "orders", "clicks", {0: 4})
            site.told_when("/group.json?id=orders", is_up=True, lag=6)
            shows_at_last(window, "6")
            assert window.column("table", "Lag now")[1:] == ["gone"] * (len(world.GROUPS) - 1)
            server.kill()
            told = site.told_when("/group.json?id=orders", is_up=False)
            assert "group" not in told
            assert told["age_ms"] >= 0
            assert site.content("/group.json?id=orders")["group"]["verdict"] == "STOPPED", "the tables still answer"
            shows_at_last(window, "unknown")
            assert "the last answer was" in window.text(".live-bar")
            server.start()
            commit(server.address, "orders", "clicks", {0: 9})
            site.told_when("/group.json?id=orders", is_up=True, lag=1)
        assert window.troubles == []
    finally:
        window.close()
        site.close()


def test_another_cluster_is_not_shown(tmp_path: Path) -> None:
    world.publish(tmp_path)
    with in_this_process() as server:
        create_topic(server.address, "clicks", 1)
        commit(server.address, "orders", "clicks", {0: 4})
        site = LiveSite(tmp_path, server.address)
        try:
            told = site.told("/group.json?id=orders")
            assert not told["is_up"]
            assert "the tables of <b>cluster</b>" in told["sentence"]
            assert "group" not in told
        finally:
            site.close()


def test_a_dashboard_without_tables_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dashboard", "--bootstrap-server", "127.0.0.1:1"]) == Status.USAGE
    assert "--tables" in capsys.readouterr().err
