"""Tuned prompts: build few-shot candidates from labels, pick and test the best one; read and write files of prompts."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from hashlib import blake2b
from math import ceil, comb, sqrt
from pathlib import Path
from random import Random
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from spanscore.core.codecs.annotation_file import passes
from spanscore.core.codecs.text import json_in
from spanscore.core.log import log_once
from spanscore.core.printable import format_usd
from spanscore.core.prompt import Example, Prompt, Reply
from spanscore.core.sample import AnnotatedSample, HumanValue, Sample
from spanscore.core.score import Scale
from spanscore.errors import ConfigurationError, JudgeError, writing
from spanscore.judges.rendering import fenced
from spanscore.judges.score_context import ScoreContext, asked_by
from spanscore.metrics.kit.step import Step

if TYPE_CHECKING:  # a metric loads this module when it is fitted
    from spanscore.metrics.kit.judged import JudgedMetric

# Labels are split in three. Demonstrations come from the first part, the candidate is chosen on the second part, and the third
# part decides, once, whether to keep it. Selection inflates the winner's result on the selection labels. With 16 candidates
# without true gain, one looked better in 98–100 % of simulated runs; a test on those labels passed in 23 % of them.

ALPHA = 0.05
"""Largest p at which a gain counts as shown. So at most one in twenty metrics without a gain is changed."""
_SHARES = (0.30, 0.35, 0.35)
_POWER = 0.8
_TRIES = 20

Answers: TypeAlias = Sequence[bool | None]
"""Whether the judge was right, one value per label; None if the judge gave no verdict."""


class Paired(NamedTuple):
    """Paired counts of an unchanged and a changed judge on the same labels.

    Attributes:
        labels: number of labels on which the unchanged judge gave a verdict. A verdict missing from the changed judge is
            wrong.
        before: number of labels that the unchanged judge got right.
        gained: number of labels that only the changed judge got right.
        lost: number of labels that only the unchanged judge got right.
    """

    labels: int
    before: int
    gained: int
    lost: int

    @classmethod
    def of(cls, before: Answers, after: Answers) -> Paired:
        """Count the answers to the same labels in the same order."""
        pairs = [(was, bool(now)) for was, now in zip(before, after, strict=True) if was is not None]
        return cls(len(pairs), sum(was for was, _ in pairs), pairs.count((False, True)), pairs.count((True, False)))

    @property
    def after(self) -> int:
        """Number of labels that the changed judge got right."""
        return self.before + self.gained - self.lost

    @property
    def p(self) -> float:
        """p of McNemar's exact one-sided test: probability of at least so many gains if gains and losses are equally likely."""
        changes = self.gained + self.lost
        return sum(comb(changes, gains) for gains in range(self.gained, changes + 1)) / (1 << changes)

    @property
    def shown(self) -> bool:
        """Whether the gain is statistically significant: ``p`` is at most ``ALPHA``."""
        return self.p <= ALPHA

    @property
    def labels_needed(self) -> int | None:
        """Approximate number of labels, in all three parts, that would show this gain with 80 % power; None without a gain.

        Source: Connor, "Sample size for testing differences in proportions for the paired-sample design" (1987), one-sided,
        with Fleiss's correction for continuity, because the test is exact.
        """
        if self.gained <= self.lost:
            return None
        changes, gain = (self.gained + self.lost) / self.labels, (self.gained - self.lost) / self.labels
        z_alpha, z_power = NormalDist().inv_cdf(1 - ALPHA), NormalDist().inv_cdf(_POWER)
        tested = ((z_alpha * sqrt(changes) + z_power * sqrt(changes - gain**2)) / gain) ** 2 + 1 / gain
        return ceil(tested / _SHARES[-1])


def split(groups: Sequence[Hashable], seed: int) -> tuple[list[int], list[int], list[int]]:
    """Return label indices split at random into three parts of 30, 35 and 35 %; a group is never divided.

    Args:
        groups: group of each label, such as its session. Turns of one conversation are too similar to be in the teaching part
            and in the test part.
        seed: seed of the random split.
    """
    members: defaultdict[Hashable, list[int]] = defaultdict(list)
    for place, group in enumerate(groups):
        members[group].append(place)
    shuffled = list(members.values())
    Random(seed).shuffle(shuffled)
    parts: tuple[list[int], list[int], list[int]] = ([], [], [])
    for places in shuffled:
        room = [share * len(groups) - len(part) for share, part in zip(_SHARES, parts, strict=True)]
        parts[room.index(max(room))].extend(places)
    return parts


