"""The page as text: hostile texts stay texts, missing content comes with advice, charts are charts."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from tests.report.builders import a_unit_span, evaluations, make_score, rows

from spanscore import semconv
from spanscore.core.score import JudgeCall, Outcome, Usage
from spanscore.core.span import SpanData
from spanscore.errors import MissingExtraError
from spanscore.judges.lexical.judge import LexicalJudge
from spanscore.metrics.catalog.registry import COMPARES_WORDS
from spanscore.report import ReportRow, charts, summarize, write, write_scores
from spanscore.report.excerpts import excerpt_of_spans
from spanscore.report.findings import format_score
from spanscore.report.spans import Spans
from spanscore.testing import make_span

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>{{ 7*7 }}"
SURROGATE = "half a face \ud83d here"


class Outline(HTMLParser):
    """Every element with its attributes, and the text outside scripts and styles."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self._mute = False

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append((tag, dict(attrs)))
        self._mute = tag in {"script", "style"}

    def handle_endtag(self, tag: str) -> None:
        self._mute = False

    def handle_data(self, data: str) -> None:
        if not self._mute:
            self.text.append(data)


def outline(path: Path) -> Outline:
    parsed = Outline()
    parsed.feed(path.read_text(encoding="utf-8"))
    return parsed


def words(path: Path) -> str:
    return " ".join(" ".join(outline(path).text).split())


def a_scored_unit(
    answer: str, *, value: float = 0.1, metric: str = "faithfulness", content: bool = True
) -> list[SpanData]:
    score = make_score(value, metric, explanation=f"because {answer}")
    held = {semconv.INPUT_VALUE: {"question": "Why?"}, semconv.OUTPUT_VALUE: {"answer": answer}} if content else {}
    span = a_unit_span(score, **held)
    return [span, *evaluations(span, score, content=content)]


@pytest.mark.parametrize("text", [HOSTILE, SURROGATE, "\x00\x1b[31m", "line\u2028separator"])
def test_hostile_text_stays_text(tmp_path: Path, text: str) -> None:
    page = tmp_path / "report.html"
    harmless = tmp_path / "harmless.html"

    write(a_scored_unit(text, metric="faith<b>fulness"), page, title=text)
    write(a_scored_unit("fine", metric="faithfulness"), harmless, title="fine")

    assert [tag for tag, _ in outline(page).tags] == [tag for tag, _ in outline(harmless).tags]
    assert not any(name.startswith("on") for _, attributes in outline(page).tags for name in attributes)


CONTROL = "\x00\x1b]0;owned\x07\x9b2J\u202e"


@pytest.mark.parametrize(
    ("services", "title"),
    [
        (["unknown_service"], "Scores of live traces"),
        (["unknown_service:java", "shop"], "shop"),
        (["shop", "guide"], "shop, guide"),
    ],
)
def test_the_title_leaves_out_a_service_without_a_name(services: list[str], title: str, tmp_path: Path) -> None:
    spans = [
        replace(span, trace_id=number, resource={"service.name": service})
        for number, service in enumerate(services, 1)
        for span in a_scored_unit("fine", metric="faithfulness")
    ]

    write(spans, tmp_path / "page.html")

    (heading,) = re.findall(r'<p class="eyebrow">(.*?) · ', (tmp_path / "page.html").read_text("utf-8"))
    assert heading == title


