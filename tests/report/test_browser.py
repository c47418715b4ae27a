"""The page in a real browser: no error, no request, no sideways scroll, dark when asked, all of it by keyboard."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from tests.report.builders import a_label, a_unit_span, a_whole, evaluations, make_score
from tests.servers.chromium import Browser, Tab

from spanscore import semconv
from spanscore.core.score import Scale
from spanscore.report import write

pytestmark = pytest.mark.server

METRICS = {"faithfulness": Scale(), "noise_sensitivity_of_an_unusually_long_name": Scale(direction="lower")}
LONG_WORD = "unbreakable" * 60
PAPER = "getComputedStyle(document.body).backgroundColor"
LINES = "getComputedStyle(document.querySelector('.trend .point')).fill"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A page with a bad stretch, failures, hostile and very long words."""
    path = tmp_path_factory.mktemp("report") / "report.html"
    spans = []
    for at in range(240):
        bad = 100 <= at < 140
        scores = [make_score(None if at % 20 == 0 else 0.2 if bad else 0.8, name, scale=scale, explanation="<img src=x>")
                  for name, scale in METRICS.items()]  # fmt: skip
        content = {
            semconv.CONVERSATION_ID: f"{at // 4} {LONG_WORD}",
            semconv.INPUT_VALUE: {"question": f"Why {LONG_WORD}?"},
            semconv.OUTPUT_VALUE: {"answer": "<script>document.title='owned'</script>"},
        }
        span = a_unit_span(*scores, minute=at / 10, **content)
        spans += [
            span,
            *evaluations(span, *scores),
            a_label(span, at % 2, LONG_WORD, **{semconv.EVALUATION_EXPLANATION: "<b>"}),
        ]
        spans += [a_whole(span, make_score(0.1, "goal"), turns=4)] if at % 4 == 3 else []
    write(spans, path)
    return path.as_uri()


@pytest.fixture
def tab(chromium: Browser) -> Iterator[Tab]:
    with chromium.tab() as tab:
        yield tab


def opened(tab: Tab, page: str, *, width: int = 1280, dark: bool = False) -> Tab:
    tab.open(page, width=width, dark=dark)
    return tab


def test_page_has_no_error_and_asks_for_nothing(tab: Tab, page: str) -> None:
    opened(tab, page)
    last = "[...document.querySelectorAll('[data-chart]')].at(-1)"
    tab.evaluate(f"{last}.scrollIntoView({{behavior: 'instant'}})")

    assert tab.problems == []
    assert tab.requests == [page]
    assert "owned" not in tab.evaluate("document.title")


def test_title_says_what_was_found(tab: Tab, page: str) -> None:
    opened(tab, page)

    assert "fell from 0.80 to 0.20 between 10:10 and 10:14" in tab.evaluate("document.querySelector('h1').textContent")


@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_scrolls_sideways(tab: Tab, page: str, width: int) -> None:
    opened(tab, page, width=width)
    tab.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")

    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert (
        tab.evaluate(
            "Math.max(...[...document.querySelectorAll('.chart')].map((c) => c.getBoundingClientRect().right))"
        )
        <= width
    )


def test_dark_mode_reaches_page_and_charts_also_while_it_is_open(tab: Tab, page: str) -> None:
    opened(tab, page)
    light = tab.evaluate(f"[{PAPER}, {LINES}]")

    tab.dark(True)
    tab.until(f"{LINES} !== {light[1]!r}")

    assert tab.evaluate(PAPER) != light[0]
    assert tab.problems == []


def test_text_has_enough_contrast_in_both_modes(tab: Tab, page: str) -> None:
    for dark in (False, True):
        opened(tab, page, dark=dark)

        assert tab.evaluate(CONTRAST) >= 4.5


def test_every_part_is_reached_and_opened_by_keyboard(tab: Tab, page: str) -> None:
    opened(tab, page)

    tab.press("Tab")
    assert tab.evaluate("document.activeElement.className") == "skip"
    assert tab.evaluate("document.activeElement.getBoundingClientRect().top") >= 0
    tab.press("Enter")
    assert tab.evaluate("document.activeElement.id") == "main"
    seen = []
    for _ in range(60):
        tab.press("Tab")
        seen.append(tab.evaluate("document.activeElement.tagName"))
        if seen[-1] == "SUMMARY" and tab.evaluate("document.activeElement.parentElement.classList.contains('unit')"):
            break
    tab.press("Enter")

    assert {"A", "SUMMARY", "INPUT"} <= set(seen)
    assert tab.evaluate("document.activeElement.parentElement.open") is True
    assert tab.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


