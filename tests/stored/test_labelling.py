"""A labelling session writes each label before it goes on, hides the verdict until then, and is continued from its file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.stored.label_builders import METRIC, VERSION, draw_some, label_all, make_case, make_cases, open_session

from spanscore.core.codecs.annotation_file import annotations_in, labels_so_far, read_annotations
from spanscore.core.sample import Image, JudgeResult, MultiTurnSample, SingleTurnSample
from spanscore.core.score import BINARY, Scale, categorical
from spanscore.errors import ConfigurationError
from spanscore.stored.label_cases import LabelCase, LabelPick
from spanscore.stored.labelling import StaleCaseError, choices_of, quoted_parts, show_case


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "labels.jsonl"


def test_a_label_is_in_the_file_before_the_verdict_is_shown(path: Path) -> None:
    session = open_session(path, draw_some([make_case(1, 0.2)]))
    state = session.state()
    assert not any(word in json.dumps(state) for word in ("judge", "0.2", "fail · "))

    answer = session.choose(state["case"]["key"], 0, "Clear.")

    (label,) = read_annotations(path)
    assert (label.human, label.judged) == (True, {METRIC: JudgeResult(0.2, "fail", VERSION, 0.5)})
    assert label.label is not None
    assert (label.label.comment, label.label.annotator) == ("Clear.", "ann")
    assert (answer["judge"]["verdict"], answer["differs"]) == ("0.20 · fail", True)
    assert answer["judge"]["case"]["contexts"][0][1] == ("It was opened in 1931 by the mayor", True)
    assert (answer["next"]["done"], answer["next"]["summary"]) == (1, ["1 labels"])


FOREIGN_SCORES = [
    *(True, [0.5], {"value": True}, {"value": 10**400}, {"value": 0.5, "label": "good"}, {"value": 0.5, "label": True}),
    *({"value": 0.5, "probability": 2}, {"value": 0.5, "evaluator_version": 1}, {"value": 0.5, "explanation": ["why"]}),
    {"value": 0.5, "disagreement": "much"},
]


@pytest.mark.parametrize("score", FOREIGN_SCORES, ids=lambda score: str(score)[:40])
def test_a_score_of_another_program_makes_no_label_unreadable(path: Path, score: object) -> None:
    case = LabelCase.of({"scores": {METRIC: score}}, SingleTurnSample(user_input="Is it?", response="Yes."))
    case = case.with_verdict(METRIC, BINARY)
    session = open_session(path, draw_some([case]))

    session.choose(case.key, 0, None)

    assert [labelled.human for labelled in read_annotations(path)] == [True]
    assert draw_some([case], LabelPick.RANDOM).cases == [case]


def test_undo_withdraws_the_label_and_shows_its_case_again(path: Path) -> None:
    session = open_session(path, draw_some(make_cases(3)))
    first = session.state()["case"]
    session.choose(first["key"], 0, "note")

    state = session.undo()

    assert (state["case"], state["done"], state["can_undo"], state["comment"]) == (first, 0, False, "note")
    assert labels_so_far(path, f"{METRIC}_review") == []
    assert [*annotations_in(path)] == []
    session.choose(first["key"], 1, None)
    assert [label.human for label in read_annotations(path)] == [False]
    assert len([*annotations_in(path)]) == 1


def test_a_session_is_continued_from_its_file_and_skipped_cases_come_again(path: Path) -> None:
    draw = draw_some(make_cases(4))
    session = open_session(path, draw)
    keys = [case.key for case in draw.cases]
    session.choose(keys[0], 0, None)
    assert session.skip(keys[1])["case"]["key"] == keys[2]
    session.choose(keys[2], 0, None)

    again = open_session(path, draw)

    assert (again.state()["done"], label_all(again)) == (2, [keys[1], keys[3]])


def test_undo_takes_a_skip_back(path: Path) -> None:
    session = open_session(path, draw_some(make_cases(2)))
    key = session.state()["case"]["key"]
    session.skip(key)

    state = session.undo()

    assert (state["case"]["key"], state["skipped"]) == (key, 0)
    assert not path.exists()


def test_a_note_after_the_choice_is_a_later_line_of_the_same_label(path: Path) -> None:
    session = open_session(path, draw_some(make_cases(2)))
    key = session.state()["case"]["key"]
    session.choose(key, 1, None)

    session.note(key, "Because.")

    (label,) = read_annotations(path)
    assert label.label is not None
    assert (label.human, label.label.comment) == (False, "Because.")
    with pytest.raises(StaleCaseError):
        session.note("another", "Because.")


def test_two_annotators_share_a_file_and_label_the_same_cases(path: Path) -> None:
    draw = draw_some(make_cases(5))
    ann, ben = open_session(path, draw, "ann"), open_session(path, draw, "ben")

    for choice, session in ((0, ann), (1, ben)):
        assert len(label_all(session, choice)) == 5

    labels = read_annotations(path)
    assert sorted((label.human, label.label.annotator) for label in labels if label.label) == [
        *[(False, "ben")] * 5,
        *[(True, "ann")] * 5,
    ]


def test_a_page_that_shows_another_case_changes_nothing(path: Path) -> None:
    session = open_session(path, draw_some(make_cases(2)))
    key = session.state()["case"]["key"]
    session.choose(key, 0, None)

    with pytest.raises(StaleCaseError, match="reload"):
        session.choose(key, 1, None)
    with pytest.raises(ConfigurationError, match="choice 7"):
        session.choose(session.state()["case"]["key"], 7, None)

    assert len(path.read_text().splitlines()) == 1


def test_finish_writes_the_probabilities_of_an_incomplete_draw(path: Path) -> None:
    cases = [make_case(number, 0.9 if number < 80 else 0.1) for number in range(100)]
    draw = draw_some(cases, LabelPick.INFORMATIVE, 40)
    session = open_session(path, draw)
    for case in draw.cases[:20]:
        session.choose(case.key, 0, None)
    designed = {label.id: label.probability for label in read_annotations(path)}

    session.finish()

    final = {label.id: label.probability for label in read_annotations(path)}
    failed = [case.id for case in draw.cases[:20] if not case.passed]
    assert final.keys() == designed.keys()
    assert {final[case] for case in failed} == {len(failed) / 20}
    assert sum(1 / chance for chance in final.values() if chance) == pytest.approx(100)
    lines = len(path.read_text().splitlines())
    assert (session.finish(), len(path.read_text().splitlines())) == (["20 labels"], lines)


def test_the_rest_of_a_line_of_a_killed_process_is_removed(path: Path) -> None:
    draw = draw_some(make_cases(3))
    session = open_session(path, draw)
    session.choose(session.state()["case"]["key"], 0, None)
    whole = path.read_bytes()
    path.write_bytes(whole + whole[: len(whole) // 2])

    again = open_session(path, draw)

    assert (again.state()["done"], path.read_bytes()) == (1, whole)


def test_a_disk_that_takes_no_line_is_an_error_and_the_case_stays(path: Path) -> None:
    session = open_session(path, draw_some(make_cases(2)))
    key = session.state()["case"]["key"]
    path.mkdir()

    with pytest.raises(ConfigurationError, match="cannot be written"):
        session.choose(key, 0, None)

    assert session.state()["case"]["key"] == key


@pytest.mark.parametrize(
    ("scale", "expected"),
    [
        (BINARY, [("1", True), ("2", False)]),
        (Scale(), [("1", True), ("2", False)]),
        (Scale(kind="ordinal", range=(1, 3)), [("1", 1), ("2", 2), ("3", 3)]),
        (Scale(kind="ordinal", range=(0, 100)), [("1", True), ("2", False)]),
        (categorical("intent", ["refund", "other"]), [("1", "refund"), ("2", "other")]),
    ],
)
def test_choices_are_those_of_the_scale(scale: Scale, expected: list[tuple[str, object]]) -> None:
    assert [(choice.key, choice.human) for choice in choices_of(scale)] == expected


def test_only_nine_categories_have_a_key() -> None:
    words = [f"word-{letter}" for letter in "abcdefghijkl"]

    assert [choice.key for choice in choices_of(categorical("topic", words))] == [*"123456789", "", "", ""]


def test_a_conversation_is_shown_with_its_tool_calls() -> None:
    calls = [{"name": "look_up", "args": {"order": 7}}]
    messages = [
        {"type": "human", "content": "Is it paid?"},
        {"type": "ai", "content": "", "tool_calls": calls},
        {"type": "tool", "content": "yes\x1b[2J"},
    ]
    sample = MultiTurnSample.model_validate({"user_input": messages})

    shown = show_case(LabelCase({"key": "k"}, sample, {}))["messages"]

    assert [(message["role"], message["content"], message["calls"]) for message in shown] == [
        ("user", [("Is it paid?", False)], []),
        ("assistant", None, ['look_up {"order": 7}']),
        ("tool", [("yes\\x1b[2J", False)], []),
    ]


def test_an_image_is_shown_by_its_data_and_never_by_its_address() -> None:
    images = [Image(base64="AAAA", media_type="image/png"), Image(url="https://example.org/a.png")]
    sample = SingleTurnSample(
        user_input="What is [image 1]?", images=[*images, Image(base64="A", media_type="text/html")]
    )

    assert show_case(LabelCase({"key": "k"}, sample, {}))["images"] == [
        {"text": "[image 1]", "source": "data:image/png;base64,AAAA"},
        {"text": "[image 2] https://example.org/a.png", "source": ""},
        {"text": "[image 3] text/html", "source": ""},
    ]


@pytest.mark.parametrize(
    ("text", "explanation", "expected"),
    [
        ("", "", [("", False)]),
        ("one two three", "one two three", [("one two three", False)]),
        ("a, b c d e f!", "B c (d) e f", [("a, ", False), ("b c d e f", True), ("!", False)]),
    ],
)
def test_a_passage_of_five_words_in_the_explanation_is_a_quotation(
    text: str, explanation: str, expected: list[tuple[str, bool]]
) -> None:
    assert [*quoted_parts(text, explanation)] == expected
