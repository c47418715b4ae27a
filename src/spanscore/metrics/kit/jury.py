"""Combine the scores of a jury's judges into one result, by mean or by majority, and compute their disagreement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Final, NamedTuple

from spanscore.core.score import NOT_APPLICABLE, PASS_FAIL, JuryVotes, Outcome, Score, ScoreValue
from spanscore.judges.jury import MIN_JURORS

DISAGREEMENT: Final = 0.25
"""Highest ``JuryVotes.disagreement`` at which jurors still agree: one grade on a scale of 1 to 5."""
_ABSTAINED: Final = frozenset({Outcome.NOT_APPLICABLE, Outcome.NO_VALUE})
"""Outcomes of jurors that answered without a value."""
_NOT_OF_A_JUROR: Final = frozenset({Outcome.BUDGET_EXHAUSTED, Outcome.METRIC_ERROR})
"""Outcomes with a cause outside the jurors. The jury's score has such an outcome if all jurors have it."""


class JuryFinding(NamedTuple):
    """The result of a jury on one sample.

    Attributes:
        outcome: ``scored``, ``not_applicable``, ``no_value`` or ``judge_error``; ``budget_exhausted`` or ``metric_error`` if
            all jurors have it.
        value: value on the metric's scale; None unless ``scored``.
        reason: cause of an outcome other than ``scored``, without content; None if ``scored``.
        explanation: value and reason of each juror; may quote content.
    """

    outcome: Outcome
    value: ScoreValue | None = None
    reason: str | None = None
    explanation: str | None = None


def disagree(scores: Sequence[Score]) -> bool:
    """Whether jurors disagree: some gave a value and some did not, or their values are too far apart.

    The bound is ``DISAGREEMENT``; on an open or a categorical scale, any two values are too far apart.
    """
    valued = [score for score in scores if score.value is not None]
    abstained = any(score.outcome in _ABSTAINED for score in scores)
    spread = _spread(valued)
    if valued and abstained:
        return True
    if spread is None or any(score.category for score in valued):
        return len({score.value for score in valued}) > 1
    return spread > DISAGREEMENT


def votes_of(scores: Mapping[str, Score]) -> JuryVotes:
    """Return the values, the failures and the disagreement of the jurors.

    Args:
        scores: model of the juror → its score, in the order of the jury.
    """
    valued = {model: score.value for model, score in scores.items() if score.value is not None}
    return JuryVotes(
        models=tuple(valued),
        values=tuple(valued.values()),
        left_out=tuple(f"{model} {score.outcome}" for model, score in scores.items() if score.value is None),
        disagreement=_spread([scores[model] for model in valued]),
    )


def combine_scores(scores: Mapping[str, Score]) -> JuryFinding:
    """Return the result of a jury, from its jurors' scores without the failed ones.

    The outcome is

    - ``judge_error`` if fewer than two jurors answered, but ``budget_exhausted`` or ``metric_error`` if all jurors have it;
    - ``not_applicable`` if most answers are;
    - ``no_value`` if half or more of the answers have no value, or if the votes tie;
    - ``scored`` otherwise.

    Args:
        scores: model of the juror → its score, in the order of the jury.
    """
    valued = [score for score in scores.values() if score.value is not None]
    abstained = [score for score in scores.values() if score.outcome in _ABSTAINED]
    answered = len(valued) + len(abstained)
    if answered < MIN_JURORS:
        return _failed_jury(scores, answered)
    inapplicable = sum(score.outcome is Outcome.NOT_APPLICABLE for score in abstained)
    if 2 * inapplicable > answered:
        return JuryFinding(Outcome.NOT_APPLICABLE, reason=NOT_APPLICABLE)
    if len(abstained) >= len(valued):
        return JuryFinding(Outcome.NO_VALUE, reason=f"{len(valued)} of {len(scores)} jurors found a value")
    return _combine_values(scores, valued)


def _combine_values(scores: Mapping[str, Score], valued: Sequence[Score]) -> JuryFinding:
    explanation = "; ".join(
        f"{model} {score.category or f'{score.number:g}'}{f': {score.explanation}' if score.explanation else ''}"
        for model, score in scores.items()
        if score.value is not None
    )
    if valued[0].kind not in PASS_FAIL:
        numbers = [score.number for score in valued if score.number is not None]
        return JuryFinding(Outcome.SCORED, fmean(numbers), explanation=explanation)
    (value, most), *others = Counter(score.value for score in valued).most_common()
    if any(count == most for _, count in others):
        reason = f"the jury is tied: {most} of {len(valued)} jurors for each verdict"
        return JuryFinding(Outcome.NO_VALUE, reason=reason, explanation=explanation)
    return JuryFinding(Outcome.SCORED, value, explanation=explanation)


def _failed_jury(scores: Mapping[str, Score], answered: int) -> JuryFinding:
    outcomes = {score.outcome for score in scores.values()}
    outcome = next(iter(outcomes & _NOT_OF_A_JUROR)) if len(outcomes) == 1 and outcomes <= _NOT_OF_A_JUROR else None
    left_out = ", ".join(f"{model} {score.outcome}" for model, score in scores.items() if score.outcome.failed)
    reason = f"{answered} of {len(scores)} jurors answered, and a score needs {MIN_JURORS}; left out: {left_out}"
    return JuryFinding(outcome or Outcome.JUDGE_ERROR, reason=reason)


def _spread(scores: Sequence[Score]) -> float | None:
    """Return the highest quality less the lowest, [0, 1]; None for fewer than two qualities."""
    qualities = [score.quality for score in scores if score.quality is not None]
    return max(qualities) - min(qualities) if len(qualities) >= MIN_JURORS else None
