"""The data of a fit: split labels, demonstrations, the test of a candidate, its result, and files of prompts."""

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

# Labels are split into three parts. Demonstrations come from the first part, the best candidate is chosen on the second part,
# and a test on the third part decides, once, whether it is kept. Selection inflates the winner's result on the selection
# labels: with 16 candidates without true gain, one looked better in nine of ten simulated runs, and a test on those labels
# would have kept it in up to a fifth of the runs (``benchmarks/fitting.md``).

ALPHA = 0.05
"""Largest p of a significant gain. So at most one in twenty metrics without a gain is changed."""
_SHARES = (0.30, 0.35, 0.35)
"""Shares of the labels for the demonstrations, for the selection and for the test."""
_POWER = 0.8
"""Probability with which ``labels_needed`` labels show a gain."""
_DRAWS_PER_SET = 20
"""Largest number of random draws per set of demonstrations, because a draw may repeat an earlier set."""

Agreements: TypeAlias = Sequence[bool | None]
"""Whether judge and human agree, one value per label; None if the judge gave no verdict."""


class Paired(NamedTuple):
    """Counts of right verdicts of an unchanged and a changed judge on the same labels.

    Attributes:
        labels: number of labels on which the unchanged judge gave a verdict. If the changed judge gave no verdict on such a
            label, it counts as wrong.
        before: number of labels that the unchanged judge got right.
        gained: number of labels that only the changed judge got right.
        lost: number of labels that only the unchanged judge got right.
    """

    labels: int
    before: int
    gained: int
    lost: int

    @classmethod
    def of(cls, before: Agreements, after: Agreements) -> Paired:
        """Count the agreements on the same labels in the same order."""
        pairs = [(was, bool(now)) for was, now in zip(before, after, strict=True) if was is not None]
        return cls(len(pairs), sum(was for was, _ in pairs), pairs.count((False, True)), pairs.count((True, False)))

    @property
    def after(self) -> int:
        """Number of labels that the changed judge got right."""
        return self.before + self.gained - self.lost

    @property
    def p(self) -> float:
        """p of McNemar's exact one-sided test: the probability of so many gains, or more, if a loss is as likely as a gain."""
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
        groups: group of each label, such as its session. Turns of one conversation are too similar to be both in the part for
            demonstrations and in the part for the test.
    """
    members: defaultdict[Hashable, list[int]] = defaultdict(list)
    for index, group in enumerate(groups):
        members[group].append(index)
    shuffled = list(members.values())
    Random(seed).shuffle(shuffled)
    parts: tuple[list[int], list[int], list[int]] = ([], [], [])
    for indices in shuffled:
        missing = [share * len(groups) - len(part) for share, part in zip(_SHARES, parts, strict=True)]
        parts[missing.index(max(missing))].extend(indices)
    return parts


def demonstration_sets(verdicts: Sequence[int], size: int, number: int, seed: int) -> list[tuple[int, ...]]:
    """Return distinct random sets of label indices, each as balanced over the verdicts as possible.

    In simulations, greedy search, and preferring labels that the judge got wrong, changed the true gain by at most .04.

    Args:
        verdicts: the human verdict of each label; a rare verdict is in every set, too.
        size: labels per set; a set is smaller if there are fewer labels.
        number: number of sets; fewer if there are not so many distinct sets.
    """
    rng, sets = Random(seed), dict[frozenset[int], tuple[int, ...]]()
    for _ in range(_DRAWS_PER_SET * number):
        drawn = _draw_balanced(verdicts, size, rng)
        sets.setdefault(frozenset(drawn), drawn)
        if len(sets) == number:
            break
    return [*sets.values()]


def _draw_balanced(verdicts: Sequence[int], size: int, rng: Random) -> tuple[int, ...]:
    by_verdict: defaultdict[int, list[int]] = defaultdict(list)
    for index in rng.sample(range(len(verdicts)), len(verdicts)):
        by_verdict[verdicts[index]].append(index)
    piles, drawn = [*by_verdict.values()], list[int]()
    while len(drawn) < min(size, len(verdicts)):
        drawn += [pile.pop() for pile in piles if pile]
    drawn = drawn[:size]
    rng.shuffle(drawn)
    return tuple(drawn)


def best_of(before: Agreements, candidates: Sequence[Agreements]) -> tuple[int, Paired] | None:
    """Return the index and the counts of the candidate with the most correct labels; None if no candidate beats ``before``."""
    counts = [Paired.of(before, after) for after in candidates]
    best = max(range(len(counts)), key=lambda index: counts[index].after, default=None)
    return None if best is None or counts[best].after <= counts[best].before else (best, counts[best])


Prompts: TypeAlias = dict[str, dict[str, Any]]
"""A metric's parameter ``prompts``; empty = the metric's built-in prompts."""
_MAX_DEMONSTRATION_CHARS = 8_000
"""Maximum length of a demonstration in characters, because the judge is paid for reading it with every later question."""
_MAX_FAULTS_LISTED = 5


@dataclass(frozen=True, slots=True)
class VerdictStep:
    """The only step of a metric. Its answer is a verdict on the whole sample.

    Attributes:
        in_force: the step with the prompt in force.
        built_in: the step with the metric's built-in prompt.
        verdict: name of the answer field with the verdict, a whole number.
        reason: name of the answer field with the judge's reason; None if the answer has no text field.
    """

    in_force: Step[Any]
    built_in: Step[Any]
    verdict: str
    reason: str | None

    @property
    def prompts_in_force(self) -> Prompts:
        """The parameter ``prompts`` that replaces the built-in prompt by the prompt in force."""
        return self.prompts(self.in_force.examples)

    def prompts(self, examples: Sequence[Example], instruction: str | None = None) -> Prompts:
        """Return the parameter ``prompts`` with these demonstrations; ``instruction`` None = the instruction in force."""
        text = self.in_force.instruction if instruction is None else instruction
        change: dict[str, Any] = {} if text == self.built_in.instruction else {"instruction": text}
        if tuple(examples) != self.built_in.examples:
            change["examples"] = [{"evidence": example.evidence, "output": example.output} for example in examples]
        return {self.built_in.name: change} if change else {}


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


def verdict_step(metric: JudgedMetric) -> VerdictStep:
    """Return the metric's only step, which labels of whole samples can teach.

    Raises:
        ConfigurationError: the metric has several steps, its values are continuous, or an answer has no verdict on the sample.
            The message names the step.
    """
    without = next((question for question in metric.questions if not _verdict_fields(question)), None)
    if without is not None:
        fields = ", ".join(without.output.model_fields)
        raise _cannot_be_fitted(metric, without.name, f"its answer ({fields}) holds no verdict on the sample")
    if len(metric.questions) != 1:
        others = " and ".join(question.name for question in metric.questions[:-1]) or "no step"
        name = metric.questions[-1].name if metric.questions else "nothing"
        raise _cannot_be_fitted(
            metric, name, f"a label is about the whole sample, not one of several steps (others: {others})"
        )
    (step,) = metric.questions
    if metric.scale.kind == "continuous":
        raise _cannot_be_fitted(
            metric, step.name, "the metric's value is computed from verdicts, and is no verdict itself"
        )
    texts = [name for name, field in step.output.model_fields.items() if field.annotation is str]
    return VerdictStep(metric.steps[step.name], step, _verdict_fields(step)[0], texts[0] if texts else None)


def _verdict_fields(question: Step[Any]) -> list[str]:
    """Return the name of the only whole-number field if all other fields are texts; otherwise an empty list."""
    types = {name: field.annotation for name, field in question.output.model_fields.items()}
    numbers = [name for name, kind in types.items() if kind in (int, bool)]
    return numbers if len(numbers) == 1 and all(kind in (int, bool, str) for kind in types.values()) else []


def _cannot_be_fitted(metric: JudgedMetric, step: str, why: str) -> ConfigurationError:
    return ConfigurationError(
        f"{metric.name} cannot be fitted: its step {step} cannot be taught by a label of the whole sample: {why}"
    )


async def labelled_samples_of(
    metric: JudgedMetric, step: VerdictStep, labels: Sequence[AnnotatedSample]
) -> tuple[list[TuningSample], list[str]]:
    """Return the labels that can teach a step, with the evidence that its judge would see. No judge is called.

    The second part is a sentence for each reason for which labels are left out.

    Raises:
        ConfigurationError: the metric asks the step several times about one sample, or a label is outside its scale.
    """
    samples, seen, left_out = list[TuningSample](), set[str](), Counter[str]()
    for label, verdict in zip(labels, _human_verdicts(metric, labels), strict=True):
        if label.sample is None:
            left_out["the label has no sample"] += 1
        elif (evidence := await _find_evidence(metric, label.sample)) is None:
            left_out[f"{metric.name} asks nothing about such a sample"] += 1
        elif (shown := fenced(evidence)) in seen:
            left_out["an equal sample comes before it, and the same sample may not teach and test"] += 1
        else:
            seen.add(shown)
            example = _demonstration(step, label, evidence, verdict) if len(shown) <= _MAX_DEMONSTRATION_CHARS else None
            group = ("line", label.line) if label.group is None else ("group", label.group)
            samples.append(TuningSample(label.sample, evidence, verdict, group, example))
    notes = [f"{count} of {len(labels)} labels are left out: {why}" for why, count in left_out.items()]
    long = sum(labelled.example is None for labelled in samples)
    if long:
        notes.append(f"{long} samples are no demonstrations: longer than {_MAX_DEMONSTRATION_CHARS:,} characters")
    return samples, notes


def _demonstration(step: VerdictStep, label: AnnotatedSample, evidence: Mapping[str, Any], verdict: int) -> Example:
    comment = label.label.comment if label.label else None
    output: dict[str, Any] = {step.reason: comment} if step.reason and comment else {}
    return Example(evidence, {**output, step.verdict: verdict})


def _human_verdicts(metric: JudgedMetric, labels: Sequence[AnnotatedSample]) -> list[int]:
    verdicts, faults = list[int](), list[str]()
    for label in labels:
        try:
            verdicts.append(_human_verdict(label.human, metric.scale))
        except ConfigurationError as error:
            faults.append(f"  line {label.line}: {error}")
    if faults:
        more = [f"  and {len(faults) - _MAX_FAULTS_LISTED} more"] if len(faults) > _MAX_FAULTS_LISTED else []
        raise ConfigurationError(
            "\n".join([f"labels outside {metric.name}'s scale:", *faults[:_MAX_FAULTS_LISTED], *more])
        )
    return verdicts


def _human_verdict(human: HumanValue, scale: Scale) -> int:
    """Return a human value on the judge's scale: 0 or 1 for a binary metric, otherwise the grade."""
    if scale.kind == "binary":
        return int(passes(human, scale) == (scale.direction == "higher"))
    if isinstance(human, bool | str) or human != int(human):
        raise ConfigurationError(f"the judge gives grades, so a label is a grade, a whole number; this is {human!r}")
    if scale.range is not None and not scale.range[0] <= human <= scale.range[1]:
        raise ConfigurationError(f"{human:g} is not on the scale, {scale.range[0]:g} to {scale.range[1]:g}")
    return int(human)