def test_control_characters_reach_the_page_as_escapes_only(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    named = f"faith{CONTROL}fulness"

    write([*a_scored_unit(CONTROL, metric=named), *a_scored_unit("x", metric=named, value=0.9)], page, title=CONTROL)

    text = page.read_text(encoding="utf-8")
    assert [character for character in CONTROL if character in text and not character.isprintable()] == []
    assert r"because \x00\x1b]0;owned\x07\x9b2J\u202e" in words(page)


def test_answer_and_explanation_are_shown_as_they_were_said(tmp_path: Path) -> None:
    page = tmp_path / "report.html"

    write(a_scored_unit(HOSTILE), page)

    assert HOSTILE in words(page)
    assert f"because {HOSTILE}" in words(page)


def test_question_answer_contexts_and_tree_of_a_low_unit_are_there(tmp_path: Path) -> None:
    page, root = tmp_path / "report.html", a_scored_unit("Because of the tide.")
    found = make_span(
        semconv.RETRIEVAL,
        trace_id=root[0].trace_id,
        parent_id=root[0].span_id,
        name="retrieval library",
        start_ns=root[0].start_ns,
        end_ns=root[0].start_ns + 12_500_000,
        attributes={semconv.RETRIEVAL_DOCUMENTS: [{"id": "a", "content": "The tide comes twice a day."}]},
    )

    write([*root, found], page)

    for shown in ("Why?", "Because of the tide.", "The tide comes twice a day.", "retrieval library", "12.5 ms"):
        assert shown in words(page)


def test_content_that_was_not_captured_says_how_to_switch_it_on(tmp_path: Path) -> None:
    page = tmp_path / "report.html"

    write(a_scored_unit("secret", content=False), page)

    assert "Not captured" in words(page)
    assert "capture=Capture(content=True)" in words(page)
    assert semconv.CAPTURE_CONTENT_ENV in words(page)
    assert "secret" not in words(page)


def test_nothing_scored_says_what_to_do(tmp_path: Path) -> None:
    page = tmp_path / "report.html"

    write([], page)

    assert "No span of this file carries a score" in words(page)


def test_rows_of_a_data_set_make_the_same_page(tmp_path: Path) -> None:
    page = tmp_path / "report.html"

    write_scores(
        [ReportRow(unit="1", metric="exact_match", value=0.0, quality=0.0, label="fail", kind="binary", range=(0.0, 1.0),
             question="Capital of France?", answer="Lyon", contexts=("Paris is the capital.",))],
        page,
        title="capitals.jsonl",
    )  # fmt: skip

    for shown in ("capitals.jsonl", "Capital of France?", "Lyon", "Paris is the capital."):
        assert shown in words(page)


def test_of_how_much_a_mean_is_is_said_where_units_were_lost(tmp_path: Path) -> None:
    found = [ReportRow(unit=f"u{n}", metric="polite", value=1.0, quality=1.0, probability=0.5) for n in range(60)]
    found += [ReportRow(unit=f"l{n}", metric="polite", outcome=Outcome.QUEUE_FULL.value) for n in range(40)]

    (summary,) = summarize(found).metrics
    write_scores(found, tmp_path / "report.html")

    assert summary.excluded is not None
    share, low, high = summary.excluded
    assert (share, high) == (pytest.approx(0.4), 1.0)
    assert low < 0.6
    said = (
        "40 % of the sampled units were not scored: the mean covers the rest, "
        f"over all units it is {low:.2f} at worst, 1.00 at best."
    )
    assert said in words(tmp_path / "report.html")


def test_what_a_fallback_judged_is_not_in_the_mean_and_is_said_to_be_missing() -> None:
    found = [ReportRow(unit=f"u{n}", metric="polite", value=1.0, quality=1.0) for n in range(10)]
    found += [ReportRow(unit=f"f{n}", metric="polite (fallback)", value=0.0, quality=0.0) for n in range(20)]

    (own,) = (one for one in summarize(found).metrics if one.metric == "polite")

    assert own.excluded is not None
    assert own.excluded[0] == pytest.approx(2 / 3)


def test_why_there_is_no_score_is_said_with_the_latest_trace_of_such(tmp_path: Path) -> None:
    lacking = make_score(None, outcome=Outcome.MISSING_FIELD, missing=("retrieved_contexts",))
    units = [a_unit_span(make_score(1.0)), a_unit_span(lacking, minute=1), a_unit_span(lacking, minute=2)]

    write(units, tmp_path / "report.html")

    why = "faithfulness a field that the metric needs is missing: needs retrieved_contexts 2 "
    assert f"{why}{units[2].trace_id:032x}" in words(tmp_path / "report.html")


def test_what_the_judge_cost_is_said(tmp_path: Path) -> None:
    calls = Usage((JudgeCall(step="s", model="m", input_tokens=1200, output_tokens=34, cost_usd=0.004),))
    score = make_score(0.5, judge_model="small-judge", usage=calls)
    span = a_unit_span(score)

    write([span, *evaluations(span, score)], tmp_path / "report.html")

    assert "Judge small-judge: 1,234 tokens, $0.004." in words(tmp_path / "report.html")
    assert COMPARES_WORDS not in words(tmp_path / "report.html")


@pytest.mark.parametrize(("days", "shown"), [(4, "$0.008, $0.002 a day."), (0, "$0.008.")])
def test_a_metrics_cost_a_day_is_beside_its_mean_if_its_scores_span_days(tmp_path: Path, days: int, shown: str) -> None:
    calls = Usage((JudgeCall(step="s", model="m", input_tokens=1200, output_tokens=34, cost_usd=0.004),))
    score = make_score(0.5, judge_model="small-judge", usage=calls)
    spans = [a_unit_span(score, minute=minute) for minute in (0, max(1, days * 1_440))]

    write([span for unit in spans for span in (unit, *evaluations(unit, score))], tmp_path / "report.html")

    assert f"2,468 tokens, {shown}" in words(tmp_path / "report.html")


def test_the_page_says_where_the_judge_only_compared_words(tmp_path: Path) -> None:
    score = make_score(0.5, judge_model=LexicalJudge.model)
    span = a_unit_span(score)

    write([span, *evaluations(span, score)], tmp_path / "report.html")

    assert COMPARES_WORDS in words(tmp_path / "report.html")


def test_what_to_open_first_says_why_and_leads_to_the_unit(tmp_path: Path) -> None:
    page = tmp_path / "report.html"

    write([*a_scored_unit("Lyon.", value=0.1), *a_scored_unit("Paris.", value=0.9)], page)

    assert "Open first: Why? It was answered: “Lyon.” faithfulness 0.10 : because Lyon." in words(page)
    assert ("a", {"href": "#unit-1"}) in outline(page).tags
    assert next(at["id"] for tag, at in outline(page).tags if "unit" in (at.get("class") or "").split()) == "unit-1"


def test_a_question_that_failed_several_times_is_one_entry_with_its_count(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    spans = [span for value in (0.1, 0.9, 0.2, 0.3) for span in a_scored_unit(f"Lyon {value}.", value=value)]

    write(spans, page)

    assert sum("unit" in (at.get("class") or "").split() for _, at in outline(page).tags) == 1
    assert "3 units fail a metric" in words(page)
    assert "Why? ×3" in words(page)
    assert re.search(
        r"Also failed on this question .* faithfulness 0.20, trace .* faithfulness 0.30, trace", words(page)
    )


def test_the_threshold_is_said_and_drawn(tmp_path: Path) -> None:
    page = tmp_path / "report.html"

    write([*a_scored_unit("Lyon.", value=0.1), *a_scored_unit("Paris.", value=0.9)], page)

    assert "50\u00a0% pass at 0.5 (default)".replace("\u00a0", " ") in words(page)
    assert "pass at quality 0.5 (default)" in words(page)
    assert ">pass at 0.5 (default)</text>" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("outcome", "said", "not_said"),
    [
        (Outcome.MISSING_FIELD, "nothing to score", "score lost"),
        (Outcome.JUDGE_ERROR, "score lost", "nothing to score"),
    ],
)
def test_only_a_failure_has_the_colour_of_alarm(tmp_path: Path, outcome: Outcome, said: str, not_said: str) -> None:
    page = tmp_path / "report.html"
    missing = make_score(None, outcome=outcome)
    span = a_unit_span(missing, minute=1)

    write([*a_scored_unit("fine"), span, *evaluations(span, missing)], page)

    assert said in words(page)
    assert not_said not in words(page)
    assert ('<rect class="lost"' in page.read_text(encoding="utf-8")) is (said == "score lost")


def test_as_many_as_are_as_low_are_said_beside_the_usual(tmp_path: Path) -> None:
    page = tmp_path / "report.html"

    write_scores(rows(*[0.9, 0.8] * 60, *[0.0] * 5, *[0.3] * 25, *[0.9] * 60, every_s=2.0), page)

    assert "faithfulness 0.00 (one of 5 at 0.00; usual: 0.85)" in words(page)


def test_where_all_passes_nothing_is_to_be_opened_first(tmp_path: Path) -> None:
    write(a_scored_unit("fine", value=0.9), tmp_path / "report.html")

    assert "Open first" not in words(tmp_path / "report.html")
    assert "No unit fails a metric" in words(tmp_path / "report.html")


def test_long_texts_are_cut_and_say_so(tmp_path: Path) -> None:
    write(a_scored_unit("x" * 10_000), tmp_path / "report.html")

    assert "(cut; 10,000 characters in all)" in words(tmp_path / "report.html")


def test_file_asks_the_network_for_nothing(tmp_path: Path) -> None:
    page = tmp_path / "report.html"

    write(a_scored_unit("fine"), page)

    loaded = [attributes.get("src") or attributes.get("href") for tag, attributes in outline(page).tags if tag != "a"]
    assert {one for one in loaded if one} == {"data:,"}
    assert "default-src 'none'" in page.read_text(encoding="utf-8")


def test_every_link_of_the_page_leads_somewhere_in_it(tmp_path: Path) -> None:
    page = tmp_path / "report.html"

    write([*a_scored_unit("fine"), *a_scored_unit("fine", metric="harmless")], page)

    tags = outline(page).tags
    ids = [attributes["id"] for _, attributes in tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {attributes["href"] for tag, attributes in tags if tag == "a"} <= {f"#{one}" for one in ids}


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"kind": "binary"},
        {"kind": "ordinal", "range": (1.0, 5.0)},
        {"range": (-1.0, 1.0)},
        {"quality": None, "range": None},
    ],
    ids=["unit", "binary", "ordinal", "cosine", "open"],
)
def test_charts_are_svg_without_a_place_or_a_number_that_is_none(given: dict[str, Any]) -> None:
    summary = summarize(rows(*[1.0, 1.0, None, 0.0] * 30, **{"range": (0.0, 1.0), **given}))
    (metric,) = summary.metrics

    drawn = [charts.trend(metric, summary), *charts.histograms(metric).values()]

    for chart in drawn:
        assert chart is not None
        ElementTree.fromstring(chart)  # well-formed
        assert re.search(r"\b(?:nan|inf|None)\b", chart) is None


