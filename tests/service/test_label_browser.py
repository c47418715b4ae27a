"""The labelling page in a real browser: keys, undo, reload, a phone's width, dark colours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from threading import Thread

import pytest
from tests.report.test_browser import CONTRAST
from tests.servers.chromium import Browser, Tab
from tests.stored.label_builders import draw_some, make_case, open_session

from spanscore.core.codecs.annotation_file import read_annotations
from spanscore.core.sample import Image, SingleTurnSample
from spanscore.report import jinja2_page
from spanscore.service.label_page import LabelPage
from spanscore.stored.label_cases import LabelCase

pytestmark = pytest.mark.server

LONG_WORD = "unbreakable" * 60
PROGRESS = "document.getElementById('progress').textContent"
QUESTION = "document.querySelector('#case .said').textContent"
PIXEL = "R0lGODlhAQABAAAAACH5BAEAAAAALAAAAAABAAEAAAIBRAA7"
HOSTILE = "</script><img src=x onerror=document.title='owned'> "
IS_REVEALED = "!document.getElementById('verdict').hidden"
PAPER = "getComputedStyle(document.body).backgroundColor"


def make_hostile_case(number: int) -> LabelCase:
    """Return a case with a very long word, and with markup in each text."""
    case = make_case(number, 0.2)
    sample = SingleTurnSample(
        user_input=f"{HOSTILE}Question {number}?",
        response=HOSTILE + LONG_WORD,
        retrieved_contexts=[f"{HOSTILE}It was opened in 1931 by the mayor of the town."],
        images=[Image(base64=PIXEL, media_type="image/gif"), Image(url="https://example.org/a.png")],
    )
    return replace(case, sample=sample)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "labels.jsonl"


@pytest.fixture
def tab(chromium: Browser, path: Path) -> Iterator[Tab]:
    """A tab with the page of four cases."""
    values = {
        "title": "faithfulness",
        "annotator": LONG_WORD,
        "headline": "Does it pass?",
        "definition": [LONG_WORD],
        "file": str(path),
    }

    def render(nonce: str) -> str:
        return jinja2_page.render("label.html.j2", nonce=nonce, **values)

    cases = [make_hostile_case(number) for number in range(4)]
    page = LabelPage(open_session(path, draw_some(cases)), render, 0)
    thread = Thread(target=page.serve, daemon=True)
    thread.start()
    with chromium.tab() as tab:
        tab.open(page.url)
        tab.until("document.documentElement.dataset.ready")
        yield tab
    if thread.is_alive():
        page.stop()
    thread.join()


@pytest.fixture
def press(tab: Tab) -> Callable[[str, str], None]:
    """Return a function that presses a key, and waits for the text of the progress, or for another expression."""

    def press_key(key: str, shown: str) -> None:
        tab.press(key)
        tab.until(shown if "(" in shown else f"{PROGRESS} === {shown!r}")

    return press_key


def test_the_page_asks_only_its_server_and_has_no_error(tab: Tab, press: Callable[[str, str], None]) -> None:
    press("1", "1 of 4 labelled")

    origin = tab.requests[0].partition("/?")[0]
    requests = [request for request in tab.requests[1:] if not request.startswith("data:")]
    assert [request.removeprefix(origin) for request in requests] == ["/state", "/choose"]
    assert tab.problems == []
    assert tab.evaluate("document.querySelector('#case img').naturalWidth") == 1
    assert tab.evaluate("document.title") == "Label · faithfulness"
    assert tab.evaluate("document.getElementById('case').textContent").count("<img src=x") == 3


def test_text_has_enough_contrast_in_both_modes(tab: Tab, press: Callable[[str, str], None]) -> None:
    press("1", "1 of 4 labelled")

    for dark in (False, True):
        tab.dark(dark)
        assert tab.evaluate(CONTRAST) >= 4.5


def test_keys_label_skip_and_go_on(tab: Tab, press: Callable[[str, str], None], path: Path) -> None:
    first = tab.evaluate(QUESTION)
    assert tab.evaluate("document.querySelector('mark')") is None

    press("1", "1 of 4 labelled")
    assert tab.evaluate(f"{IS_REVEALED} && document.getElementById('verdict').innerText.includes('0.20 · fail')")
    assert tab.evaluate("document.querySelector('mark').textContent") == "It was opened in 1931 by the mayor"
    press("2", "1 of 4 labelled")  # no choice before the next case is shown
    press("Enter", f"{QUESTION} !== {first!r}")
    press("s", "1 of 4 labelled, 1 skipped")
    press("2", "2 of 4 labelled, 1 skipped")

    assert [label.human for label in read_annotations(path)] == [True, False]


def test_undo_shows_the_case_and_its_note_again(tab: Tab, press: Callable[[str, str], None], path: Path) -> None:
    first = tab.evaluate(QUESTION)
    tab.press("n")
    tab.send("Input.insertText", text="1 is a figure")
    press("Escape", "document.getElementById('note-field').hidden === (1 === 1)")
    press("1", "1 of 4 labelled")
    (label,) = read_annotations(path)
    assert label.label is not None
    assert label.label.comment == "1 is a figure"

    press("u", "0 of 4 labelled")
    assert (tab.evaluate(QUESTION), tab.evaluate(IS_REVEALED)) == (first, False)
    press("2", "1 of 4 labelled")

    assert [label.human for label in read_annotations(path)] == [False]


def test_a_reload_shows_the_next_case_and_loses_nothing(
    tab: Tab, press: Callable[[str, str], None], path: Path
) -> None:
    first = tab.evaluate(QUESTION)
    press("1", "1 of 4 labelled")

    tab.open(tab.requests[0])
    tab.until(f"{PROGRESS} === '1 of 4 labelled'")

    assert tab.evaluate(QUESTION) != first
    press("u", "0 of 4 labelled")
    assert tab.evaluate(QUESTION) == first


def test_the_last_case_is_followed_by_the_summary(tab: Tab, press: Callable[[str, str], None]) -> None:
    for number in range(1, 5):
        press("1", f"{number} of 4 labelled")
        press("Enter", f"{IS_REVEALED} === (1 === 2)")

    assert tab.evaluate("document.getElementById('summary').innerText") == "4 labels"
    tab.evaluate("[...document.querySelectorAll('button')].find((each) => each.textContent === 'finish').click()")
    tab.until("!document.getElementById('over').hidden")
    assert tab.evaluate("document.querySelectorAll('button').length") == 0


@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_scrolls_sideways(tab: Tab, press: Callable[[str, str], None], width: int) -> None:
    tab.size(width, 800)
    assert tab.evaluate("document.documentElement.scrollWidth") <= width

    press("1", "1 of 4 labelled")

    assert tab.evaluate("document.documentElement.scrollWidth") <= width


def test_dark_colours_reach_the_page(tab: Tab) -> None:
    light = tab.evaluate(PAPER)

    tab.dark(True)

    tab.until(f"{PAPER} !== {light!r}")
