"""The worker's page in a browser: every element in each state, by eye, by keyboard, and by the accessibility tree."""

import json
import struct
from collections.abc import Iterator
from importlib.resources import files as packaged
from itertools import pairwise
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from proof.page.browser import HEIGHT, NARROW, TOKEN, WIDTH, Served, Tab, chromium
from proof.page.documents import (
    NOW,
    STATES,
    Values,
    healthy,
    hostile,
    many,
    trouble,
    with_peers,
)

ROOT = Path(__file__).parents[2]
SEEN = Path(__file__).parent / "seen"
SCHEMES = ("light", "dark")
PAGE_BYTES_MAX = 60_000
PICTURE_BYTES_MAX = 150_000
ROWS_COMPARED = 12
AWAY = "away"

# All that a reader sees: texts, what is linked, how far bars go, and which colors stand for what.
READ = """() => {
  const isSeen = (node) => node.checkVisibility();
  const text = (node) => (node.innerText ?? node.textContent).replace(/\\s+/g, " ").trim();
  const all = (selector, of = document) => [...of.querySelectorAll(selector)].filter(isSeen);
  const texts = (selector, of) => all(selector, of).map(text);
  const cells = (row) => [...row.children].filter(isSeen).map(text).join(" | ");
  const pair = (node) => [text(node.firstChild), text(node.lastChild)];
  const linked = (node) => node.querySelector("a").getAttribute("href");
  const columns = (path) => [path.classList[0], path.getAttribute("d").split("V").length >> 1];
  return {
    title: document.title,
    kind: document.querySelector("#now").className,
    sentence: text(document.querySelector("h1")),
    since: text(document.querySelector("#since")),
    header: texts("header p"),
    headings: texts("h2"),
    findings: all("#findings li").map((item) => [item.className, ...texts("p", item), linked(item)]),
    unanswered: texts("#unanswered li"),
    totals: Object.fromEntries(all("#totals > div").map(pair)),
    columns: texts("#partitions thead th"),
    rows: all("#partitions tbody tr").map((row) => [
      cells(row), row.querySelector(".c-state").dataset.kind,
      row.querySelector(".capacity .part")?.getAttribute("width") ?? "no bar",
    ]),
    no_rows: texts("#no-rows"),
    axis: texts("#plot text"),
    columns_of: Object.fromEntries(all("#plot .columns path").map(columns)),
    legend: all(".plot tbody tr").map(cells),
    stages: all(".stages > div").map(text),
    lists: all("#lists tbody tr").map(cells),
    events: all("#events tbody tr").map(cells),
    asking: texts("#ask p, #ask label, #ask button"),
    footer: texts("footer"),
  };
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One for all tests of a process."""
    with chromium() as made:
        yield made


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """The page, served."""
    made = Served(tmp_path / "token")
    yield made
    made.close()


@pytest.fixture
def tab(browser: Browser, served: Served) -> Iterator[Tab]:
    """A tab, closed after the test."""
    made = Tab(browser, served, NOW)
    yield made
    made.context.close()


def seen(page: Page) -> Values:
    """What a reader sees, with the first rows only."""
    read: Values = page.evaluate(READ)
    return {**read, "rows": read["rows"][:ROWS_COMPARED], "number of rows": len(read["rows"])}


def violations(page: Page) -> list[str]:
    """What axe-core finds."""
    page.evaluate((packaged("axe_playwright_python") / "axe.min.js").read_text("utf-8"))
    found: list[Values] = page.evaluate("async () => (await axe.run()).violations")
    return [f"{each['id']}: {each['nodes'][0]['html']}" for each in found]


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("state", [*STATES, AWAY])
def test_each_state_is_shown_whole(
    browser: Browser, served: Served, state: str, scheme: str
) -> None:
    """Every element says what seen/STATE.json has; axe-core finds nothing; nobody else is asked; nothing is logged.

    To change what is seen on purpose, delete the file, run the test, and read what it wrote.
    """
    tab = Tab(browser, served, NOW, color_scheme=scheme)
    page = tab.show(healthy() if state == AWAY else STATES[state]())
    if state == AWAY:
        served.document = None
        expect(page.locator("h1")).to_have_text("No answer from the worker")
        tab.errors = [error for error in tab.errors if "503" not in error]
    expected, found = SEEN / f"{state}.json", seen(page)
    if not expected.exists():
        expected.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", "utf-8")
        pytest.fail(f"{expected} was missing, and is written; read it, and run the test again")
    assert found == json.loads(expected.read_text("utf-8"))
    assert violations(page) == []
    assert (tab.errors, tab.foreign) == ([], [])
    assert page.evaluate("getComputedStyle(document.body).colorScheme") in ("light dark", scheme)
    is_dark = page.evaluate(
        "getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0] < 128"
    )
    assert is_dark == (scheme == "dark")
    tab.context.close()


