"""Sampling rules → what they take, in words, and what a person must know of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from spanscore.config.sampling import Rule, head_shares
from spanscore.config.tree import ScorerSettings

__all__ = ["rule_lines", "sampling_notes"]


def rule_lines(rules: Sequence[Rule]) -> Iterator[str]:
    """Yield a sentence for each rule."""
    for rule in rules:
        conditions = " and ".join(_conditions(rule))
        yield f"at least {rule.rate:g} {f'when {conditions}' if conditions else 'always'}"


def sampling_notes(settings: ScorerSettings) -> Iterator[str]:
    """Yield what does not follow from a rule's words, and the shares that units without ``ot=th`` get."""
    yield from _upstream_notes(settings)
    for rule in settings.sampling.rules:
        if rule.when.status == "error" and not settings.capture.score_failed:
            yield (
                f"the sampling rule {rule.name} takes runs whose status is error: they failed, and failed runs have no sample. "
                "any_error: true also takes those that answered although something inside failed; capture.score_failed: true "
                "scores what the model of a failed run had answered"
            )
        if settings.capture.enabled and (
            lost := [key for key in rule.when.metadata or {} if key not in settings.capture.metadata]
        ):
            keys = ", ".join(lost)
            yield (
                f"the sampling rule {rule.name} looks at metadata that the callback's spans do not have: replay and workers "
                f"read these, and will decide otherwise; capture.metadata: [{keys}] exports it"
            )
        if rule.when.score is not None:
            yield f"every unit waits for its score of {rule.when.score.metric}: the sampling rule {rule.name} looks at it"


def _upstream_notes(settings: ScorerSettings) -> Iterator[str]:
    by_service, default = head_shares(settings.sampling.head_sampling_rate)
    if not by_service and default == 1:
        return
    services = [f"{1 / share:.4g} if its service is {name}" for name, share in by_service.items()]
    rest = f"{1 / default:.4g}{' if it is any other' if services else ''}"
    yield (
        f"sampling.head_sampling_rate: a unit without ot=th has the weight {', '.join([*services, rest])}; "
        "a unit with it, the weight that ot=th states; both are divided by the sampling rate"
    )


def _conditions(rule: Rule) -> Iterator[str]:
    if rule.when.status is not None:
        yield f"status is {rule.when.status}"
    if rule.when.workflow is not None:
        yield f"the workflow is {rule.when.workflow!r}"
    if rule.when.slower_than is not None:
        yield f"it took more than {rule.when.slower_than:g} s"
    yield from (f"metadata {key} is {value!r}" for key, value in (rule.when.metadata or {}).items())
    if rule.when.any_error:
        yield "something in it failed, handled or not"
    if rule.when.min_tool_calls is not None:
        yield f"it called tools {rule.when.min_tool_calls} times or more"
    if rule.when.model is not None:
        yield f"it asked the model {rule.when.model!r}"
    if rule.when.score is not None:
        yield f"the quality of {rule.when.score.metric} is below {rule.when.score.below:g}"
