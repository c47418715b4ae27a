"""Fitted: what came of fitting a judge to human labels; and the file of it, which a metric takes as ``prompts: {file: …}``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from hashlib import blake2b
from math import ceil
from pathlib import Path
from typing import Any

from spanscore.core.codecs.text import json_in
from spanscore.errors import ConfigurationError, writing
from spanscore.fitting.choosing import ALPHA, Paired
from spanscore.fitting.teachable import Question

__all__ = ["Fitted", "digest_of", "fitted_prompts"]

_KEYS = ("metric", "step", "fitted_to", "kept", "prompts")
_MADE_BY = "make it by `spanscore tune`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """What came of fitting a judge to human labels. ``print`` it.

    Attributes:
        metric: to be used from now on; where nothing is kept, the one that was fitted.
        kept: whether the best candidate is shown to be right more often, on labels that it was not chosen by.
        step: the step that was taught.
        fitted_to: a hash of its instruction in the metric's own words.
        prompts: of ``metric``, as it takes them; empty = its own words. Demonstrations in it are content.
        evaluator_version: of the scores of ``metric``.
        evaluator_version_before: of the metric that was fitted; the same where nothing is kept.
        labels: that taught: for demonstrations, for the choice, for the test.
        candidates: that were tried.
        chosen: the best of them on the labels that it was chosen by, where it looks better than it is; None = none did better.
        tested: the same one on those that it was not; None = none came so far.
        judge_calls: that were paid for; those answered before are not counted.
        cost_usd: of those with a known price; None where none is known.
        notes: what must be known of it, a sentence each.
    """

    metric: Any
    kept: bool
    step: str
    fitted_to: str
    prompts: Mapping[str, Any]
    evaluator_version: str
    evaluator_version_before: str
    labels: tuple[int, int, int]
    candidates: int
    chosen: Paired | None
    tested: Paired | None
    judge_calls: int
    cost_usd: float | None
    notes: tuple[str, ...] = ()

    def save(self, path: str | Path) -> None:
        """Write the file that a metric takes as ``prompts={"file": path}``; of one that is not kept, the unchanged metric's.

        Raises:
            ConfigurationError: it cannot be written.
        """
        with writing(path):
            text = json.dumps(self.as_json(), ensure_ascii=False, indent=2) + "\n"
            Path(path).write_bytes(text.encode("utf-8", "replace"))  # a lone surrogate is a ? to the judge, too

    def as_json(self) -> dict[str, Any]:
        """Return it as plain values: what the file holds."""
        told = {one.name: getattr(self, one.name) for one in fields(self)}
        return told | {"metric": self.metric.name, "chosen": _told(self.chosen), "tested": _told(self.tested)}

    def __str__(self) -> str:
        return "\n".join([self._verdict(), *self._way(), *self.notes, *self._sent()])

    def _verdict(self) -> str:
        name, tested = self.metric.name, self.tested
        if tested is None:
            return f"{name}: not kept, unchanged. None of {self.candidates} candidates was right more often than it is."
        how = (
            f"on {tested.labels} labels that it was not chosen by, the best of {self.candidates} candidates was right on "
            f"{tested.after} instead of {tested.before}: {tested.gained} gained, {tested.lost} lost, p = {tested.p:.2g}"
        )
        if self.kept:
            return f"{name}: kept; {how}."
        return f"{name}: not kept, unchanged; {how}, and {ALPHA:g} is asked. {_more(tested)}"

    def _way(self) -> Iterable[str]:
        first, second, third = self.labels
        yield f"Labels: {first} for demonstrations, {second} for the choice, {third} for the test."
        if self.chosen is not None:
            yield (
                f"On those that it was chosen by, it was right on {self.chosen.after} instead of {self.chosen.before} of "
                f"{self.chosen.labels}: that is no promise, as the best of many looks better than it is."
            )
        cost = "" if self.cost_usd is None else f", {self.cost_usd:.4f} USD"
        yield f"{self.judge_calls:,} judge calls{cost}."
        if self.kept:
            yield f"Its scores have a new evaluator version: {self.evaluator_version_before} → {self.evaluator_version}."

    def _sent(self) -> Iterable[str]:
        """Yield what every question will hold besides its evidence: whoever reads on decides whether it may."""
        change: Mapping[str, Any] = self.prompts.get(self.step, {}) if self.kept else {}
        if "instruction" in change:
            yield f"\nSent with every question from now on, as instruction:\n{change['instruction']}"
        if examples := change.get("examples"):
            yield "\nSent with every question from now on, as demonstrations (content of your users):"
            yield from (json.dumps(example, ensure_ascii=False) for example in examples)


def _told(paired: Paired | None) -> dict[str, Any] | None:
    return None if paired is None else {**paired._asdict(), "after": paired.after, "p": paired.p}


def _more(tested: Paired) -> str:
    needed = tested.labels_needed
    if needed is None:
        return "It was right no more often there: no gain that more labels would show."
    return f"About {ceil(needed / 10) * 10:,} labels in all would show such a gain, four times out of five."


def fitted_prompts(path: Any, metric: str, own: Iterable[Question]) -> Mapping[str, Any]:
    """Return what a metric takes as ``prompts`` from the file of a ``Fitted``.

    Args:
        path: of the file, as a user gave it.
        metric: name of the metric that is to be made.
        own: its steps, in its own words.

    Raises:
        ConfigurationError: it cannot be read, is no such file, or is of another metric, step or definition.
    """
    if not isinstance(path, str | Path):
        raise ConfigurationError(f"prompts.file is {path!r}; it is the path of a file that `spanscore tune` wrote")
    held = _read(path)
    if held["metric"] != metric:
        raise ConfigurationError(f"prompts.file: {path} was fitted to {held['metric']!r}, not to {metric!r}")
    step = next((question for question in own if question.name == held["step"]), None)
    if step is None:
        known = ", ".join(question.name for question in own)
        raise ConfigurationError(f"prompts.file: {path} is of a step {held['step']!r}; {metric} has {known}")
    if digest_of(step) != held["fitted_to"]:
        raise ConfigurationError(
            f"prompts.file: {path} was fitted to another definition of {metric}: the instruction of {step.name} has changed "
            "since; fit again, or take the change back"
        )
    prompts: Mapping[str, Any] = held["prompts"]
    return prompts


def digest_of(own: Question) -> str:
    """Return what tells a metric's own words from others: labels of one definition are none of another."""
    return blake2b(own.instruction.encode("utf-8", "replace"), digest_size=8).hexdigest()


def _read(path: str | Path) -> dict[str, Any]:
    try:
        held = json_in(Path(path).expanduser().read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigurationError(f"prompts.file: there is no file {path}; {_MADE_BY}") from None
    except OSError as error:
        raise ConfigurationError(f"prompts.file: {path} cannot be read: {error.strerror}") from None
    except ValueError as error:  # JSON, or no text at all; its own words may quote the file
        raise ConfigurationError(f"prompts.file: {path} is no JSON ({type(error).__name__}); {_MADE_BY}") from None
    if not isinstance(held, dict) or any(key not in held for key in _KEYS) or not isinstance(held["prompts"], dict):
        raise ConfigurationError(f"prompts.file: {path} is no fitted metric; {_MADE_BY}")
    return held