class _RecordingJudge:
    """A judge that records each prompt and raises an error instead of answering."""

    model = "none"

    def __init__(self) -> None:
        self.prompts: list[Prompt] = []

    async def ask(self, prompt: Prompt) -> Reply:
        self.prompts.append(prompt)
        raise JudgeError(f"{prompt.step}: no judge was asked")


async def _find_evidence(metric: JudgedMetric, sample: Sample) -> Mapping[str, Any] | None:
    """Return the evidence that a metric would show its judge for a sample; None if it would not call the judge."""
    judge = _RecordingJudge()
    with asked_by(ScoreContext()):  # no budget pays for these questions
        await metric.with_changes(judge=judge).score(sample)
    by_text = {fenced(prompt.evidence): prompt.evidence for prompt in judge.prompts}
    if len(by_text) > 1:
        step = judge.prompts[0].step
        raise _cannot_be_fitted(metric, step, f"it is asked about {len(by_text)} parts of one sample")
    # The evidence is converted to its form in a file: a subclass of str (Passages) becomes a plain text.
    return next((json.loads(json.dumps(evidence, default=str)) for evidence in by_text.values()), None)


_KEYS = ("metric", "fitted_to", "prompts")
_MADE_BY = "make it by `spanscore tune` or `spanscore adapt`"


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptsFile:
    """Base class of ``Fitted`` and ``Adapted``: their fields are the content of a file for ``prompts={"file": path}``.

    Attributes:
        metric: the metric with the prompts of the file.
    """

    metric: Any

    def save(self, path: str | Path) -> None:
        """Write the file; an existing file is replaced.

        Raises:
            ConfigurationError: the file cannot be written.
        """
        with writing(path):
            text = json.dumps(self.as_json(), ensure_ascii=False, indent=2) + "\n"
            Path(path).write_bytes(text.encode("utf-8", "replace"))  # the judge reads a lone surrogate as ?, too

    def as_json(self) -> dict[str, Any]:
        """Return the content of the file as plain values."""
        values = {field.name: getattr(self, field.name) for field in fields(self)} | {"metric": self.metric.name}
        for name, value in values.items():
            if isinstance(value, Paired):
                values[name] = {**value._asdict(), "after": value.after, "p": value.p}
        return values


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted(PromptsFile):
    """The result of fitting a judge to human labels. It can be printed, and written to a file for ``prompts: {file: …}``.

    Attributes:
        metric: the metric to use from now on; the unchanged metric if no candidate is kept.
        kept: whether the best candidate was significantly better on the test labels.
        step: name of the metric's step.
        fitted_to: hash of the step's built-in instruction.
        prompts: the parameter ``prompts`` of ``metric``; empty = built-in prompts. Demonstrations are content of samples.
        evaluator_version: evaluator version of ``metric``.
        evaluator_version_before: evaluator version of the metric before the fit; equal if no candidate is kept.
        labels: number of labels for the demonstrations, for the selection and for the test.
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
        return "\n".join([self._decision(), *self._details(), *self.notes, *self._new_prompt()])

    def _decision(self) -> str:
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

    def _details(self) -> Iterable[str]:
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

    def _new_prompt(self) -> Iterable[str]:
        """Yield the new instruction and demonstrations, so that the reader can check them before they are sent."""
        change: Mapping[str, Any] = self.prompts.get(self.step, {}) if self.kept else {}
        if "instruction" in change:
            yield f"\nSent with every question from now on, as instruction:\n{change['instruction']}"
        if examples := change.get("examples"):
            yield "\nSent with every question from now on, as demonstrations (they contain your users' texts):"
            yield from (json.dumps(example, ensure_ascii=False) for example in examples)


def prompts_in(path: Any, metric: str, steps: Sequence[Step[Any]]) -> Mapping[str, Any]:
    """Read the parameter ``prompts`` of a metric from the file of a ``Fitted`` or an ``Adapted``.

    If the file has a translation that no person has reviewed, the log has a line about it.

    Raises:
        ConfigurationError: the file cannot be read, has another format, or is for another metric, step or definition.
    """
    if not isinstance(path, str | Path):
        raise ConfigurationError(
            f"prompts.file is {path!r}; it is the path of a file that `spanscore tune` or `spanscore adapt` wrote"
        )
    content = _read_file(path)
    if content["metric"] != metric:
        raise ConfigurationError(f"prompts.file: {path} was fitted to {content['metric']!r}, not to {metric!r}")
    adapted = "language" in content
    digests = content["fitted_to"] if adapted else {content["step"]: content["fitted_to"]}
    _check_definition(f"prompts.file: {path}", metric, {step.name: step for step in steps}, digests, adapted=adapted)
    if adapted and not content["reviewed"]:
        log_once(
            f"unreviewed {path}",
            f'{path}: the translation of {metric} is not reviewed; read it, then write "reviewed": true in the file',
        )
    prompts: Mapping[str, Any] = content["prompts"]
    return prompts


def _check_definition(
    file: str, metric: str, steps: Mapping[str, Step[Any]], digests: Mapping[str, str], *, adapted: bool
) -> None:
    """Raise a ConfigurationError if the file was made for other steps, or for other built-in prompts of these steps."""
    # A fit changes one step, a translation all steps.
    missing = [name for name in steps if adapted and name not in digests]
    unknown = [name for name in digests if name not in steps]
    if missing or unknown:
        fault = f"is of a step {unknown[0]!r}" if unknown else f"lacks the step {missing[0]!r}"
        raise ConfigurationError(f"{file} {fault}; {metric} has {', '.join(steps)}")
    part, verb = ("instruction or an example", "adapt") if adapted else ("instruction", "fit")
    for name, digest in digests.items():
        if digest_of(steps[name], examples=adapted) != digest:
            raise ConfigurationError(
                f"{file} was fitted to another definition of {metric}: the {part} of {name} has changed since; "
                f"{verb} again, or take the change back"
            )


def digest_of(step: Step[Any], *, examples: bool = False) -> str:
    """Return a hash of a step's built-in instruction, because labels for one definition do not fit another.

    Args:
        examples: whether the hash also covers the examples.
    """
    worked = [[example.evidence, example.output] for example in step.examples] if examples else []
    text = step.instruction + (json.dumps(worked, ensure_ascii=False, default=str) if worked else "")
    return blake2b(text.encode("utf-8", "replace"), digest_size=8).hexdigest()


def _read_file(path: str | Path) -> dict[str, Any]:
    try:
        content = json_in(Path(path).expanduser().read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigurationError(f"prompts.file: there is no file {path}; {_MADE_BY}") from None
    except OSError as error:
        raise ConfigurationError(f"prompts.file: {path} cannot be read: {error.strerror}") from None
    except ValueError as error:  # invalid JSON or invalid UTF-8; the error's text may quote the file
        raise ConfigurationError(f"prompts.file: {path} is no JSON ({type(error).__name__}); {_MADE_BY}") from None
    if (
        not isinstance(content, dict)
        or any(key not in content for key in _KEYS)
        or not isinstance(content["prompts"], dict)
    ):
        raise ConfigurationError(f"prompts.file: {path} is no fitted metric; {_MADE_BY}")
    of_steps = isinstance(content["fitted_to"], dict)
    if of_steps != ("language" in content) or of_steps == ("step" in content):
        raise ConfigurationError(f"prompts.file: {path} is no fitted metric; {_MADE_BY}")
    if of_steps and not isinstance(content.get("reviewed"), bool):
        raise ConfigurationError(f"prompts.file: {path}: reviewed is {content.get('reviewed')!r}; it is true or false")
    return content
