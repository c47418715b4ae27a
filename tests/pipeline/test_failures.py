"""Failed scores → one log line per cause, with the cause and without quotes."""

from __future__ import annotations

import pytest

from spanscore.core.score import Outcome
from spanscore.pipeline import ledger as notes
from spanscore.pipeline.ledger import log_failures
from spanscore.testing import make_score


@pytest.mark.parametrize(
    ("outcome", "error_type", "expected"),
    [
        (Outcome.JUDGE_ERROR, "declined", "judge_error: the judge declined to answer: "),
        (Outcome.JUDGE_ERROR, "cut", "judge_error: the judge's answer was cut at its maximum length: "),
        (Outcome.JUDGE_UNAVAILABLE, "quota", "judge_unavailable: the judge's account has no money left: "),
    ],
)
def test_a_cause_is_reported_in_words_and_not_by_the_class_that_a_client_raised(
    outcome: Outcome, error_type: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reason = f"critique: the judge's client raised Some{error_type.title()}Error"
    score = make_score(None, outcome=outcome, reason=reason, error_type=error_type)

    said: list[str] = []  # not by the log: an earlier test's work may log the same line, which is logged once
    monkeypatch.setattr(notes, "log_once", lambda _, message: said.append(message))
    log_failures([score])

    assert [message.startswith(expected) for message in said] == [True]
