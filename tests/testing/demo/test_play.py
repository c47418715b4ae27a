"""A finished demo: deterministic, its broken part visible, nothing lost, kept in a file with equal content."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from rich.console import Console
from tests.servers.openai_api import OpenAIServer, judged
from tests.servers.otlp import OtlpReceiver

from spanscore.core.codecs.otlp import json_line, read_spans
from spanscore.core.codecs.sdk import span_data
from spanscore.errors import ConfigurationError
from spanscore.report import summary as reported
from spanscore.report import write
from spanscore.report.findings import headline
from spanscore.testing.demo.run import Demo, DemoOptions, Played, Tally, spread
from spanscore.testing.demo.show import Results, overview, results, summary, svg

SMALL = DemoOptions(requests=60)


def play(options: DemoOptions, watch: Callable[[Tally], None] = lambda _: None) -> Played:
    with Demo(options) as demo:
        return demo.play(watch)


@cache
def played() -> Played:
    return play(SMALL)


@cache
def found() -> Results:
    return results(map(span_data, played().spans))


def shown(width: int, what: Played | None = None) -> str:
    console = Console(width=width, color_system=None, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    it = what or played()
    console.print(overview(it, results(map(span_data, it.spans))))
    return console.export_text()


def test_faithfulness_falls_while_retrieval_is_broken_and_comes_back() -> None:
    drop, *_ = found().drops()

    assert (drop.metric, drop.clear) == ("faithfulness", True)
    assert drop.by > 0.4
    assert drop.after is not None
    assert drop.after.low > drop.during.high


def test_with_the_default_requests_context_relevance_names_the_retriever() -> None:
    whole = play(DemoOptions())
    spans = [span_data(span) for span in whole.spans]

    assert {drop.metric for drop in results(spans).drops() if drop.clear} == {"faithfulness", "context_relevance"}
    assert "look at the retriever before the model" in shown(100, whole)


def test_the_same_seed_gives_the_same_traces_scores_and_words() -> None:
    again = play(SMALL)

    assert summary(again, results(map(span_data, again.spans))) == summary(played(), found())
    assert shown(100, again) == shown(100)
    assert {ids(span) for span in again.spans} == {ids(span) for span in played().spans}


def test_another_seed_gives_others() -> None:
    other = play(replace(SMALL, seed=8))

    assert summary(other, results(map(span_data, other.spans)))["worst"] != summary(played(), found())["worst"]


def test_a_file_reads_back_as_what_was_shown() -> None:
    spans = played().spans

    lines = [json_line(spans[:100]), json_line(spans[100:])]

    assert summary(played(), results(read_spans(lines))) == summary(played(), found())


def test_every_request_is_one_trace_with_question_answer_and_whole_tree() -> None:
    traces = found().traces

    assert [trace.number for trace in traces] == list(range(1, 61))
    assert all(trace.question and trace.answer for trace in traces)
    assert all(span.parent_id in {other.span_id for other in t.spans} for t in traces for span in t.spans[1:])


def test_every_eligible_unit_has_an_outcome_and_evaluation_spans_agree_with_the_ledger() -> None:
    status = played().status

    counted = {metric: sum(mean.get(metric).scored for mean in found().means.values()) for metric in found().metrics}
    assert status.eligible == dict.fromkeys(status.eligible, 60)
    assert {metric: sum(counts.values()) for metric, counts in status.outcomes.items()} == status.eligible
    assert {metric: counts["scored"] for metric, counts in status.outcomes.items()} == counted


@pytest.mark.parametrize("seed", [1, 2, 3, 7])
def test_the_page_says_what_the_terminal_says(seed: int) -> None:
    spans = [span_data(span) for span in play(DemoOptions(seed=seed)).spans]
    result, page = results(spans), reported(spans)

    drops = {drop.metric: drop for drop in result.drops() if drop.clear}
    first = page.metrics[0]
    assert first.stretch is not None
    start, last = first.buckets[first.stretch.first], first.buckets[first.stretch.last]
    assert [(ns - first.buckets[0].start_ns) / 60e9 for ns in (start.start_ns, last.end_ns)] == [40, 65]
    drop = drops[first.metric]
    assert f"{first.metric} fell from {drop.before.mean:.2f} to {drop.during.mean:.2f} between" in headline(page)
    for metric in page.metrics:
        if metric.stretch is not None:
            drop = drops[metric.metric]
            assert two(metric.stretch.usual, metric.stretch.inside) == two(drop.before.mean, drop.during.mean)
    top = result.open_first()
    assert top is not None
    assert (top.stretch, top.trace_id) == ("during", page.ranking[0].rows[0].trace_id)


@pytest.mark.parametrize("seed", [1, 2, 3, 7])
def test_the_page_and_the_terminal_count_alike(seed: int, tmp_path: Path) -> None:
    this = play(DemoOptions(seed=seed))
    write(map(span_data, this.spans), page := tmp_path / "demo.html")
    result, said, paper = (
        results(map(span_data, this.spans)),
        " ".join(shown(200, this).split()),
        page.read_text("utf-8"),
    )

    top, (drop, *_) = result.open_first(), result.drops()

    assert top is not None
    alike = result.as_low[drop.metric]
    among = f"one of {alike} at {top.quality_of(drop.metric):.2f}"
    assert (f"Its {drop.metric} is {among} in the bad stretch" in said) is (alike > 1)
    assert (f"{drop.metric} {top.quality_of(drop.metric):.2f} ({among}; usual:" in paper) is (alike > 1)
    times = result.times(top)
    assert (f"failed in {times} requests" in said) is (times > 1)
    assert (f'<span class="times">×{times}</span>' in paper) is (times > 1)
    assert "pass at 0.7" in said
    assert "pass at 0.7" in paper


def test_correct_refusals_are_not_among_the_worst() -> None:
    result = results(map(span_data, play(DemoOptions()).spans))

    answers = [trace.answer for trace in result.ranking]

    assert any(trace.answer.startswith("I cannot help") for trace in result.traces)
    assert not [answer for answer in answers if answer.startswith("I cannot help")]


def test_each_trace_is_moved_as_a_whole_to_its_place_in_100_minutes() -> None:
    now, minute = 1_795_255_321_000_000_000, 60_000_000_000  # 21 November 2026, 10:02:01 UTC
    before = sorted(played().spans, key=lambda span: span.start_time or 0)

    after = spread(before, 60, now)

    roots = [span for span in after if span.parent is None]
    assert [root.start_time for root in roots] == [
        1_795_255_200_000_000_000 - 100 * minute + n * 100 * minute // 60 for n in range(60)
    ]
    assert [(span.name, ids(span), took(span)) for span in after] == [(s.name, ids(s), took(s)) for s in before]
    ends = {ids(root): root.end_time for root in roots}
    scored = [span for span in after if span.name.startswith("evaluation ")]
    assert scored
    assert all(span.end_time == ends[ids_of_parent(span)] for span in scored)


def test_requests_spread_over_seconds_keep_their_own_times() -> None:
    real = play(replace(SMALL, requests=12, seconds=0.5))

    started = sorted(span.start_time or 0 for span in real.spans)

    assert started[-1] - started[0] < 60_000_000_000


def test_what_was_written_is_said_and_no_longer_proposed() -> None:
    written = {"report": ("demo.html", 4_990_000), "svg": ("a.svg", 999)}

    console = Console(width=80, color_system=None, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(overview(played(), found(), written=written))
    said = console.export_text()

    assert "demo.html (5 MB)" in said
    assert "a.svg (999 bytes)" in said
    assert "--report" not in said
    assert "spanscore demo --out demo.jsonl" in said


def test_why_scores_are_missing_is_said_in_a_line_each() -> None:
    lines = shown(80).splitlines()

    assert "context_relevance, faithfulness missing field: agent turns without retrieval" in [x.strip() for x in lines]
    assert "topic_adherence missing field: single-turn chain runs" in [x.strip() for x in lines]


def test_a_weighted_mean_counts_a_chain_run_twice_where_half_of_them_are_scored() -> None:
    weights = {(t.spans[0].name, one.weight) for t in found().traces for one in t.evaluations}

    assert weights == {("invoke_workflow handbook", 2.0), ("invoke_agent purser", 1.0)}


def test_what_to_open_first_is_the_worst_of_the_bad_stretch_and_is_shown_as_a_tree() -> None:
    first = found().open_first()

    assert first is not None
    assert (first.stretch, first.quality_of("faithfulness")) == ("during", 0.0)
    assert first.number in {trace.number for trace in found().worst(3)}
    assert shown(100).count(first.trace_id) == 2


def test_the_worst_traces_are_of_both_applications_and_ask_different_questions() -> None:
    worst = found().worst(3)

    assert {trace.spans[0].name for trace in worst} == {"invoke_workflow handbook", "invoke_agent purser"}
    assert len({trace.question for trace in worst}) == 3


@pytest.mark.parametrize("width", [80, 120])
def test_nothing_is_wider_than_the_terminal_and_no_figure_is_broken(width: int) -> None:
    lines = shown(width).splitlines()

    assert max(map(len, lines)) <= width
    assert [line.split()[0] for line in lines if line.startswith(tuple(found().metrics))][: len(found().metrics)]
    assert not [line for line in lines if line.rstrip().endswith(("…–", "0…"))]


def test_the_picture_is_whole_and_fetches_nothing() -> None:
    picture = svg(overview(played(), found()), "spanscore demo")

    ET.fromstring(picture)
    assert "@font-face" not in picture
    assert "url(" not in picture.replace("url(#", "")
    assert picture == svg(overview(played(), found()), "spanscore demo")


def test_the_summary_is_json() -> None:
    assert json.loads(json.dumps(summary(played(), found()), allow_nan=False))["requests"] == 60


def test_an_interrupted_demo_says_so_and_shows_what_there_is() -> None:
    def stop(tally: Tally) -> None:
        if tally.asked == 20:
            raise KeyboardInterrupt

    stopped = play(SMALL, stop)

    assert (stopped.asked, stopped.interrupted) == (20, True)
    assert len(results(map(span_data, stopped.spans)).traces) == 20
    assert "stopped by Ctrl-C" in shown(100, stopped)
    assert "ended before retrieval was broken" in shown(100, stopped)


def test_everything_is_sent_to_the_backend_that_is_named() -> None:
    with OtlpReceiver() as backend:
        sent = play(replace(SMALL, requests=12, otlp=backend.endpoint))

    assert {ids(span) for span in sent.spans} == {(span.trace_id, span.span_id) for span in backend.spans}
    assert all(last.startswith("ok") for last in sent.deliveries.values())
    assert sent.undelivered == []


def test_a_backend_that_takes_spans_alone_lacks_nothing() -> None:
    with OtlpReceiver() as backend:
        backend.answer(404, "metrics", "logs")
        sent = play(replace(SMALL, requests=12, otlp=backend.endpoint))

    assert sent.undelivered == []


def test_a_backend_that_is_not_there_is_named_and_stops_nothing() -> None:
    sent = play(replace(SMALL, requests=12, otlp="http://127.0.0.1:9"))

    assert sent.asked == 12
    assert sent.deliveries["traces"].startswith("failed")
    assert sent.undelivered == ["traces", "metrics", "logs"]
    assert "traces sent" in shown(100, sent)


def test_a_real_model_answers_and_judges_when_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with OpenAIServer(judged) as server:
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        real = play(replace(SMALL, requests=12, model="openai:gpt-4o-mini"))

    assert real.model == "openai:gpt-4o-mini"
    assert set(real.status.judges.values()) == {"gpt-4o-mini"}
    assert "openai:gpt-4o-mini answers and judges" in shown(120, real)


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        ({"requests": 11}, "--requests"),
        ({"rate": 0.0}, "--rate"),
        ({"seconds": 0.0}, "--seconds"),
        ({"otlp": "x"}, "--otlp"),
    ],
)
def test_an_option_that_cannot_be_is_named(wrong: dict[str, object], name: str) -> None:
    with pytest.raises(ConfigurationError, match=name):
        play(replace(SMALL, **wrong))  # type: ignore[arg-type]


def ids(span: ReadableSpan) -> tuple[int, int]:
    context = span.get_span_context()
    assert context is not None
    return context.trace_id, context.span_id


def ids_of_parent(span: ReadableSpan) -> tuple[int, int]:
    assert span.parent is not None
    return span.parent.trace_id, span.parent.span_id


def took(span: ReadableSpan) -> int:
    return (span.end_time or 0) - (span.start_time or 0)


def two(*numbers: float) -> list[str]:
    return [f"{number:.2f}" for number in numbers]