def demonstration_sets(verdicts: Sequence[int], size: int, number: int, seed: int) -> list[tuple[int, ...]]:
    """Return distinct random sets of label indices, each as balanced over the verdicts as possible.

    In all simulations the true gain was within .04 of greedy search and of preferring labels that the judge got wrong.

    Args:
        verdicts: the human verdict of each label; a rare verdict is in every set, too.
        size: labels per set; a set is smaller if there are fewer labels.
        number: number of sets; fewer if there are not so many distinct sets.
        seed: seed of the random draws.
    """
    rng, found = Random(seed), dict[frozenset[int], tuple[int, ...]]()
    for _ in range(_TRIES * number):
        drawn = _draw_balanced(verdicts, size, rng)
        found.setdefault(frozenset(drawn), drawn)
        if len(found) == number:
            break
    return [*found.values()]


def _draw_balanced(verdicts: Sequence[int], size: int, rng: Random) -> tuple[int, ...]:
    by_verdict: defaultdict[int, list[int]] = defaultdict(list)
    for place in rng.sample(range(len(verdicts)), len(verdicts)):
        by_verdict[verdicts[place]].append(place)
    piles, drawn = [*by_verdict.values()], list[int]()
    while len(drawn) < min(size, len(verdicts)):
        drawn += [pile.pop() for pile in piles if pile]
    drawn = drawn[:size]
    rng.shuffle(drawn)
    return tuple(drawn)


def best_of(before: Answers, candidates: Sequence[Answers]) -> tuple[int, Paired] | None:
    """Return the index and the counts of the candidate with the most correct labels; None if no candidate beats ``before``."""
    scored = [Paired.of(before, answers) for answers in candidates]
    best = max(range(len(scored)), key=lambda place: scored[place].after, default=None)
    return None if best is None or scored[best].after <= scored[best].before else (best, scored[best])


Prompts: TypeAlias = dict[str, dict[str, Any]]
"""A metric's parameter ``prompts``; empty = the metric's built-in prompts."""
_MOST_SHOWN = 8_000
"""Maximum length of a demonstration in characters, because the judge is paid for reading it with every later question."""
_NAMED = 5


@dataclass(frozen=True, slots=True)
class VerdictStep:
    """The only step of a metric, with the answer field that holds its verdict.

    Attributes:
        question: the step with the prompt in force.
        own: the step with the metric's built-in prompt.
        verdict: name of the answer field that holds the verdict, a whole number.
        reason: name of the answer field that holds the judge's reason; None if the answer has no text field.
    """

    question: Step[Any]
    own: Step[Any]
    verdict: str
    reason: str | None

    @property
    def prompts_in_force(self) -> Prompts:
        """The parameter ``prompts`` that replaces the built-in prompt by the prompt in force."""
        return self.prompts(self.question.examples)

    def prompts(self, examples: Sequence[Example], instruction: str | None = None) -> Prompts:
        """Return the parameter ``prompts`` with these demonstrations; ``instruction`` None = the instruction in force."""
        words = self.question.instruction if instruction is None else instruction
        change: dict[str, Any] = {} if words == self.own.instruction else {"instruction": words}
        if tuple(examples) != self.own.examples:
            change["examples"] = [{"evidence": example.evidence, "output": example.output} for example in examples]
        return {self.own.name: change} if change else {}


@dataclass(frozen=True, slots=True)
class TuningSample:
    """A sample with its human verdict.

    Attributes:
        evidence: the evidence in the judge's prompt, as JSON.
        verdict: the human verdict on the judge's scale.
        group: key of the samples that stay in one part of the split: a session, a trace, or the label's own line.
        example: the sample as a demonstration; None if it is longer than 8,000 characters.
    """

    sample: Sample
    evidence: Mapping[str, Any]
    verdict: int
    group: Hashable
    example: Example | None


@dataclass(frozen=True, slots=True)
class LabelledSamples:
    """The usable labels of a fit.

    Attributes:
        notes: one sentence per reason for which labels were left out.
    """

    step: VerdictStep
    samples: tuple[TuningSample, ...]
    notes: tuple[str, ...]


def verdict_step(metric: JudgedMetric) -> VerdictStep:
    """Return the metric's only step, if a label of the whole sample can teach it.

    Raises:
        ConfigurationError: the metric has several steps, its values are continuous, or an answer holds no verdict on the
            sample. The message names the step.
    """
    without = next((question for question in metric.questions if not _verdict_fields(question)), None)
    if without is not None:
        fields = ", ".join(without.output.model_fields)
        raise _unteachable(metric, without.name, f"its answer ({fields}) holds no verdict on the sample")
    if len(metric.questions) != 1:
        others = " and ".join(question.name for question in metric.questions[:-1]) or "no step"
        name = metric.questions[-1].name if metric.questions else "nothing"
        raise _unteachable(
            metric, name, f"a label is about the whole sample, not one of several steps (others: {others})"
        )
    (own,) = metric.questions
    if metric.scale.kind == "continuous":
        raise _unteachable(metric, own.name, "the metric's value is computed from verdicts, and is no verdict itself")
    texts = [name for name, kind in own.output.model_fields.items() if kind.annotation is str]
    return VerdictStep(metric.steps[own.name], own, _verdict_fields(own)[0], texts[0] if texts else None)


