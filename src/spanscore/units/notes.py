"""Notes: what ``status()`` tells of scores beside their counts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from spanscore import semconv
from spanscore.core.job import CONFIGURED, STATED, UNKNOWN, Decision
from spanscore.core.log import log_once
from spanscore.core.score import Outcome, Score
from spanscore.core.span import UnitKey

__all__ = ["Notes", "log_failures"]

_MOST_UNPRICED = 10
"""A line's worth, whatever names a judge may answer under."""
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


class Notes:
    """The latest of each kind. Written on the span thread, read on any.

    Attributes:
        reasons: (metric, outcome) → the latest reason, and whose it is.
        kinds: kinds of the units that were chosen → how many.
        heads: source of the share that a head sampler keeps (``Decision.upstream_by``) → chosen units.
        sources: how samples were found → how many.
        unpriced: models of judges whose price is not known; a few at most.
    """

    def __init__(self) -> None:
        self.reasons: dict[tuple[str, Outcome], tuple[str, UnitKey]] = {}
        self.kinds: Counter[str] = Counter()
        self.heads = dict.fromkeys((STATED, CONFIGURED, UNKNOWN), 0)
        self.sources: Counter[str] = Counter()
        self.unpriced: dict[str, None] = {}

    def chosen(self, kind: str, decisions: Mapping[str, Decision]) -> None:
        """Note a unit that some metric takes; ``decisions``: of these metrics, which share the unit's dice."""
        self.kinds[kind] += 1
        head = next(iter(decisions.values())).upstream_by
        if head in self.heads:
            self.heads[head] += 1

    def scored(self, key: UnitKey, scores: Sequence[Score]) -> None:
        """Note why scores of a unit have no value, and what their judges are not known to cost."""
        self.reasons |= {(score.metric, score.outcome): (score.reason, key) for score in scores if score.reason}
        self.costs(scores)

    def unscored(self, key: UnitKey, outcomes: Mapping[str, Outcome], reason: str | None) -> None:
        """Note why metrics of a unit gave no score."""
        if reason:
            self.reasons |= dict.fromkeys(outcomes.items(), (reason, key))

    def costs(self, scores: Sequence[Score]) -> None:
        """Note what the judges of scores are not known to cost."""
        if len(self.unpriced) < _MOST_UNPRICED:
            self.unpriced |= {model: None for score in scores for model in sorted(score.usage.unpriced)}

    def sampled(self, made: Mapping[str, Any]) -> None:
        """Note how a sample was made."""
        if source := made.get(semconv.SAMPLE_SOURCE):
            self.sources[source] += 1


def log_failures(scores: Iterable[Score]) -> None:
    """Log failed scores: each cause once, and at most hourly again. Metrics that share a judge share its cause.

    A reason may be the words of a user's own judge. So only sentences of ours are quoted, else the class of the error.
    """
    for score in scores:
        if score.outcome.failed:
            cause = _cause(score)
            key = "; check its API key" if _NOT_ALLOWED.search(cause) else ""
            message = f"{score.outcome}: {cause}: its units are not scored, see scorer.status(){key}"
            log_once(f"{score.outcome} {cause}", message)


def _cause(score: Score) -> str:
    if score.error_type in _WHY:
        return _WHY[score.error_type]
    found = _OURS.search(score.reason or "")
    if found:
        return found[0]
    name = score.error_type or ""
    of = f" ({name})" if _NAME.match(name) and name != score.outcome else ""
    return _WHAT[score.outcome] + of
