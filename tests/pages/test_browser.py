"""Pages in a real Chromium: served, and in a file."""

import json
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from muster.cli.main import main
from muster.cli.people import shown_duration
from muster.cli.status import Status
from muster.tables.reading import open_tables
from tests.pages import world
from tests.pages.browser import Window, chromium
from tests.pages.test_port import Site

PAST_MS = world.NOW_MS - world.DAY_MS
ROWS = "main table tbody tr"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = Site(tmp_path_factory.mktemp("pages") / "tables")
    yield made
    made.close()


@pytest.fixture(scope="module")
def report(site: Site) -> Path:
    file = site.path.parent / "report.html"
    assert main(["report", "--tables", str(site.path), "--html", str(file)]) == Status.OK
    return file


@pytest.fixture
def window(browser: Any) -> Iterator[Window]:
    opened = Window(browser)
    yield opened
    assert opened.troubles == []
    opened.close()


def number(text: str) -> int:
    return int(text.replace(",", ""))


def partition_rows(window: Window) -> list[list[str]]:
    """Cells of the table of partitions, which stands before that of members."""
    cells: list[list[str]] = window.page.eval_on_selector_all(
        "section table",
        "all => [...all[all.length - 2].tBodies[0].rows].map((row) => [...row.cells].map((cell) => cell.textContent))",
    )
    return cells


def loaded_from_elsewhere(window: Window, here: str) -> list[str]:
    return [url for url in window.requests if not url.startswith((here, "data:"))]


def test_groups_are_listed_with_the_numbers_of_the_tables_and_of_the_twin(window: Window, site: Site) -> None:
    window.open(site.port.url, ROWS)
    with open_tables(site.path) as tables:
        published = tables.read("lag").table().to_pylist()
    shown = dict(zip(window.texts("main .row-link"), map(number, window.column("table", "Lag, records")), strict=True))
    for group_id in ("orders", "billing"):
        assert shown[group_id] == sum(row["lag"] for row in published if row["group_id"] == group_id)
    twin = site.content("/overview.json")["groups"]
    lags = [row[twin["columns"].index("lag")] for row in twin["rows"]]
    assert list(map(number, window.column("table", "Lag, records"))) == lags
    assert window.texts("main .row-link")[0] == "orders"
    assert window.text("main tbody .pill") == "STOPPED"
    assert window.text(".chip.err") == "1 ERR"
    assert window.page.locator("svg.spark path").count() == len(lags)
    assert loaded_from_elsewhere(window, site.port.url) == []


def test_groups_are_as_the_command_line_tells_them(
    window: Window, site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["status", "--tables", str(site.path), "--json"]) == Status.ERROR
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    window.open(site.port.url, ROWS)
    assert [_plain(name) for name in window.texts("main .row-link")] == [_plain(each["group_id"]) for each in told]
    assert list(map(number, window.column("table", "Lag, records"))) == [each["lag"] for each in told]
    assert window.column("table", "Behind") == [shown_duration(each["lag_ms"]) for each in told]
    assert list(map(number, window.column("table", "Members"))) == [each["members"] for each in told]
    assert [text.removesuffix("4 h") for text in window.column("table", "Verdict")] == [
        each["verdict"] for each in told
    ]


def test_a_group_has_plots_bars_and_partitions(window: Window, site: Site) -> None:
    window.open(f"{site.port.url}group?id=orders", ".timeline .bar")
    assert window.text("h1") == "orders"
    assert "2 of 2 partitions: nothing is committed any more for 4 h" in window.text(".verdict")
    twin = site.content("/group.json?id=orders")
    assert window.text(".facts dd") == "10 h"
    assert number(window.texts(".facts dd")[1]) == twin["group"]["lag"] == sum(
        world.lag_at("orders", each, world.NOW_MS) for each in range(2)
    )  # fmt: skip
    window.wait_until("document.querySelectorAll('.plot path.line').length === 4")
    drawn = window.page.eval_on_selector_all(
        ".plot path.line", "all => all.map((path) => path.getAttribute('d').length)"
    )
    assert all(length > 100 for length in drawn)
    assert window.page.locator(".timeline .bar").count() == 5
    assert window.page.locator(".timeline .rebalance").count() == 2
    assert "2 rebalances (1 × member joined, 1 × member left)" in window.text(".timeline .told")
    twins = [row[twin["partitions"]["columns"].index("lag")] for row in twin["partitions"]["rows"]]
    lags = window.page.eval_on_selector_all(
        "section table", "all => [...all[all.length - 2].tBodies[0].rows].map((row) => row.cells[3].textContent)"
    )
    assert [number(text) for text in lags] == twins
    window.open(f"{site.port.url}group?id=idle", ".timeline .bar")
    window.wait_until("document.querySelectorAll('.plot path.line').length === 4")  # all of them 0, and no error
    window.open(f"{site.port.url}group?id=orders", ".timeline .bar")
    window.page.click("text=7d")
    window.wait_until("document.querySelectorAll('.timeline .rebalance').length === 3")
    assert "range=7d" in window.page.url


