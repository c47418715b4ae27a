"""Sampling rules → what they take, in words, and what a person must know of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from spanscore.line.options import Options
from spanscore.sampling.rules import Rule
from spanscore.settings.upstream import upstream_shares

__all__ = ["rule_lines", "sampling_notes"]


def rule_lines(rules: Sequence[Rule]) -> Iterator[str]:
    """Yield a sentence for each rule."""
    for rule in rules:
        conditions = " and ".join(_conditions(rule))
        yield f"at least {rule.rate:g} {f'when {conditions}' if conditions else 'always'}"


def sampling_notes(options: Options) -> Iterator[str]:
    """Yield what does not follow from a rule's words, and the shares that units without ``ot=th`` get."""
    yield from _upstream_notes(options)
    for rule in options.rules:
        if rule.status == "error" and not options.score_failed:
            yield (
                f"the sampling rule {rule.name} takes runs whose status is error: they failed, and failed runs have no sample. "
                "any_error: true also takes those that answered although something inside failed; capture.score_failed: true "
                "scores what the model of a failed run had answered"
            )
        if options.capture and (lost := [key for key in rule.metadata or {} if key not in options.capture_metadata]):
            keys = ", ".join(lost)
            yield (
                f"the sampling rule {rule.name} looks at metadata that the callback's spans do not have: replay and workers "
                f"read these, and will decide otherwise; capture.metadata: [{keys}] exports it"
            )
        if rule.score is not None:
            yield f"every unit waits for its score of {rule.score['metric']}: the sampling rule {rule.name} looks at it"


def _upstream_notes(options: Options) -> Iterator[str]:
    by_service, default = upstream_shares(options.head_sampling_rate)
    if not by_service and default == 1:
        return
    services = [f"{1 / share:.4g} if its service is {name}" for name, share in by_service.items()]
    rest = f"{1 / default:.4g}{' if it is any other' if services else ''}"
    yield (
        f"sampling.head_sampling_rate: a unit without ot=th has the weight {', '.join([*services, rest])}; "
        "a unit with it, the weight that ot=th states; both are divided by the sampling rate"
    )


def _conditions(rule: Rule) -> Iterator[str]:
    if rule.status is not None:
        yield f"status is {rule.status}"
    if rule.workflow is not None:
        yield f"the workflow is {rule.workflow!r}"
    if rule.slower_than is not None:
        yield f"it took more than {rule.slower_than:g} s"
    yield from (f"metadata {key} is {value!r}" for key, value in (rule.metadata or {}).items())
    if rule.any_error:
        yield "something in it failed, handled or not"
    if rule.min_tool_calls is not None:
        yield f"it called tools {rule.min_tool_calls} times or more"
    if rule.model is not None:
        yield f"it asked the model {rule.model!r}"
    if rule.score is not None:
        yield f"the quality of {rule.score['metric']} is below {rule.score['below']:g}"