def test_histogram_holds_every_score_once_and_sums_to_all_units() -> None:
    (metric,) = summarize(rows(0.0, 0.05, 0.15, 0.3, 0.95, 1.0, range=(0.0, 1.0))).metrics
    (chart,) = charts.histograms(metric).values()

    matches = re.findall(r"<title>(.*?): (.*?) % of units \((\d+) scored\)", chart)
    assert sum(int(scored) for *_, scored in matches) == 6
    assert sum(float(share) for _, share, _ in matches) == pytest.approx(100, abs=0.5)
    assert [name for name, share, _ in matches if float(share)] == [
        "0.00 to 0.05", "0.05 to 0.10", "0.15 to 0.20", "0.30 to 0.35", "0.95 to 1.00",
    ]  # fmt: skip


def test_an_outcome_of_somebody_else_is_escaped_in_a_chart() -> None:
    scored, broken = rows(1.0, None, range=(0.0, 1.0))
    summary = summarize([scored, replace(broken, outcome="</svg><script>\x1b[2J")])

    (drawn,) = [charts.trend(metric, summary) for metric in summary.metrics]

    assert drawn is not None
    assert "<script" not in drawn
    assert "\x1b" not in drawn


@pytest.mark.parametrize("seconds", [0.5, 30, 600, 7_200, 86_400, 3 * 86_400, 40 * 86_400, 400 * 86_400])
def test_a_trend_has_two_to_five_labels_of_time_whatever_it_spans(seconds: float) -> None:
    summary = summarize(rows(*[1.0] * 50, every_s=seconds / 50, range=(0.0, 1.0)))

    drawn = charts.trend(summary.metrics[0], summary)

    assert drawn is not None
    assert 2 <= len(set(re.findall(r'class="tick xtick" x="([\d.]+)%', drawn))) <= 5