def test_the_slider_shows_every_page_as_of_a_moment(window: Window, site: Site) -> None:
    window.open(site.port.url, ROWS)
    slider = window.page.locator("#moment")
    steps = world.DAY_MS // world.INTERVAL_MS
    slider.evaluate(
        "(input, steps) => { input.value = input.max - steps; input.dispatchEvent(new Event('change')); }", steps
    )
    window.page.wait_for_selector(".slider.past")
    assert f"at={PAST_MS}" in window.page.url
    assert "2026-11-17 00:00:00 UTC" in window.text(".moment")
    twin = site.content(f"/overview.json?at={PAST_MS}")["groups"]
    lags = [row[twin["columns"].index("lag")] for row in twin["rows"]]
    assert list(map(number, window.column("table", "Lag, records"))) == lags
    window.page.click("text=orders")
    window.page.wait_for_selector(".timeline .bar")
    assert f"at={PAST_MS}" in window.page.url
    assert window.text(".verdict .pill") == "OK"
    window.press("ArrowLeft")
    window.wait_until(f"location.search.includes('at={PAST_MS - world.INTERVAL_MS}')")
    window.press("n")
    window.page.wait_for_selector(".verdict .pill.err")
    assert "at=" not in window.page.url
    window.page.go_back()
    window.page.wait_for_selector("table.groups")
    assert f"at={PAST_MS}" in window.page.url