def _verdict_fields(question: Step[Any]) -> list[str]:
    """Return the name of the only whole-number field if all other fields are texts; otherwise an empty list."""
    kinds = {name: kind.annotation for name, kind in question.output.model_fields.items()}
    numbers = [name for name, kind in kinds.items() if kind in (int, bool)]
    return numbers if len(numbers) == 1 and all(kind in (int, bool, str) for kind in kinds.values()) else []


def _unteachable(metric: JudgedMetric, step: str, why: str) -> ConfigurationError:
    return ConfigurationError(
        f"{metric.name} cannot be fitted: its step {step} cannot be taught by a label of the whole sample: {why}"
    )


async def labelled_samples_of(metric: JudgedMetric, labels: Sequence[AnnotatedSample]) -> LabelledSamples:
    """Return the labels that can teach a metric. No judge is called.

    Raises:
        ConfigurationError: the metric has no verdict step, or asks it several times about one sample; or a label is outside
            the metric's scale.
    """
    step = verdict_step(metric)
    samples, seen, left_out = list[TuningSample](), set[str](), Counter[str]()
    for label, verdict in zip(labels, _verdicts(metric, labels), strict=True):
        if label.sample is None:
            left_out["the label has no sample"] += 1
        elif (evidence := await _shown(metric, label.sample)) is None:
            left_out[f"{metric.name} asks nothing about such a sample"] += 1
        elif (shown := fenced(evidence)) in seen:
            left_out["an equal sample comes before it, and the same sample may not teach and test"] += 1
        else:
            seen.add(shown)
            example = _demonstration(step, label, evidence, verdict) if len(shown) <= _MOST_SHOWN else None
            group = ("line", label.line) if label.group is None else ("group", label.group)
            samples.append(TuningSample(label.sample, evidence, verdict, group, example))
    notes = [f"{count} of {len(labels)} labels are left out: {why}" for why, count in left_out.items()]
    long = sum(labelled.example is None for labelled in samples)
    if long:
        notes.append(f"{long} samples are no demonstrations: longer than {_MOST_SHOWN:,} characters")
    return LabelledSamples(step, tuple(samples), tuple(notes))


def _demonstration(step: VerdictStep, label: AnnotatedSample, evidence: Mapping[str, Any], verdict: int) -> Example:
    comment = label.label.comment if label.label else None
    output: dict[str, Any] = {step.reason: comment} if step.reason and comment else {}
    return Example(evidence, {**output, step.verdict: verdict})


def _verdicts(metric: JudgedMetric, labels: Sequence[AnnotatedSample]) -> list[int]:
    verdicts, faults = list[int](), list[str]()
    for label in labels:
        try:
            verdicts.append(_verdict(label.human, metric.scale))
        except ConfigurationError as error:
            faults.append(f"  line {label.line}: {error}")
    if faults:
        more = [f"  and {len(faults) - _NAMED} more"] if len(faults) > _NAMED else []
        raise ConfigurationError("\n".join([f"labels outside {metric.name}'s scale:", *faults[:_NAMED], *more]))
    return verdicts


def _verdict(human: HumanValue, scale: Scale) -> int:
    """Return a human value on the judge's scale: 0 or 1 for a binary metric, otherwise the grade."""
    if scale.kind == "binary":
        return int(passes(human, scale) == (scale.direction == "higher"))
    if isinstance(human, bool | str) or human != int(human):
        raise ConfigurationError(f"the judge gives grades, so a label is a grade, a whole number; this is {human!r}")
    if scale.range is not None and not scale.range[0] <= human <= scale.range[1]:
        raise ConfigurationError(f"{human:g} is not on the scale, {scale.range[0]:g} to {scale.range[1]:g}")
    return int(human)


class _Listening:
    """A judge that records each prompt and raises an error instead of an answer."""

    model = "none"

    def __init__(self) -> None:
        self.prompts: list[Prompt] = []

    async def ask(self, prompt: Prompt) -> Reply:
        self.prompts.append(prompt)
        raise JudgeError(f"{prompt.step}: no judge was asked")


