"""Collected, waiting, folded and lost cases: all are counted, and none delays a scorer."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.servers.server import poll

from spanscore import MultiTurnSample, SingleTurnSample
from spanscore.config import Collect
from spanscore.core.files import LineFile
from spanscore.core.job import Job
from spanscore.core.sample import Samples
from spanscore.core.score import Outcome, Score
from spanscore.core.span import Session, Unit, UnitKey
from spanscore.errors import ConfigurationError
from spanscore.outputs.collected_cases import CaseCollector
from spanscore.testing import make_score

REQUIRES: dict[str, dict[str, tuple[str, ...]]] = {
    "grounded": {"single_turn": ("response",)},
    "whole": {"multi_turn": ()},
}


class Stage:
    """A collector with the test's own clock."""

    def __init__(self, path: Path, **collect: Any) -> None:
        self.path, self.now_s, self.due = path, 0.0, list[tuple[float, Callable[[], Any]]]()
        self.counted: list[tuple[str, int]] = []
        self.collector = CaseCollector(
            Collect(when=["grounded<0.5", "whole=fail"], out=path, **collect),
            REQUIRES,
            counted=lambda *result: self.counted.append(result),
            later=lambda seconds, work: self.due.append((self.now_s + seconds, work)),
            clock=lambda: self.now_s,
        )

    def scored(self, number: int = 1, question: str = "When?", value: float = 0.0, **more: Any) -> None:
        self.collector.collect_case(job(number, question, **more), [score("grounded", value)])

    def written(self) -> list[dict[str, Any]]:
        """The lines of the file, when all that can be written is."""
        self.collector.flush(30)
        return [json.loads(line) for line in self.path.read_text().splitlines()] if self.path.exists() else []

    def pass_time(self, seconds: float) -> None:
        self.now_s += seconds
        due, self.due = self.due, []
        for _, work in due:
            work()


def job(number: int, question: str, *, size_bytes: int = 100, session: Session | None = None) -> Job:
    single = SingleTurnSample(user_input=question, response="Never.", retrieved_contexts=["At nine."])
    multi = MultiTurnSample.model_validate({"user_input": [{"type": "human", "content": question}]})
    unit = Unit(UnitKey(number, number), (), session=session)
    return Job(unit, Samples(single_turn=single, multi_turn=multi), {}, size_bytes)


def score(metric: str, value: float | None, label: Any = None) -> Score:
    lost = {"outcome": Outcome.JUDGE_ERROR, "error_type": "timeout"} if value is None else {}
    return make_score(value, metric, label=label, probability=0.25, **lost)


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path / "cases.jsonl")


def test_a_case_says_what_was_asked_found_and_given_and_how_probable_that_was(stage: Stage) -> None:
    stage.scored(7, "When?", 0.25)

    (case,) = stage.written()
    assert case == {
        "id": f"{7:032x}-{7:016x}",
        "user_input": "When?",
        "response": "Never.",
        "retrieved_contexts": ["At nine."],
        "trace_id": f"{7:032x}",
        "span_id": f"{7:016x}",
        "times": 1,
        "scores": {"grounded": {"value": 0.25, "evaluator_version": "1/judge/1", "probability": 0.25}},
        "probability": 0.25,
    }


def test_what_meets_no_condition_or_has_no_score_is_not_collected(stage: Stage) -> None:
    stage.scored(1, value=0.5)
    stage.collector.collect_case(job(2, "When?"), [score("grounded", None)])
    stage.collector.collect_case(job(3, "When?"), [score("other", 0.0)])

    assert stage.written() == []
    assert stage.counted == []


def test_what_conversations_are_scored_on_is_the_conversation(stage: Stage) -> None:
    stage.collector.collect_case(job(1, "Hm?"), [score("whole", 0.0, "fail"), score("grounded", 1.0)])

    assert stage.written()[0]["user_input"] == [{"type": "human", "content": "Hm?"}]


def test_a_whole_conversation_is_a_case_of_its_own_name_once_it_has_ended(stage: Stage) -> None:
    for end in ("open", "explicit"):
        result = job(1, "Hm?", session=Session(UnitKey(5, 6), 3, end))
        stage.collector.collect_case(result, [score("whole", 0.0, "fail")])

    (case,) = stage.written()
    assert (case["id"], case["turns"]) == (f"{5:032x}-{6:016x}", 3)
    assert (case["trace_id"], case["span_id"]) == (f"{1:032x}", f"{1:016x}")


def test_a_question_that_is_in_the_file_is_not_written_again(stage: Stage) -> None:
    for number, question in enumerate(["Where is it?", "When?", " where  IS it?", "When?"]):
        stage.scored(number, question)

    assert [case["user_input"] for case in stage.written()] == ["Where is it?", "When?"]
    assert stage.collector.state().cases == {"written": 2, "folded": 2}


def test_a_question_is_new_where_its_file_is_gone(stage: Stage) -> None:
    stage.scored(1)
    assert stage.written()
    stage.path.unlink()

    stage.scored(2)

    assert [case["span_id"] for case in stage.written()] == [f"{2:016x}"]