@pytest.mark.parametrize("state", [*STATES])
def test_a_narrow_screen_shows_all_without_scrolling_sideways(
    browser: Browser, served: Served, state: str
) -> None:
    """320 px, as a phone, or as a window at 400 %."""
    tab = Tab(browser, served, NOW, viewport={"width": NARROW, "height": HEIGHT})
    page = tab.show(STATES[state]())
    assert page.evaluate("document.documentElement.scrollWidth") <= NARROW
    cut = page.evaluate(
        "[...document.querySelectorAll('main *')].filter((e) => e.checkVisibility() && !e.closest('.unseen')"
        " && e.getBoundingClientRect().right > innerWidth).map((e) => e.outerHTML.slice(0, 80))"
    )
    assert cut == []
    assert len(seen(page)["rows"]) == min(ROWS_COMPARED, seen(page)["number of rows"])
    tab.context.close()


def test_names_of_strangers_are_text(tab: Tab) -> None:
    """A topic, list, reason, member or host that is HTML is shown as it is, and runs nothing."""
    name = "<img src=x onerror=\"window.hit='yes'\">"
    page = tab.show(hostile(name))
    page.click("#partitions tbody .place >> nth=0")
    assert page.locator("main").inner_text().count(name) > 20
    assert page.locator("main img").count() == 0
    assert page.evaluate("window.hit ?? null") is None
    assert tab.errors == []
    assert tab.foreign == []


def test_a_peer_that_lies_hides_nothing_of_this_worker(tab: Tab) -> None:
    """It has our name and our partitions, all is well there, and its clock is beyond all dates."""
    document = with_peers()
    own = document["worker"]["name"]
    (liar, *_) = [peer["status"] for peer in document["peers"] if peer["answers"]]
    liar["worker"] |= {"name": own, "instance": "of a liar", "up_since": 1e18}
    liar["shards"] = [{**shard, "lag": 0, "since": 1e18} for shard in document["shards"]]
    liar["findings"] = [{**each, "since": 1e18} for each in document["findings"]]
    liar["minutes"] = {**document["minutes"], "first": 1e18}
    for shard in document["shards"]:
        shard["lag"] = 987_654
    page = tab.show(document)
    rows = page.locator("#partitions tbody tr", has_text="987,654")
    assert rows.count() == len(document["shards"])
    for button in page.locator("#partitions tbody button.place").all():
        button.click()
    drawn = page.locator("#plot path.pass").get_attribute("d")
    assert drawn is not None
    assert drawn.count("M") == 60
    assert tab.errors == []


def test_nothing_runs_that_is_not_a_file_of_ours(tab: Tab) -> None:
    """The browser holds the page to its policy: no inline script, no script and no picture from elsewhere."""
    page = tab.show(healthy())
    page.evaluate(
        "() => { const script = document.createElement('script'); script.textContent = 'window.hit = 1';"
        " document.body.append(script); }"
    )
    assert page.evaluate("window.hit ?? null") is None
    assert "Content Security Policy" in " ".join(tab.errors)


def test_it_asks_every_two_seconds_while_it_is_seen(tab: Tab) -> None:
    """A hidden page asks for nothing, and asks at once as it is seen again."""
    page = tab.context.new_page()
    page.clock.install(time=NOW * 1000)
    tab.served.document = healthy()
    asked = list[str]()
    page.on("request", lambda request: asked.append(request.url))
    page.goto(tab.served.address)
    page.wait_for_selector("#now.ready")
    with page.expect_response("**/api/status"):
        page.clock.run_for(2_000)
    page.wait_for_function("document.querySelector('#now.ready')")
    hide(page, hidden=True)
    before = len(asked)
    page.clock.run_for(60_000)
    assert len(asked) <= before + 1  # one may have been under way
    before = len(asked)
    page.clock.run_for(60_000)
    assert len(asked) == before
    with page.expect_response("**/api/status"):
        hide(page, hidden=False)


