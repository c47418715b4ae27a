"""A judge's first answers are kept over restarts: the first file wins, whoever wrote it, and it quotes nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spanscore.errors import ConfigurationError
from spanscore.monitoring.judge_check_runs import FirstAnswers


def test_the_first_answer_stays_the_first_over_restarts(tmp_path: Path) -> None:
    file = tmp_path / "baseline.json"
    FirstAnswers(file).keep("faithfulness", "1/m/1", {"a": 1.0})

    later = FirstAnswers(file)
    later.keep("faithfulness", "1/m/1", {"a": 0.0, "b": 0.5})

    assert FirstAnswers(file).of("faithfulness", "1/m/1") == later.of("faithfulness", "1/m/1") == {"a": 1.0, "b": 0.5}
    assert later.of("faithfulness", "2/m/1") == {}


def test_what_another_process_wrote_meanwhile_was_first(tmp_path: Path) -> None:
    one, other = FirstAnswers(tmp_path / "b.json"), FirstAnswers(tmp_path / "b.json")

    one.keep("faithfulness", "1/m/1", {"a": 1.0})
    other.keep("faithfulness", "1/m/1", {"a": 0.0})

    assert other.of("faithfulness", "1/m/1") == {"a": 1.0}


def test_without_a_place_to_write_they_are_kept_in_memory_and_that_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = FirstAnswers(tmp_path / "none" / "b.json")

    first.keep("faithfulness", "1/m/1", {"a": 1.0})
    first.keep("faithfulness", "1/m/1", {"b": 1.0})

    assert first.of("faithfulness", "1/m/1") == {"a": 1.0, "b": 1.0}
    (said,) = caplog.messages
    assert "cannot be written" in said
    assert "judge_check.baseline" in said


def test_a_file_that_breaks_while_it_runs_is_left_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first = FirstAnswers(tmp_path / "b.json")
    (tmp_path / "b.json").write_text("{")

    first.keep("faithfulness", "1/m/1", {"a": 1.0})

    assert first.of("faithfulness", "1/m/1") == {"a": 1.0}
    assert (tmp_path / "b.json").read_text() == "{"
    assert len(caplog.messages) == 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        json.dumps({"format": 2, "first": {}}),
        json.dumps({"format": 1, "first": {"m": {"s": {"a": 2}}}}),
    ],
)
def test_a_file_that_is_no_baseline_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "b.json").write_text(text)

    with pytest.raises(ConfigurationError, match=r"b\.json is not a baseline of a judge check.*judge_check\.baseline"):
        FirstAnswers(tmp_path / "b.json")


def test_answers_that_another_process_wrote_over_are_written_again(tmp_path: Path) -> None:
    file = tmp_path / "b.json"
    first = FirstAnswers(file)
    first.keep("faithfulness", "1/m/1", {"a": 1.0})
    file.write_text('{"format": 1, "first": {"faithfulness": {"1/other/1": {"a": 0.5}}}}')  # it had read before that

    first.keep("faithfulness", "1/m/1", {"a": 0.0})

    later = FirstAnswers(file)
    assert (later.of("faithfulness", "1/m/1"), later.of("faithfulness", "1/other/1")) == ({"a": 1.0}, {"a": 0.5})


def test_after_its_file_was_removed_the_next_answers_are_the_first(tmp_path: Path) -> None:
    file = tmp_path / "b.json"
    FirstAnswers(file).keep("faithfulness", "1/m/1", {"a": 1.0})
    first = FirstAnswers(file)
    first.keep("correctness", "1/m/1", {"a": 1.0})
    file.unlink()

    for metric in ("faithfulness", "correctness"):
        first.keep(metric, "1/m/1", {"a": 0.0})

    later = FirstAnswers(file)
    assert [later.of(metric, "1/m/1") for metric in ("faithfulness", "correctness")] == [{"a": 0.0}] * 2