@pytest.mark.parametrize("width", [390, 1280])
def test_every_label_of_time_is_whole(tab: Tab, page: str, width: int) -> None:
    opened(tab, page, width=width)

    labels = tab.evaluate(LABELS)

    assert len(labels) >= 2
    assert all(left >= low and right <= high for left, right, low, high in labels)
    assert all(after[0] >= before[1] for before, after in pairwise(sorted(labels)))


@pytest.mark.parametrize("width", [320, 390, 700, 1280])
def test_charts_fill_their_card_and_keep_the_size_of_their_words(tab: Tab, page: str, width: int) -> None:
    opened(tab, page, width=width)

    for card, right, room, size in tab.evaluate(FILLED):
        assert 0 <= card - right <= room
        assert size == "12px"
    assert tab.evaluate(OUTSIDE) == []


@pytest.mark.parametrize("width", [390, 1280])
def test_a_pointer_at_a_time_or_a_bar_is_shown_its_numbers(tab: Tab, page: str, width: int) -> None:
    opened(tab, page, width=width)

    titles = tab.evaluate("[...document.querySelectorAll('.hover title')].map((title) => title.textContent)")

    assert any("mean 0.20 of" in title and "95 % interval" in title for title in titles)
    assert any("% of units (" in title for title in titles)


def test_the_link_to_the_unit_to_open_first_opens_it(tab: Tab, page: str) -> None:
    opened(tab, page)

    tab.evaluate("document.querySelector('.first a').click()")

    tab.until("document.querySelector(document.querySelector('.first a').hash).open")


def test_worst_units_can_be_filtered_by_metric(tab: Tab, page: str) -> None:
    opened(tab, page)
    shown = "[...document.querySelectorAll('#worst .unit')].filter((unit) => !unit.hidden).length"
    all_of_them = tab.evaluate(shown)

    tab.evaluate("document.querySelectorAll('#filter input')[1].click()")

    low_on_first = (
        "[...document.querySelectorAll('#worst .unit')].filter((unit) => unit.dataset.low.includes('m0')).length"
    )
    assert 0 < tab.evaluate(shown) == tab.evaluate(low_on_first) <= all_of_them


def test_page_prints_with_every_chart(tab: Tab, page: str) -> None:
    opened(tab, page, width=390)

    assert tab.pdf().startswith(b"%PDF")

    assert tab.problems == []


def test_screenshot_is_a_picture(tab: Tab, page: str, tmp_path: Path) -> None:
    opened(tab, page)

    tab.screenshot(tmp_path / "page.png")

    assert (tmp_path / "page.png").stat().st_size > 20_000


LABELS = """
[...document.querySelector('.trend').querySelectorAll('.xtick')].map((text) => {
  const own = text.getBoundingClientRect(), frame = document.querySelector('.trend').getBoundingClientRect();
  return [own.left, own.right, frame.left, frame.right];
})
"""

FILLED = """
[...document.querySelectorAll('.metric .chart')].map((chart) => {
  const plot = chart.querySelector('.plot'), box = chart.parentElement.parentElement.getBoundingClientRect();
  const text = getComputedStyle(plot.querySelector('.tick')).fontSize;
  return [box.right, plot.getBoundingClientRect().right, chart.classList.contains('trend') ? 40 : 12, text];
})
"""

OUTSIDE = """
[...document.querySelectorAll('.chart text')].filter((text) => {
  const own = text.getBoundingClientRect(), frame = text.closest('.chart').getBoundingClientRect();
  return own.left < frame.left || own.right > frame.right || own.top < frame.top || own.bottom > frame.bottom;
}).map((text) => text.textContent)
"""

CONTRAST = """
(() => {
  const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = (c) => c.slice(0, 3).map((v) => v / 255)
    .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, at) => sum + v * [0.2126, 0.7152, 0.0722][at], 0);
  const behind = (node) => {
    for (let one = node; one; one = one.parentElement) {
      const colour = rgb(getComputedStyle(one).backgroundColor);
      if (colour.length < 4 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const worded = [...document.querySelectorAll("h1, h2, p, a, li, span, summary, dt, dd, td, th, label, code, b")]
    .filter((node) => [...node.childNodes].some((c) => c.nodeType === 3 && c.textContent.trim()) && !node.closest("svg"));
  return Math.min(...worded.map((node) => {
    const [a, b] = [light(rgb(getComputedStyle(node).color)), light(behind(node))].sort((x, y) => y - x);
    return (a + 0.05) / (b + 0.05);
  }));
})()
"""