def test_findings_and_expiry_are_those_of_the_moment(
    window: Window, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As `muster findings --as-of` and `muster expiring --as-of` tell them, and not as they are now."""
    tables, at = str(tmp_path / "tables"), world.NOW_MS - 6 * world.HOUR_MS
    world.publish_forgotten(Path(tables))

    def told(*command: str) -> list[dict[str, Any]]:
        main([*command, "--tables", tables, "--as-of", str(at), "--json"])
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    findings, expiring = told("findings"), told("expiring", "--within", "1000d")
    group_id = findings[0]["group_id"]
    site = Site(Path(tables), is_made=False)
    try:
        shown = rows_of(site.content(f"/findings.json?at={at}")["findings"])
        assert [each["sentence"] for each in shown] == [each["sentence"] for each in findings]
        now = rows_of(site.content("/findings.json")["findings"])
        assert {each["kind"] for each in now}.isdisjoint(each["kind"] for each in shown)
        of_group = rows_of(site.content(f"/findings.json?at={at}&id={quote(group_id)}")["expiry"])
        expected = [each for each in expiring if each["group_id"] == group_id]
        assert [each["expires_at_ms"] for each in of_group] == [
            round(datetime.fromisoformat(each["expires_at"]).timestamp() * 1000) for each in expected
        ]
        window.open(f"{site.port.url}findings?at={at}", ".findings li")
        assert window.texts(".findings li p:first-of-type") == [each["sentence"] for each in findings]
        window.open(f"{site.port.url}group?id={quote(group_id)}&at={at}", "main .findings li")
        assert window.texts(".findings li p:first-of-type") == [
            each["sentence"] for each in findings if each["group_id"] == group_id
        ]
        assert all(text.startswith("in ") for text in window.column("section:has(.c-expires)", "Expires"))
        assert "Expires" in window.text(".facts")
        window.open(f"{site.port.url}overview?at={at}", "main table")
        assert window.page.locator("nav .pill").count() == 0, "how many are found now is not said beside then"
    finally:
        site.close()


def rows_of(listed: dict[str, Any]) -> list[dict[str, Any]]:
    return [dict(zip(listed["columns"], row, strict=True)) for row in listed["rows"]]


def test_the_keyboard_is_enough(window: Window, site: Site) -> None:
    window.open(site.port.url, ROWS)
    everything = window.page.locator(ROWS).count()
    window.press("/")
    window.page.keyboard.type("bill")
    assert window.texts("main .row-link") == ["billing"]
    assert "q=bill" in window.page.url
    window.press("Escape")
    assert window.page.locator(ROWS).count() == everything
    window.press("ArrowDown", "ArrowDown", "ArrowUp")
    assert window.focused() == "orders"
    outline = window.page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    window.press("Enter")
    window.page.wait_for_selector(".timeline")
    window.press("Escape")
    window.page.wait_for_selector("table.groups")
    window.press("?")
    assert "earlier" in window.text("dialog")
    window.press("Escape")
    window.page.wait_for_selector("dialog", state="detached")
    window.press("f")
    window.page.wait_for_selector(".findings li")
    assert window.page.locator(".findings li").count() == len(world.GROUPS) - 1


def test_groups_are_sorted_and_filtered(window: Window, site: Site) -> None:
    window.open(site.port.url, ROWS)
    window.page.click("[data-sort=group]")
    names = window.texts("main .row-link")
    assert names == sorted(names)
    assert "sort=group" in window.page.url
    window.page.click("[data-sort=lag]")
    lags = list(map(number, window.column("table", "Lag, records")))
    assert lags == sorted(lags, reverse=True)
    window.page.click("[data-sort=lag]")
    assert list(map(number, window.column("table", "Lag, records"))) == sorted(lags)
    window.page.click(".chip.err")
    assert window.texts("main .row-link") == ["orders"]
    window.page.reload()
    window.page.wait_for_selector(ROWS)
    assert window.texts("main .row-link") == ["orders"], "what is chosen is in the address"


def test_a_phone_shows_what_matters(browser: Any, site: Site) -> None:
    window = Window(browser, width=360, height=740, scheme="dark")
    for page in ("", "group?id=orders", "topic?name=clicks", "findings"):
        window.open(f"{site.port.url}{page}", "main > *")
        assert not window.is_wider_than_the_window(), page
        assert window.page.evaluate("document.querySelector('main > *').getBoundingClientRect().left") >= 8, page
    window.open(site.port.url, ROWS)
    assert window.page.locator("td.c-behind").first.is_visible()
    assert not window.page.locator("td.c-lag").first.is_visible()
    dark = window.page.evaluate("getComputedStyle(document.body).backgroundColor")
    window.press("t")
    light = window.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert dark != light
    window.page.reload()
    assert window.page.evaluate("getComputedStyle(document.body).backgroundColor") == light, "what was chosen is kept"
    assert window.troubles == []
    window.close()


def test_names_do_nothing(window: Window, site: Site) -> None:
    window.open(site.port.url, ROWS)
    for name in world.HOSTILE:
        window.page.evaluate("id => muster.go({ page: 'group', params: { id } })", name)
        window.wait_until(f"document.querySelectorAll('.timeline .bar').length && {_is_shown(name)}")
        assert _same(window.text("h1"), name)
        window.page.click("section table a")
        window.page.wait_for_selector("main.topic table")
        window.page.click("main table .row-link")
        window.page.wait_for_selector("main.group .timeline .bar")
        assert window.page.title().endswith("· muster")
        assert window.page.locator("main img, main script, header b b").count() == 0
    window.open(f"{site.port.url}group?id={quote(world.HOSTILE[1], safe='')}", ".timeline .bar")
    assert _same(window.text("h1"), world.HOSTILE[1])
    assert window.page.locator("script[src]").count() == window.page.locator("script").count() - 1


def _is_shown(name: str) -> str:
    return f"muster.source.route().params.id === {json.dumps(name)} && document.querySelector('main.group h1') !== null"


def _same(shown: str, name: str) -> bool:
    return _plain(shown) == _plain(name)


def _plain(text: str) -> str:
    """A browser shows neither NUL nor separators of lines as they are."""
    return re.sub(r"[\s\x00\ufffd]+", " ", text).strip()


def test_no_script_runs_but_ours(browser: Any, site: Site, report: Path) -> None:
    window = Window(browser)
    for address in (site.port.url, report.as_uri()):
        window.open(address, ROWS)
        window.page.evaluate("""() => {
            const script = document.createElement('script');
            script.textContent = 'window.ran = true';
            document.body.append(script);
            document.body.insertAdjacentHTML('beforeend', '<img src="data:," onerror="window.ran = true">');
        }""")
        window.page.wait_for_selector("body > img", state="attached")
        assert window.page.evaluate("window.ran") is None
    assert any("Content Security Policy" in each for each in window.troubles)
    window.close()


def test_a_page_that_is_left_open_shows_a_newer_run_and_how_old_it_is(browser: Any, tmp_path: Path) -> None:
    site, window = Site(tmp_path / "tables"), Window(browser)
    try:
        window.page.clock.install(time=world.NOW_MS / 1000 + 5)
        window.open(site.port.url, ROWS)
        assert re.search(r"last look, \d+\.\d s ago", window.text(".slider"))
        window.page.focus("text=billing")
        window.page.clock.run_for(10 * 60_000)
        assert re.search(r"last look, 10 min \d+ s ago", window.text(".slider"))
        later_ms = world.NOW_MS + 9 * 60_000
        world.publish(site.path, "second", later_ms)
        site.runs.look()
        window.page.evaluate("muster.renew()")
        window.wait_until(f"document.querySelector('.moment b').textContent === muster.fullTime({later_ms})")
        assert window.focused() == "billing"
        assert window.troubles == []
    finally:
        window.close()
        site.close()


def test_a_slider_that_moves_over_past_findings_asks_for_where_it_stops(window: Window, site: Site) -> None:
    window.open(f"{site.port.url}findings", "h1")
    pressed = "document.dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowLeft' }))"
    window.page.evaluate(f"() => {{ for (let i = 0; i < 8; i += 1) {pressed}; }}")
    step_ms = site.content("/overview.json")["run"]["step_ms"]
    window.wait_until("!document.body.hasAttribute('aria-busy') && location.search.includes('at=')")
    asked = [url for url in window.requests if "/findings.json" in url]
    assert len(asked) == 1
    assert int(re.search(r"at=(\d+)", asked[0])[1]) <= world.NOW_MS - 7 * step_ms  # type: ignore[index]


def test_what_cannot_be_shown_is_a_sentence(browser: Any, site: Site) -> None:
    window = Window(browser)  # a 404 is an error to the console
    window.open(f"{site.port.url}group?id=nosuch", ".sentence")
    assert "no group called 'nosuch'" in window.text(".sentence")
    window.press("Escape")
    window.page.wait_for_selector("table.groups")
    window.close()


def test_a_file_has_the_same_pages(window: Window, site: Site, report: Path) -> None:
    address = report.as_uri()
    window.open(address, ROWS)
    assert "61 moments are in this file" in window.text(".slider")
    twin = site.content("/overview.json")["groups"]
    lags = [row[twin["columns"].index("lag")] for row in twin["rows"]]
    assert list(map(number, window.column("table", "Lag, records"))) == lags
    moments = window.page.evaluate("muster.source.moments")
    assert len(moments) == 61
    window.press(*["ArrowLeft"] * 3)
    window.wait_until(f"location.hash.includes('at={moments[-4]}')")
    window.page.click("text=orders")
    window.page.wait_for_selector(".timeline .bar")
    then = site.content(f"/group.json?id=orders&at={moments[-4]}")
    assert number(window.texts(".facts dd")[1]) == then["group"]["lag"]
    columns = then["partitions"]["columns"]
    shown = partition_rows(window)
    assert [number(cells[3]) for cells in shown] == [row[columns.index("lag")] for row in then["partitions"]["rows"]]
    assert all(cells[0].startswith(then["partitions"]["rows"][0][columns.index("verdict")]) for cells in shown)
    window.page.evaluate("at => muster.go({ page: 'group', params: { id: 'orders', at } })", str(moments[20]))
    window.wait_until(f"document.querySelector('.verdict .pill.ok') && location.hash.includes('{moments[20]}')")
    assert {cells[0] for cells in partition_rows(window)} == {"OK"}, "what was said later is not shown"
    window.page.go_back()
    window.page.wait_for_selector(".verdict .pill.err")
    window.page.click("section table .row-link")
    window.wait_until("location.hash.startsWith('#topic')")
    readers = site.content(f"/topic.json?name=clicks&at={moments[-4]}")["readers"]
    assert window.texts("main table .row-link") == [row[0] for row in readers["rows"]]
    window.press("f")
    window.page.wait_for_selector(".findings li")
    assert "Of what was found at the last look" in window.text("main")
    assert set(window.requests) == {address}
    assert report.stat().st_size < 1_000_000


def test_what_is_not_in_a_file_is_a_sentence(window: Window, report: Path) -> None:
    window.open(report.as_uri(), ROWS)
    for name in ("constructor", "toString", "__proto__"):
        window.page.evaluate("name => muster.go({ page: 'topic', params: { name } })", name)
        window.page.wait_for_selector(".sentence")
    window.page.goto(f"{report.as_uri()}#toString")
    window.page.reload()
    window.page.wait_for_selector("table.groups")


def test_names_do_nothing_in_a_file(window: Window, report: Path) -> None:
    window.open(report.as_uri(), ROWS)
    for name in world.HOSTILE:
        window.page.evaluate("id => muster.go({ page: 'group', params: { id } })", name)
        window.wait_until(f"document.querySelectorAll('.timeline .bar').length && {_is_shown(name)}")
        assert _same(window.text("h1"), name)
        assert window.page.title().endswith("· muster")
        assert window.page.locator("main img, main script").count() == 0