def hide(page: Page, *, hidden: bool) -> None:
    """Hide the page, as if another tab were before it, or show it."""
    page.evaluate(
        "(hidden) => { Object.defineProperty(document, 'hidden', { value: hidden, configurable: true });"
        " document.dispatchEvent(new Event('visibilitychange')); }",
        hidden,
    )


def test_it_asks_less_often_if_nobody_answers_and_says_since_when(tab: Tab) -> None:
    """It keeps what it had, says of when that is, and is right again with the first answer."""
    page = tab.show(healthy())
    tab.served.document = None
    expect(page.locator("#since")).to_have_text(
        "since 08:00:00, it answered 503: it rests. Asking again in 4 s."
    )
    expect(page.locator("header")).to_contain_text("as of 08:00:00")
    assert seen(page)["number of rows"] == 8
    tab.served.document = healthy(3)
    expect(page.locator("h1")).to_have_text("Ready: 3 partitions of events are live")
    assert "as of" not in page.locator("header").inner_text()


def test_a_worker_that_has_ended_has_said_why_in_its_log(tab: Tab) -> None:
    """Nothing else is left to ask."""
    page = tab.show(healthy())
    page.route("**/api/status", lambda route: route.abort())
    expect(page.locator("#since")).to_have_text(
        "since 08:00:00, it does not answer; if it has ended, the end of its log says why. Asking again in 4 s."
    )


def test_a_row_is_one_line_also_if_its_topic_has_a_long_name(tab: Tab) -> None:
    """The arrow that shows that a row opens takes no room; a name of two lines begins in the row's first."""
    for topic, lines in (("demo-homepages", 1), ("events-of-all-shops-in-europe", 2)):
        status = healthy()
        status["worker"]["topic"] = topic
        page = tab.show(status)
        row, place, lag = (
            page.locator(f"#partitions tbody tr:first-child {part}").bounding_box()
            for part in (".c-place", ".place", ".c-lag")
        )
        assert row and place and lag
        line = float(page.evaluate("parseFloat(getComputedStyle(document.body).lineHeight)"))
        assert place["height"] == lines * line
        assert row["height"] < lines * line + 12
        assert place["y"] == pytest.approx(lag["y"] + 5, abs=2)


@pytest.mark.parametrize("width", [NARROW, 400, WIDTH])
def test_no_time_below_the_plot_touches_its_neighbor(tab: Tab, width: int) -> None:
    """At whichever minute of the hour, and however narrow the screen is."""
    tab.page.set_viewport_size({"width": width, "height": HEIGHT})
    for minute in range(15):
        status = healthy()
        status["minutes"]["first"] += minute * 60
        page = tab.show(status)
        ends = page.evaluate(
            "[...document.querySelectorAll('#plot .axis text')].map((e) => e.getBoundingClientRect())"
            ".map((box) => [box.left, box.right]).sort((a, b) => a[0] - b[0])"
        )
        assert all(before[1] + 4 < after[0] for before, after in pairwise(ends)), ends


def test_the_filter_leaves_what_matches_each_word(tab: Tab) -> None:
    """A number is a partition; other words are found in names, states and troubles."""
    page = tab.show(trouble())
    for query, rows in (
        ("3", ["events/3"]),
        ("STOPPED", ["events/3"]),
        ("dedup-1", ["events/8"]),
        ("second writer", ["events/3"]),
        ("live 6", ["events/6"]),
        ("nothing of this", []),
    ):
        page.fill("#filter", query)
        assert [row[0].split(" | ")[0] for row in page.evaluate(READ)["rows"]] == rows
    expect(page.locator("#no-rows")).to_have_text("No partition matches the filter.")


def test_a_new_answer_moves_no_focus_and_keeps_what_is_open(tab: Tab) -> None:
    """A row that is open stays open, with the focus, though it moves to another place."""
    page = tab.show(healthy())
    page.focus("tbody tr:nth-child(3) .place")
    page.keyboard.press("Enter")
    assert "offsets behind" in page.locator(".details").inner_text()
    changed = healthy()
    changed["shards"][2] |= {"state": "stopped", "trouble": "a second writer"}
    tab.served.document = changed
    expect(page.locator("tbody tr >> nth=0")).to_contain_text("events/2")
    assert "a second writer" in page.locator(".details").inner_text()
    assert page.evaluate("document.activeElement.textContent") == "events/2"