async def _shown(metric: JudgedMetric, sample: Sample) -> Mapping[str, Any] | None:
    """Return the evidence that the judge would be shown for a sample; None if the metric would not call the judge.

    Raises:
        ConfigurationError: the metric would ask about several parts of the sample.
    """
    judge = _Listening()
    with asked_by(ScoreContext()):  # no budget pays for these questions
        await metric.with_changes(judge=judge).score(sample)
    different = {fenced(prompt.evidence): prompt for prompt in judge.prompts}
    if len(different) > 1:
        step = judge.prompts[0].step
        raise _unteachable(metric, step, f"it is asked about {len(different)} parts of one sample")
    # The evidence is converted to its form in a file: a subclass of str (Passages) becomes a plain text.
    documents = [json.loads(json.dumps(prompt.evidence, default=str)) for prompt in different.values()]
    return documents[0] if documents else None


_KEYS = ("metric", "fitted_to", "prompts")
_MADE_BY = "make it by `spanscore tune` or `spanscore adapt`"


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptsFile:
    """The base of results whose fields are the content of a file for ``prompts={"file": path}``.

    Attributes:
        metric: the metric with the prompts of the file.
    """

    metric: Any

    def save(self, path: str | Path) -> None:
        """Write the file, which is replaced if it exists.

        Raises:
            ConfigurationError: the file cannot be written.
        """
        with writing(path):
            text = json.dumps(self.as_json(), ensure_ascii=False, indent=2) + "\n"
            Path(path).write_bytes(text.encode("utf-8", "replace"))  # the judge reads a lone surrogate as ?, too

    def as_json(self) -> dict[str, Any]:
        """Return the content of the file as plain values."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: _plain(value) for name, value in values.items()} | {"metric": self.metric.name}


def _plain(value: Any) -> Any:
    return {**value._asdict(), "after": value.after, "p": value.p} if isinstance(value, Paired) else value


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted(PromptsFile):
    """The result of fitting a judge to human labels. It can be printed, and written to a file for ``prompts: {file: …}``.

    Attributes:
        metric: the metric to use from now on; the unchanged metric if no candidate is kept.
        kept: whether the best candidate was significantly better on the test labels.
        step: name of the step that was taught.
        fitted_to: hash of the step's built-in instruction.
        prompts: the parameter ``prompts`` of ``metric``; empty = built-in prompts. Demonstrations are content of samples.
        evaluator_version: evaluator version of ``metric``.
        evaluator_version_before: evaluator version of the metric before the fit; equal if no candidate is kept.
        labels: numbers of labels for the demonstrations, for the selection and for the test.
        candidates: number of candidates tried.
        chosen: counts of the best candidate on the selection labels, which are too optimistic; None if no candidate was better.
        tested: counts of the same candidate on the test labels; None if no candidate reached the test.
        judge_calls: number of paid judge calls; cached answers are not counted.
        cost_usd: cost in USD of the calls with a known price; None if no price is known.
        notes: limits of the result, one sentence each.
    """

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

    def __str__(self) -> str:
        return "\n".join([self._verdict(), *self._way(), *self.notes, *self._sent()])

    def _verdict(self) -> str:
        name, tested = self.metric.name, self.tested
        if tested is None:
            return (
                f"{name}: not kept, unchanged. None of {self.candidates} candidates was right more often than the original "
                "metric."
            )
        counts = (
            f"On {tested.labels} held-out labels, the chosen candidate was right on {tested.after} and the original metric on "
            f"{tested.before} ({tested.gained} gained, {tested.lost} lost, p = {tested.p:.2g}"
        )
        if self.kept:
            return f"{name}: kept. {counts})."
        needed = tested.labels_needed
        more = "The candidate was right no more often there, so more labels would show no gain."
        if needed is not None:
            more = f"About {ceil(needed / 10) * 10:,} labels in all would show such a gain, four times out of five."
        return f"{name}: not kept, unchanged. {counts}; at most {ALPHA:g} is required). {more}"

    def _way(self) -> Iterable[str]:
        first, second, third = self.labels
        yield f"Labels: {first} for demonstrations, {second} to select among {self.candidates} candidates, {third} held out."
        if self.chosen is not None:
            yield (
                f"On the {self.chosen.labels} selection labels: {self.chosen.after} right instead of {self.chosen.before}. "
                "This figure is too optimistic, because the candidate was selected on these labels."
            )
        cost = "" if self.cost_usd is None else f", {format_usd(self.cost_usd)} USD"
        yield f"{self.judge_calls:,} judge calls{cost}."
        if self.kept:
            yield f"Its scores have a new evaluator version: {self.evaluator_version_before} → {self.evaluator_version}."

    def _sent(self) -> Iterable[str]:
        """Yield the new instruction and demonstrations, so that the reader can check them before they are sent."""
        change: Mapping[str, Any] = self.prompts.get(self.step, {}) if self.kept else {}
        if "instruction" in change:
            yield f"\nSent with every question from now on, as instruction:\n{change['instruction']}"
        if examples := change.get("examples"):
            yield "\nSent with every question from now on, as demonstrations (they contain your users' texts):"
            yield from (json.dumps(example, ensure_ascii=False) for example in examples)


def prompts_in(path: Any, metric: str, own: Sequence[Step[Any]]) -> Mapping[str, Any]:
    """Read the parameter ``prompts`` of a metric from the file of a ``Fitted`` or an ``Adapted``.

    The log has a line if the file has a translation that no person has reviewed.

    Args:
        path: path of the file as the user gave it.
        metric: name of the metric to be made.
        own: the metric's steps with the built-in prompts.

    Raises:
        ConfigurationError: the file cannot be read, has another format, or was made for another metric, step or definition.
    """
    if not isinstance(path, str | Path):
        raise ConfigurationError(
            f"prompts.file is {path!r}; it is the path of a file that `spanscore tune` or `spanscore adapt` wrote"
        )
    content = _read(path)
    if content["metric"] != metric:
        raise ConfigurationError(f"prompts.file: {path} was fitted to {content['metric']!r}, not to {metric!r}")
    adapted = "language" in content
    digests = content["fitted_to"] if adapted else {content["step"]: content["fitted_to"]}
    _refuse_changed(f"prompts.file: {path}", metric, {step.name: step for step in own}, digests, adapted=adapted)
    if adapted and not content["reviewed"]:
        log_once(
            f"unreviewed {path}",
            f'{path}: the translation of {metric} is not reviewed; read it, then write "reviewed": true in the file',
        )
    prompts: Mapping[str, Any] = content["prompts"]
    return prompts


def _refuse_changed(
    file: str, metric: str, steps: Mapping[str, Step[Any]], digests: Mapping[str, str], *, adapted: bool
) -> None:
    # a fit changes one step, a translation changes all steps
    missing = [name for name in steps if adapted and name not in digests]
    unknown = [name for name in digests if name not in steps]
    if missing or unknown:
        what = f"is of a step {unknown[0]!r}" if unknown else f"lacks the step {missing[0]!r}"
        raise ConfigurationError(f"{file} {what}; {metric} has {', '.join(steps)}")
    what, again = ("instruction or an example", "adapt") if adapted else ("instruction", "fit")
    for name, digest in digests.items():
        if digest_of(steps[name], examples=adapted) != digest:
            raise ConfigurationError(
                f"{file} was fitted to another definition of {metric}: the {what} of {name} has changed since; "
                f"{again} again, or take the change back"
            )


def digest_of(own: Step[Any], *, examples: bool = False) -> str:
    """Return a hash of a step's instruction, as labels made for one definition do not fit another.

    Args:
        own: the step with the built-in prompt.
        examples: whether the hash also covers the examples.
    """
    worked = [[example.evidence, example.output] for example in own.examples] if examples else []
    text = own.instruction + (json.dumps(worked, ensure_ascii=False, default=str) if worked else "")
    return blake2b(text.encode("utf-8", "replace"), digest_size=8).hexdigest()


def _read(path: str | Path) -> dict[str, Any]:
    try:
        held = json_in(Path(path).expanduser().read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigurationError(f"prompts.file: there is no file {path}; {_MADE_BY}") from None
    except OSError as error:
        raise ConfigurationError(f"prompts.file: {path} cannot be read: {error.strerror}") from None
    except ValueError as error:  # invalid JSON or invalid UTF-8; the error's text may quote the file
        raise ConfigurationError(f"prompts.file: {path} is no JSON ({type(error).__name__}); {_MADE_BY}") from None
    if not isinstance(held, dict) or any(key not in held for key in _KEYS) or not isinstance(held["prompts"], dict):
        raise ConfigurationError(f"prompts.file: {path} is no fitted metric; {_MADE_BY}")
    of_steps = isinstance(held["fitted_to"], dict)
    if of_steps != ("language" in held) or of_steps == ("step" in held):
        raise ConfigurationError(f"prompts.file: {path} is no fitted metric; {_MADE_BY}")
    if of_steps and not isinstance(held.get("reviewed"), bool):
        raise ConfigurationError(f"prompts.file: {path}: reviewed is {held.get('reviewed')!r}; it is true or false")
    return held