def test_a_question_is_new_where_it_has_left_both_files(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "cases.jsonl", max_bytes=10_000)
    for number in range(60):
        stage.scored(number, f"Question {number}?")
    stage.written()

    stage.scored(100, "Question 0?")
    stage.scored(101, "Question 59?")

    assert stage.written()[-1]["user_input"] == "Question 0?"
    assert stage.collector.state().cases == {"written": 61, "folded": 1}


def test_what_cannot_be_written_waits_and_is_written_when_it_can_be(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage(tmp_path / "to come" / "cases.jsonl")
    with caplog.at_level(logging.WARNING, "spanscore"):
        for number in range(3):
            stage.scored(number, f"Question {number}?")
            assert stage.written() == []

    state = stage.collector.state()
    assert (state.waiting, state.fault, state.cases) == (3, "No such file or directory", {})
    assert len([one for one in caplog.records if "cases cannot be written" in one.message]) == 1
    assert "Question" not in caplog.text

    stage.path.parent.mkdir()
    stage.pass_time(60)

    assert [case["user_input"] for case in stage.written()] == [f"Question {number}?" for number in range(3)]
    assert stage.collector.state().fault == ""
    assert stage.counted == [("written", 1)] * 3


def test_a_fault_is_met_less_and_less_often_however_many_cases_there_are(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "missing" / "cases.jsonl")
    stage.scored(1, "Question 1?")
    poll(lambda: stage.due, deadline_s=30, what="the first fault", every_s=0.001)

    for number in range(500):  # while it waits, none of them tries again
        stage.scored(number, f"Question {number}?")
    assert [at_s for at_s, _ in stage.due] == [1.0]

    for after_s in (1.0, 5.0, 30.0, 30.0):
        stage.pass_time(after_s)
        poll(lambda: stage.due, deadline_s=30, what="the next fault", every_s=0.001)
    assert [at_s - stage.now_s for at_s, _ in stage.due] == [30.0]


def test_what_waits_is_bounded_in_number_and_in_bytes(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "missing" / "cases.jsonl")
    for number in range(1_200):
        stage.scored(number, f"Question {number}?")
    assert (stage.collector.state().waiting, stage.collector.state().cases) == (1_000, {"lost": 200})

    stage = Stage(tmp_path / "missing" / "cases.jsonl")
    for number in range(20):
        stage.scored(number, f"Question {number}?", size_bytes=1_000_000)
    assert (stage.collector.state().waiting, stage.collector.state().cases) == (16, {"lost": 4})


def test_a_case_that_is_larger_than_its_file_may_be_keeps_no_other_from_it(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "cases.jsonl", max_bytes=10_000)
    stage.scored(1, "Long? " * 2_000)
    stage.scored(2, "Short?")

    assert [case["user_input"] for case in stage.written()] == ["Short?"]
    assert stage.collector.state().cases == {"lost": 1, "written": 1}


def test_who_scores_never_waits_for_a_disk_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, stage = threading.Event(), Stage(tmp_path / "cases.jsonl")
    append = LineFile.append
    monkeypatch.setattr(LineFile, "append", lambda file, line: (answers.wait(60), append(file, line))[1])

    for number in range(3):
        stage.scored(number, f"Question {number}?")
    assert stage.collector.state().waiting == 3
    assert not stage.collector.flush(0.01)
    stage.collector.finish(0.01)

    assert stage.collector.state().cases == {"lost": 3}
    answers.set()


def test_what_is_left_at_the_end_is_lost_and_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage(tmp_path / "missing" / "cases.jsonl")
    stage.scored(1)
    with caplog.at_level(logging.WARNING, "spanscore"):
        stage.collector.finish(30)
    stage.scored(2)

    assert stage.counted == [("lost", 1), ("lost", 1)]
    assert "1 case (No such file or directory)" in caplog.text


def test_a_retry_that_is_due_after_the_end_starts_no_thread(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "missing" / "cases.jsonl")
    stage.scored(1)
    stage.collector.finish(30)
    before = threading.enumerate()

    stage.pass_time(60)

    assert [thread.name for thread in threading.enumerate() if thread not in before] == []


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"when": []}, "collect.when"),
        ({"when": "grounded<0.5"}, "collect.when"),
        ({"when": ["grounded"]}, "no condition"),
        ({"when": ["grounded<0.5"], "max_bytes": 100}, "10,000 or more"),
        ({"when": ["grounded<0.5"], "max_bytes": "much"}, "no size"),
    ],
)
def test_what_cannot_be_collected_is_refused(given: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigurationError, match=expected):
        Collect(out="cases.jsonl", **given)


def test_what_was_written_leaves_room_for_what_waits(stage: Stage) -> None:
    for number in range(3):  # each takes nearly all the room
        stage.scored(number, f"Large {number}?", size_bytes=15_000_000)
        stage.written()
    stage.path.unlink()
    stage.path.mkdir()  # nothing can be written there
    for number in range(3):
        stage.scored(number, f"Small {number}?")
    stage.collector.flush(30)

    assert (stage.collector.state().waiting, stage.collector.state().cases) == (3, {"written": 3})
