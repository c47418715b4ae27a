"""Does a unit match a rule? Pure; a fact that is not known yet counts as a match."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spanscore.config.sampling import Rule, RuleCondition
from spanscore.core.codecs.text import jsonable
from spanscore.core.span import SamplingContext

__all__ = ["matches"]


def matches(rule: Rule, facts: SamplingContext) -> bool:
    """Whether a rule applies; a fact that is not known yet counts as a match, so that nothing is ruled out too early."""
    when = rule.when
    if when.workflow is not None and facts.name is not None and facts.name != when.workflow:
        return False
    failed = facts.status == "error"
    if when.status is not None and facts.status is not None and failed != (when.status == "error"):
        return False
    least_s = when.slower_than
    if least_s is not None and facts.duration_ns is not None and facts.duration_ns < least_s * 1e9:
        return False
    return _matches_metadata(when.metadata, facts.metadata) and _matches_inside(when, facts)


def _matches_metadata(expected: Mapping[str, Any] | None, metadata: Mapping[str, Any] | None) -> bool:
    if metadata is None or not expected:
        return True
    return all(_equal(metadata.get(key), value) for key, value in expected.items())


def _matches_inside(when: RuleCondition, facts: SamplingContext) -> bool:
    if when.any_error and facts.any_error is False:
        return False
    if when.min_tool_calls is not None and facts.tool_calls is not None and facts.tool_calls < when.min_tool_calls:
        return False
    if when.model is not None and facts.models is not None and when.model not in facts.models:
        return False
    if when.score is None or facts.scores is None:
        return True
    quality = facts.scores.get(when.score.metric)
    return quality is not None and quality < when.score.below


def _equal(value: Any, expected: Any) -> bool:
    """Compare a value of an application's metadata, which may be anything, as JSON has it: its own ``==`` may hang."""
    return value is expected or jsonable(value) == jsonable(expected)
