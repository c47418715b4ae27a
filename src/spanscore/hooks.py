"""Hooks on a sample before it is scored: redact (fails closed) and filter."""

from __future__ import annotations

from dataclasses import dataclass, replace
from inspect import iscoroutinefunction
from typing import Any, TypeVar

from spanscore.codec.text import jsonable
from spanscore.errors import ConfigurationError
from spanscore.foreign import type_name
from spanscore.model.sample import MultiTurnSample, Sample, Samples, SingleTurnSample
from spanscore.model.score import Outcome
from spanscore.protocols import Filter, Redactor

__all__ = ["Hooks"]

S = TypeVar("S", SingleTurnSample, MultiTurnSample)


@dataclass(frozen=True, slots=True)
class Hooks:
    """What happens to samples before a judge sees them.

    Attributes:
        redactor: applied to every text of a sample; when it raises, the sample goes nowhere (``redaction_error``).
        keep: samples for which it is false are ``filtered``; when it raises, likewise, with the reason.

    Raises:
        ConfigurationError: one of them is a coroutine function: what it returns is true, whatever it would have said.
    """

    redactor: Redactor | None = None
    keep: Filter | None = None

    def __post_init__(self) -> None:
        for name in ("redactor", "keep"):
            hook = getattr(self, name)
            if iscoroutinefunction(hook) or iscoroutinefunction(getattr(hook, "__call__", None)):  # noqa: B004
                raise ConfigurationError(f"{name} is a coroutine function, which nobody awaits: give a plain one")

    def apply(self, samples: Samples) -> Samples:
        """Return the redacted samples, or the outcome that ends them. Never raises."""
        if samples.outcome is not None or (self.redactor is None and self.keep is None):
            return samples
        try:
            redacted = replace(samples, single=self._redact(samples.single), multi=self._redact(samples.multi))
        except BaseException as error:  # noqa: BLE001  (fails closed, SystemExit too; the class only: its text may quote)
            return Samples(outcome=Outcome.REDACTION_ERROR, reason=f"the redactor raised {type_name(error)}")
        return self._filtered(redacted)

    def _filtered(self, samples: Samples) -> Samples:
        sample: Sample | None = samples.multi or samples.single
        if self.keep is None or sample is None:
            return samples
        try:
            kept = bool(self.keep(sample))
        except BaseException as error:  # noqa: BLE001
            return Samples(outcome=Outcome.FILTERED, reason=f"the filter raised {type_name(error)}")
        return samples if kept else Samples(outcome=Outcome.FILTERED, reason="the filter left it out")

    def _redact(self, sample: S | None) -> S | None:
        if sample is None or self.redactor is None:
            return sample
        return type(sample).model_validate(_texts(sample.model_dump(), self.redactor))


_STRUCTURE = frozenset({"type", "tool_call_id", "id"})
_FREE = frozenset({"args", "metadata", "rubrics"})
"""Fields of a sample in which keys are the application's, and nothing is structure."""


def _texts(value: Any, redactor: Redactor, *, free: bool = False) -> Any:
    if isinstance(value, str):
        return redactor(value)
    if isinstance(value, dict):
        return dict(_entry(key, item, redactor, free) for key, item in value.items())
    if isinstance(value, list):
        return [_texts(item, redactor, free=free) for item in value]
    if value is None or isinstance(value, (bool, int, float)):
        return value
    return _texts(jsonable(value), redactor, free=free)  # of a sample made by hand: whatever else may hold a text


def _entry(key: Any, item: Any, redactor: Redactor, free: bool) -> tuple[Any, Any]:
    if free:
        return redactor(key) if isinstance(key, str) else key, _texts(item, redactor, free=True)
    if key in _STRUCTURE and isinstance(item, str):
        return key, item
    return key, _texts(item, redactor, free=key in _FREE)