def test_the_keyboard_reaches_all_and_the_focus_is_seen(tab: Tab) -> None:
    """In the order of the page, from the link that skips to the partitions on."""
    page = tab.show(trouble())
    walked = list[str]()
    while True:
        page.keyboard.press("Tab")
        name, is_seen = page.evaluate(
            "() => { const on = document.activeElement; const style = getComputedStyle(on); return ["
            " on === document.body ? 'the end' : on.id || on.dataset.act"
            " || on.innerText.replace(/\\s*\\n\\s*/g, '') || on.tagName,"
            " parseFloat(style.outlineWidth) >= 2 && style.outlineStyle !== 'none']; }"
        )
        if name == "the end" or name in walked:
            break
        assert is_seen, name
        walked.append(name)
    runbooks, places = walked[1:5], walked[6:14]
    assert walked[0] == "Skip to the partitions"
    assert all(name.startswith("Runbook") for name in runbooks)
    assert walked[5] == "filter"
    assert places == [f"events/{number}" for number in (3, 5, 0, 1, 2, 4, 6, 7)]
    assert walked[14:17] == [
        f"events/{at * 5 % 8}/{88_000_000 - at * 31}: ask about it" for at in range(3)
    ]
    assert walked[17:] == [
        "token",
        "by",
        "asked-for",
        "Explain",
        "snapshot",
        "lists/reload",
        "drain",
    ]


def test_a_screen_reader_finds_the_tables_and_the_sentence(tab: Tab) -> None:
    """By their roles and names, also where rows are laid out as cards; the sentence is the only live text."""
    for width in (WIDTH, NARROW):
        tab.page.set_viewport_size({"width": width, "height": HEIGHT})
        tree = tab.show(trouble()).locator("body").aria_snapshot()
        for line in (
            'heading "Not ready: 2 partitions are not live" [level=1]',
            'region "Findings 4"',
            'table "Partitions 8"',
            'rowheader "events/3"',
            'cell "stopped"',
            '1.2e-6"',
            'table "Lists"',
            'img "Verdicts, the last 60 minutes events a minute"',
            'textbox "Token"',
        ):
            assert line in tree, f"{line} in {tree}"
    live = tab.page.evaluate("[...document.querySelectorAll('[aria-live]')].map((e) => e.id)")
    assert live == ["sentence"]


def test_a_question_shows_its_progress_and_its_answer(tab: Tab) -> None:
    """The token is kept by the tab; an event's place in the list is a question at hand; the answer is text."""
    page = tab.show(trouble())
    tab.served.states = [
        {"state": "running", "progress": "12 events read"},
        {"state": "done", "text": "key: <b>\n  known", "said": ["a note"], "status": 0},
    ]
    page.click("#events .place >> nth=0")
    page.keyboard.press("Enter")
    expect(page.locator("#answer")).to_have_text("Give the token first.")
    page.fill("#token", TOKEN)
    page.click("text=Explain")
    expect(page.locator("#answer")).to_contain_text("12 events read")
    expect(page.locator("#answer .done")).to_have_text("key: <b>\n  known")
    expect(page.locator("#answer")).to_contain_text("a note")
    page.select_option("#by", "key")
    page.fill("#asked-for", " a@b.c")
    page.click("text=Explain")
    expect(page.locator("#answer .done")).to_have_text("key: <b>\n  known")
    assert tab.served.asked == [{"at": "events/0/88000000"}, {"key": " a@b.c"}]
    assert tab.show(trouble()).input_value("#token") == TOKEN