def test_tree_that_bites_its_tail_is_drawn_once() -> None:
    root, *evaluated = a_scored_unit("fine")
    loop = [
        replace(root, span_id=own, parent_id=parent, name=f"{own}", attributes={})
        for own, parent in ((9071, root.span_id), (9072, 9071), (9073, 9074), (9074, 9073))
    ]
    spans = Spans.read([root, *loop, *evaluated])

    excerpt = excerpt_of_spans(spans.rows()[0].unit, spans)

    assert [(span.name, depth) for span, depth in excerpt.branches] == [
        ("invoke_workflow guide", 0),
        ("9071", 1),
        ("9072", 2),
    ]


def test_page_is_small_and_has_its_charts_in_it(tmp_path: Path) -> None:
    page = tmp_path / "report.html"

    write([span for _ in range(5) for span in a_scored_unit("fine")], page)

    assert page.stat().st_size < 100_000
    assert page.read_text("utf-8").count("<svg class") >= 1


def test_missing_library_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)

    with pytest.raises(MissingExtraError, match=re.escape('pip install "spanscore[report]"')):
        write_scores([], tmp_path / "report.html")


def test_units_that_are_a_model_called_alone_are_counted(tmp_path: Path) -> None:
    page, score = tmp_path / "report.html", make_score(1.0)
    alone = a_unit_span(score, **{semconv.OPERATION_NAME: semconv.CHAT})

    assert write([a_unit_span(score), alone], page).alone == 1
    assert "1 of 2 units were a model called alone." in words(page)


@pytest.mark.parametrize(
    ("quality", "pass_at", "shown"),
    [
        (0.497, 0.5, "0.497"),
        (0.49996, 0.5, "0.49996"),
        (0.494, 0.5, "0.49"),
        (0.5, 0.5, "0.50"),
        (0.696, 0.7, "0.696"),
        (0.499999999, 0.5, "0.500000"),
        (0.497, None, "0.50"),
    ],
)
def test_a_score_that_just_fails_is_not_shown_as_one_that_passes(quality, pass_at, shown):
    assert format_score(quality, quality, pass_at) == shown
