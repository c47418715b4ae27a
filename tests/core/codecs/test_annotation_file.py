"""A file of labels is read whole or refused with its lines named; nothing of its content is quoted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from spanscore.core.codecs.annotation_file import (
    annotated_records,
    annotations_in,
    labels_so_far,
    passes,
    read_annotations,
)
from spanscore.core.sample import AnnotatedSample, Annotation, JudgeResult, SingleTurnSample
from spanscore.core.score import BINARY, Scale, categorical
from spanscore.core.span import UnitKey
from spanscore.errors import ConfigurationError

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SECRET = "a secret of the sample"


def written(folder: Path, *records: Any, name: str = "labels.jsonl") -> Path:
    file = folder / name
    file.write_text("".join(one if isinstance(one, str) else json.dumps(one) + "\n" for one in records))
    return file


def test_a_line_is_read_with_all_that_may_stand_in_it(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        {
            "human": 0.8,
            "user_input": "Q",
            "response": "A",
            "scores": {"faithfulness": {"value": 0.9, "label": "pass", "evaluator_version": "abc"}, "other": 0.2},
            "probability": 0.05,
            "session": "s-1",
            "trace_id": TRACE,
            "span_id": SPAN,
            "id": 7,
            "name": "helpful",
            "annotator": "ann",
            "comment": "well",
            "when": "2026-11-23T09:30:00Z",
        },
    )
    unit = UnitKey(int(TRACE, 16), int(SPAN, 16))
    when_ns = 1_795_426_200 * 10**9

    assert read_annotations(file) == [
        AnnotatedSample(
            line=1,
            sample=SingleTurnSample(user_input="Q", response="A"),
            human=0.8,
            judged={"faithfulness": JudgeResult(0.9, "pass", "abc"), "other": JudgeResult(0.2, None, "")},
            group="s-1",
            probability=0.05,
            id=7,
            label=Annotation(name="helpful", value=0.8, annotator="ann", comment="well", when_ns=when_ns, unit=unit),
        )
    ]


def test_the_least_line_is_what_the_human_said(tmp_path: Path) -> None:
    read = read_annotations(written(tmp_path, {"human": False}, "\n", {"human": True, "key": "order-1"}))

    assert [(one.line, one.human, one.sample, one.group, one.probability) for one in read] == [
        (1, False, None, None, None),
        (3, True, None, None, None),
    ]


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({"humen": True}, "no such key: 'humen'; did you mean 'human'?"),
        ({"line": 1, "metric": "polite", "value": 0.5}, "no such key: 'line', and 2 more. Keys are human, scores, "),
        ({"user_input": SECRET}, "no human"),
        ({"human": None}, "no human"),
        ({"human": []}, "human must be a finite number"),
        ({"human": 10**400}, "human must be a finite number"),
        ({"human": True, "user_input": 3}, "user_input: Input should be a valid string"),
        ({"human": True, "probability": 0}, "probability must be more than 0 and at most 1"),
        ({"human": True, "withdrawn": "yes"}, "withdrawn must be true or false"),
        ({"human": True, "representative": "no"}, "representative must be true or false"),
        ({"human": True, "trace_id": "12", "span_id": SPAN}, "trace_id must be 32 hex digits"),
        ({"human": True, "span_id": SPAN}, "span_id without trace_id"),
        ({"human": True, "scores": {"m": {}}}, "scores.m must be a value, a label or both"),
        ({"human": True, "scores": {"m": {"label": "ok"}}}, "scores.m.label must be pass or fail"),
        ({"human": True, "when": "2026-11-23T09:30:00"}, "when must be seconds since 1970, or ISO 8601 with an offset"),
        ([SECRET], "a label is an object with keys, not a list"),
        ('{"human": "' + SECRET + "\n", "not valid JSON"),
    ],
)
def test_a_wrong_line_is_named_and_not_quoted(tmp_path: Path, record: Any, expected: str) -> None:
    file = written(tmp_path, {"human": True}, record)

    with pytest.raises(ConfigurationError) as error:
        read_annotations(file)

    assert f"line 2: {expected}" in str(error.value)
    assert SECRET not in str(error.value)


def test_an_unknown_key_without_a_neighbour_tells_the_keys(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"'xyzzy'. Keys are human, scores, probability"):
        read_annotations(written(tmp_path, {"human": True, "xyzzy": 1}))


def test_of_many_wrong_lines_the_first_are_named_and_the_others_counted(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"(?s)8 wrong lines.*line 5.*and 3 more") as error:
        read_annotations(written(tmp_path, *[{"human": None}] * 8))

    assert "line 6" not in str(error.value)


@pytest.mark.parametrize("text", ["", "\n\n"])
def test_a_file_without_labels_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigurationError, match="has no labels"):
        read_annotations(written(tmp_path, text))


def test_a_changed_vote_is_one_label_and_the_last_one(tmp_path: Path) -> None:
    unit = {"trace_id": TRACE, "span_id": SPAN}
    file = written(
        tmp_path,
        {"human": True, **unit, "when": 200},
        {"human": False, **unit, "when": 100},
        {"human": False, **unit, "annotator": "ann"},
    )

    assert [(one.line, one.human) for one in read_annotations(file)] == [(1, True), (3, False)]


def test_of_labels_of_several_names_one_must_be_chosen(tmp_path: Path) -> None:
    file = written(tmp_path, {"human": True, "name": "polite"}, {"human": False, "name": "right"})

    assert [one.human for one in read_annotations(file, name="right")] == [False]
    with pytest.raises(ConfigurationError, match="several names, choose one: polite, right"):
        read_annotations(file)
    with pytest.raises(ConfigurationError, match="no label named 'wrong'"):
        read_annotations(file, name="wrong")


def test_a_text_may_hold_line_separators_of_unicode(tmp_path: Path) -> None:
    file = written(tmp_path, '{"human": true, "response": "one\u2028two"}\n')

    assert read_annotations(file)[0].sample == SingleTurnSample(response="one\u2028two")


UNIT = {"trace_id": TRACE, "span_id": SPAN}


def test_a_withdrawn_label_does_not_count_until_its_annotator_labels_again(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        {"human": True, **UNIT, "when": 100},
        {"human": True, **UNIT, "when": 100, "annotator": "ben"},
        {"human": True, **UNIT, "when": 200, "withdrawn": True},
        {"human": False, **UNIT, "when": 150},
    )
    assert [label.line for label in read_annotations(file)] == [2]
    assert [number for number, _ in annotations_in(file)] == [2]

    with file.open("a") as lines:
        lines.write(json.dumps({"human": False, **UNIT, "when": 300}) + "\n")

    assert [label.line for label in read_annotations(file)] == [2, 5]
    assert [number for number, _ in annotations_in(file)] == [2, 5]
    assert [label.line for label in annotated_records(map(json.loads, file.read_text().splitlines()))] == [2, 5]


def test_a_line_without_a_time_is_later_than_the_lines_above_it(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        {"human": True, **UNIT, "when": 100},
        {"human": True, **UNIT, "withdrawn": True},
        {"human": True, **UNIT, "when": 100, "annotator": "ben"},
        {"human": False, **UNIT, "annotator": "ben"},
    )

    assert [label.line for label in read_annotations(file)] == [4]
    assert [number for number, _ in annotations_in(file)] == [3, 4]


def test_labels_so_far_are_those_of_one_name_and_may_be_none(tmp_path: Path) -> None:
    assert labels_so_far(tmp_path / "missing.jsonl", "polite") == []
    file = written(tmp_path, {"human": True, "name": "polite"}, {"human": False, "name": "right"})

    assert [label.line for label in labels_so_far(file, "polite")] == [1]
    assert labels_so_far(file, "wrong") == []
    with pytest.raises(ConfigurationError, match="line 1"):
        labels_so_far(written(tmp_path, {"humen": 1}), "polite")


def test_a_score_may_have_the_probability_of_its_unit(tmp_path: Path) -> None:
    scores = {"polite": {"label": "pass", "probability": 0.25}}

    (label,) = read_annotations(written(tmp_path, {"human": True, "scores": scores}))

    assert label.judged == {"polite": JudgeResult(None, "pass", "", 0.25)}


@pytest.mark.parametrize(
    ("human", "scale", "passed"),
    [
        (True, BINARY, True),
        (False, Scale(range=None), False),
        (0.5, Scale(), True),
        (0.4, Scale(), False),
        (5, Scale(kind="ordinal", range=(1, 5), pass_at=0.75), True),
        (3, Scale(kind="ordinal", range=(1, 5), pass_at=0.75), False),
        (0.2, Scale(direction="lower"), True),
        ("good", BINARY, True),
        (" Fail ", BINARY, False),
        ("refund", categorical("intent", ["refund", "no"], ["refund"]), False),
        ("no", categorical("intent", ["refund", "no"], ["refund"]), True),
    ],
)
def test_what_a_human_said_passes_by_the_scale(human: bool | float | str, scale: Scale, passed: bool) -> None:
    assert passes(human, scale) is passed


@pytest.mark.parametrize(
    ("human", "scale", "expected"),
    [
        (7, Scale(range=(1, 5)), "7 is not on the metric's scale, 1 to 5"),
        (0.5, Scale(range=None), "scale is open"),
        ("meh", BINARY, "is one of pass, good"),
    ],
)
def test_what_tells_no_pass_is_refused(human: float | str, scale: Scale, expected: str) -> None:
    with pytest.raises(ConfigurationError, match=expected):
        passes(human, scale)


def annotation(output: float, *, accepted: bool, target: float | None = None) -> dict[str, Any]:
    return {
        "metric_input": {"user_input": "Q", "response": "A"},
        "metric_output": output,
        "prompts": {
            "single_turn_aspect_critic_prompt": {"prompt_input": {}, "prompt_output": {}, "edited_output": None}
        },
        "is_accepted": accepted,
        "target": target,
    }


ANNOTATIONS = [
    annotation(1, accepted=True),
    annotation(1, accepted=False),
    annotation(0.4, accepted=False, target=0.9),
    annotation(0.4, accepted=False),
]


@pytest.mark.parametrize("whole", [{"critic": ANNOTATIONS}, {"name": "critic", "samples": ANNOTATIONS}])
def test_ragas_annotations_are_labels(tmp_path: Path, whole: Any) -> None:
    read = read_annotations(written(tmp_path, json.dumps(whole, indent=1), name="annotated.json"))

    assert [(one.line, one.human, one.judged["critic"].value) for one in read] == [(1, 1, 1), (2, 0, 1), (3, 0.9, 0.4)]
    assert read[0].sample == SingleTurnSample(user_input="Q", response="A")


def test_of_ragas_annotations_of_several_metrics_one_must_be_chosen(tmp_path: Path) -> None:
    file = written(tmp_path, {"critic": ANNOTATIONS, "other": ANNOTATIONS[:1]})

    assert len(read_annotations(file, metric="other")) == 1
    with pytest.raises(ConfigurationError, match="has annotations of critic, other; choose one"):
        read_annotations(file)


def test_a_wrong_annotation_is_named_by_its_place(tmp_path: Path) -> None:
    file = written(tmp_path, {"critic": [ANNOTATIONS[0], {**ANNOTATIONS[0], "metric_output": SECRET}]})

    with pytest.raises(ConfigurationError, match="annotation 2 of critic: metric_output and target must be numbers"):
        read_annotations(file)