def test_a_drain_is_confirmed_and_a_wrong_token_is_named(tab: Tab) -> None:
    """The button under the focus keeps the worker; Escape, too, and the focus comes back."""
    page = tab.show(trouble())
    page.fill("#token", "wrong")
    page.click("text=Save snapshots")
    expect(page.locator("#acted")).to_have_text("The worker does not take this token.")
    page.fill("#token", TOKEN)
    page.focus("[data-act=drain]")
    for leave in ("Enter", "Escape"):
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.textContent") == "Keep it running"
        page.keyboard.press(leave)
        expect(page.locator("#sure")).to_be_hidden()
        assert page.evaluate("document.activeElement.dataset.act") == "drain"
    assert tab.served.acted == []
    page.keyboard.press("Enter")
    page.click("#sure .grave")
    expect(page.locator("#acted")).to_have_text("It is done.")
    page.click("text=Reload lists")
    page.click("text=Save snapshots")
    page.wait_for_function("!document.querySelector('[data-act=snapshot]').disabled")
    assert tab.served.acted == ["/api/drain", "/api/lists/reload", "/api/snapshot"]


def test_without_a_token_the_page_says_how_to_turn_asking_on(tab: Tab) -> None:
    """And has nothing that would ask."""
    page = tab.show(healthy())
    expect(page.locator("#ask")).to_contain_text("set server.token_file")
    assert (
        page.locator("#ask :is(input, button)").evaluate_all(
            "(all) => all.some((e) => e.checkVisibility())"
        )
        is False
    )
    assert page.locator("#events button").count() == 0


def test_a_minute_under_the_pointer_is_told_in_numbers(tab: Tab) -> None:
    """The legend shows that minute, and the last full one after the pointer has left."""
    page = tab.show(healthy())
    box = page.locator("#plot").bounding_box()
    assert box
    page.mouse.move(box["x"] + 53, box["y"] + 100)
    expect(page.locator("#of-minute")).to_have_text("07:01")
    first = healthy()["minutes"]["pass"][0]
    expect(page.locator(".plot tbody tr:first-child td >> nth=1")).to_have_text(f"{first:,}")
    page.mouse.move(0, 0)
    expect(page.locator("#of-minute")).to_have_text("Last minute")


def test_256_partitions_are_drawn_within_a_frame_or_two(tab: Tab) -> None:
    """A new answer makes no node anew: rows are changed in place."""
    page = tab.show(many())
    page.evaluate(
        "() => { window.made = 0; new MutationObserver((changes) => { for (const change of changes)"
        " for (const node of change.addedNodes) if (node.nodeType === 1) window.made += 1; })"
        ".observe(document.querySelector('#partitions tbody'), { childList: true, subtree: true }); }"
    )
    changed = many()
    changed["shards"][0]["lag"] = 123_456
    tab.served.document = changed
    expect(page.locator("#partitions tbody tr >> nth=0")).to_contain_text("123,456")
    assert page.evaluate("window.made") == 0


def test_motion_is_left_out_for_who_wants_none(browser: Browser, served: Served) -> None:
    """Neither bars nor the sign move."""
    tab = Tab(browser, served, NOW, reduced_motion="reduce")
    page = tab.show(STATES["folding"]())
    moving = "(e) => getComputedStyle(e).animationName + getComputedStyle(e).transitionDuration"
    assert page.locator("#sign").evaluate(moving) == "none0s"
    assert page.locator(".bar .part >> nth=0").evaluate(moving) == "none0s"
    tab.context.close()


def test_the_files_of_the_page_are_small() -> None:
    """All that `/` loads, as it is sent; the runbook's style is loaded by the runbook alone."""
    files = [*(packaged("streamdedup.server") / "page").iterdir()]
    sizes = {file.name: len(file.read_bytes()) for file in files}
    assert sizes.pop("runbook.css")
    assert sum(sizes.values()) < PAGE_BYTES_MAX


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_pictures_of_the_documents_are_of_this_page(
    browser: Browser, served: Served, scheme: str
) -> None:
    """They are as wide as the page here. To take one anew, delete it and run the test."""
    picture = ROOT / f"docs/page-{scheme}.png"
    if not picture.exists():
        tab = Tab(browser, served, NOW, color_scheme=scheme)
        page = tab.show(healthy(6))
        box = page.locator("#minutes").bounding_box()
        assert box
        height = box["y"] + box["height"] + 20
        page.set_viewport_size({"width": WIDTH, "height": int(height)})
        page.screenshot(path=picture, animations="disabled")
        tab.context.close()
    data = picture.read_bytes()
    assert struct.unpack(">I", data[16:20]) == (WIDTH,)
    assert len(data) < PICTURE_BYTES_MAX
