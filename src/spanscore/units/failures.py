"""Failed scores → one log line per cause, for the operator who looks at no status: what failed, and what to do.

A reason may be the words of a user's own judge, so only sentences of ours are quoted; of all others the class of the error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from spanscore.model.score import Outcome, Score
from spanscore.runtime.log import log_once

__all__ = ["log_failures"]

_OURS = re.compile(
    r"the judge could not be reached \(\w+\)|the judge's provider answered HTTP \d+|the judge('s client)? raised \w+"
    r"|(the )?\w+ raised \w+ at [\w.<>-]+:\d+|\w+ gave \w+; a metric gives [\w, ]+"
)
_NOT_ALLOWED = re.compile("HTTP 40[13]")
_NAME = re.compile(r"[A-Za-z_]\w{0,60}\Z")
_WHAT = {
    Outcome.TIMEOUT: "there was no score in time",
    Outcome.JUDGE_ERROR: "the judge gave no usable answer",
    Outcome.METRIC_ERROR: "a metric failed",
    Outcome.REDACTION_ERROR: "the redactor failed",
    Outcome.JUDGE_UNAVAILABLE: "the judge's limit was reached",
    Outcome.BUDGET_EXHAUSTED: "the judge's budget is spent",
}

_WHY = {
    "declined": "the judge declined to answer",
    "cut": "the judge's answer was cut at its longest",
    "too_long": "the question was too long for the judge",
    "too_big": "the judge's answer was too big to read",
    "empty": "the judge's answer was empty",
    "quota": "the judge's account has no money left",
    "breaker_open": "the judge was away for too long",
}
"""Error types that say more than the class that a client raised."""


def log_failures(scores: Iterable[Score]) -> None:
    """Log the failed ones of these, each cause once and at most hourly again; metrics that share a judge share its cause."""
    for score in scores:
        if score.outcome.failed:
            cause = _cause(score)
            key = "; check its API key" if _NOT_ALLOWED.search(cause) else ""
            message = f"{score.outcome}: {cause}: its units are not scored, see scorer.status(){key}"
            log_once(f"{score.outcome} {cause}", message)


def _cause(score: Score) -> str:
    if score.error_type in _WHY:
        return _WHY[score.error_type]
    match = _OURS.search(score.reason or "")
    if match:
        return match[0]
    name = score.error_type or ""
    of = f" ({name})" if _NAME.match(name) and name != score.outcome else ""
    return _WHAT[score.outcome] + of
