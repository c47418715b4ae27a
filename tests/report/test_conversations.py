"""Conversations on the page: their turns, how the whole was judged, and nothing of either in the other's mean."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.report.builders import a_label, a_turn, a_whole, evaluations, make_score

from spanscore import semconv
from spanscore.core.span import SpanData
from spanscore.report import summary, write
from spanscore.report.conversations import Conversation, conversations
from spanscore.report.spans import Spans, turns_of

GOAL = "goal_accuracy"


def talk(
    conversation: str, *turns: float, whole: float | None = None, end: str = "idle", minute: float = 0.0
) -> list[SpanData]:
    """Return a conversation of turns with these scores, a minute apart, the last one first; and its own score."""
    of_turns = [
        a_turn(conversation, make_score(value), minute=at,
               **{semconv.INPUT_VALUE: {"question": f"Question {at}?"}, semconv.OUTPUT_VALUE: {"answer": f"Answer {at}."}})
        for at, value in enumerate(turns)
    ]  # fmt: skip
    scored = [] if whole is None else [a_whole(of_turns[-1][0], make_score(whole, GOAL), turns=len(turns), end=end)]
    return [span for turn in reversed(of_turns) for span in turn] + scored


def means(spans: list[SpanData]) -> dict[str, tuple[float, int]]:
    return {one.metric: (round(one.mean or 0.0, 9), one.scores) for one in summary(spans).metrics}


def test_turns_are_units_with_one_conversation_id_in_the_order_of_time() -> None:
    (found,) = conversations(Spans.read([*talk("a", 0.9, 0.8, 0.7), *talk("alone", 0.5)]))

    assert found.id == "a"
    assert [turn.end_ns for turn in found.turns] == sorted(turn.end_ns for turn in found.turns)
    assert len(found.turns) == 3


def test_a_metric_of_conversations_has_a_mean_of_conversations() -> None:
    long, short = talk("long", *[0.5] * 9, whole=0.0), talk("short", 0.5, whole=1.0)

    assert means([*long, *short]) == {"faithfulness": (0.5, 10), GOAL: (0.5, 2)}


def test_a_metric_that_judged_turns_and_conversations_is_two() -> None:
    spans = talk("a", 0.9, 0.7)
    whole = a_whole(spans[0], make_score(0.1), turns=2)

    assert means([*spans, whole]) == {"faithfulness": (0.8, 2), "faithfulness (conversations)": (0.1, 1)}


def test_what_is_judged_while_a_conversation_goes_on_is_in_no_mean() -> None:
    spans = [*talk("a", 0.5, 0.5, whole=0.1, end="open"), *talk("b", 0.5, whole=0.9)]

    assert means(spans)[GOAL] == (0.9, 1)
    assert [(row.value, span.attributes[semconv.SESSION_END]) for row, span in _of("a", spans).scores] == [
        (0.1, "open")
    ]


def test_the_end_counts_and_a_provisional_score_is_reported_only_where_it_saw_more() -> None:
    spans = talk("a", 0.5, 0.5, whole=0.4)
    before, after = (a_whole(spans[0], make_score(0.9, GOAL), turns=turns, end="open") for turns in (1, 3))

    seen = [
        [(row.value, turns_of(span)) for row, span in _of("a", [*spans, extra]).scores] for extra in (before, after)
    ]

    assert seen == [[(0.4, 2)], [(0.4, 2), (0.9, 3)]]


def test_the_last_revision_of_a_conversation_is_the_one_that_counts() -> None:
    spans = talk("a", 0.5, 0.5, whole=0.4)
    again = a_whole(spans[0], make_score(0.6, GOAL, revision=1), turns=3)

    assert means([again, *spans])[GOAL] == (0.6, 1)


def test_labels_and_what_was_judged_apart_are_in_no_mean_and_no_funnel() -> None:
    spans = talk("a", 0.9, 0.7)
    apart = [one for source in ("feedback", "judge_check")
             for one in evaluations(spans[0], make_score(0.0, source=source))]  # fmt: skip
    said = a_label(spans[0], 0.0, **{semconv.EVALUATION_NAME: "faithfulness"})

    assert means([*apart, said, *spans]) == {"faithfulness": (0.8, 2)}
    assert summary([*apart, said, *spans]).steps == summary(spans).steps


def test_a_conversation_is_no_unit_of_work() -> None:
    found = summary(talk("a", 0.9, 0.9, whole=0.1))

    assert (found.units, found.conversations, found.ranking) == (2, 1, ())
    assert [worst.unit for worst in found.failed] == ["a"]
    assert [step.remaining for step in found.steps] == [2, 2, 2, 2, 2]


def test_the_page_shows_a_conversation_as_turns_with_its_score_and_labels(tmp_path: Path) -> None:
    spans = talk("order-4711", 0.9, 0.8, whole=0.2)
    page = _page(tmp_path, [*spans, a_label(spans[0], 0.0, "fail", **{semconv.EVALUATION_EXPLANATION: "No help."})])

    assert page.index("Question 0?") < page.index("Answer 0.") < page.index("Question 1?")
    assert "1 conversation judged as a whole, 1 of them fails" in page
    assert 'Open first: <a href="#talk-1">Question 0?</a>' in page
    for result in (
        "goal accuracy 0.20",
        "2 turns, ended by silence",
        "user feedback: fail",
        "No help.",
        "order-4711",
    ):
        assert result in page


def test_the_page_says_that_a_score_is_provisional(tmp_path: Path) -> None:
    page = _page(tmp_path, talk("a", 0.9, 0.8, whole=0.2, end="open"))

    assert "goal accuracy 0.20 so far" in page
    assert "2 turns, provisional: the conversation went on, and the score is in no mean" in page
    assert "1 conversation, none judged as a whole" in page


def test_turns_that_nobody_scored_are_shown_by_the_spans_that_name_the_conversation() -> None:
    spans = [span for span in talk("a", 0.9, 0.8) if span.name.startswith("invoke")]
    bare = [replace(span, attributes={semconv.CONVERSATION_ID: "a"}) for span in spans]

    assert len(_of("a", bare).turns) == 2


def _of(conversation: str, spans: list[SpanData]) -> Conversation:
    return next(one for one in conversations(Spans.read(spans)) if one.id == conversation)


def _page(tmp_path: Path, spans: list[SpanData]) -> str:
    write(spans, tmp_path / "report.html")
    return (tmp_path / "report.html").read_text(encoding="utf-8")
