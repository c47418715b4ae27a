"""Tuned prompts: which demonstrations a step can be taught, which candidate is best, and the file of the result."""

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

# Labels are split in three. Demonstrations come from the first part, the candidate is chosen on the second, and the third
# decides, once, whether to keep it. The best of many looks better on the labels that it was chosen by: of 16 candidates
# without any true gain one did in 98–100 % of simulated runs, and a test on those same labels passed in 23 % of them.

ALPHA = 0.05
"""Largest p by which a gain counts as shown; so of metrics without any gain at most one in twenty is changed."""
_SHARES = (0.30, 0.35, 0.35)
_POWER = 0.8
_TRIES = 20

Answers: TypeAlias = Sequence[bool | None]
"""Label by label, whether the judge was right; None if it gave no verdict."""


class Paired(NamedTuple):
    """Two judges on the same labels: one as it is, and one that was changed.

    Attributes:
        labels: those on which the unchanged judge gave a verdict; where only the changed one gave none, it is wrong.
        before: how many the unchanged one got right.
        gained: how many only the changed one did.
        lost: how many only the unchanged one did.
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
        """How many the changed judge got right."""
        return self.before + self.gained - self.lost

    @property
    def p(self) -> float:
        """The p of McNemar's exact one-sided test: the probability of so many gains if each change is a toss of a coin."""
        changes = self.gained + self.lost
        return sum(comb(changes, gains) for gains in range(self.gained, changes + 1)) / (1 << changes)

    @property
    def shown(self) -> bool:
        """Whether the gain is shown."""
        return self.p <= ALPHA

    @property
    def labels_needed(self) -> int | None:
        """About how many labels, of all three parts, would show such a gain four times out of five; None without one.

        Source: Connor, "Sample size for testing differences in proportions for the paired-sample design" (1987), one-sided,
        with Fleiss's correction for continuity, as the test is exact.
        """
        if self.gained <= self.lost:
            return None
        changes, gain = (self.gained + self.lost) / self.labels, (self.gained - self.lost) / self.labels
        z_alpha, z_power = NormalDist().inv_cdf(1 - ALPHA), NormalDist().inv_cdf(_POWER)
        tested = ((z_alpha * sqrt(changes) + z_power * sqrt(changes - gain**2)) / gain) ** 2 + 1 / gain
        return ceil(tested / _SHARES[-1])


def split(groups: Sequence[Hashable], seed: int) -> tuple[list[int], list[int], list[int]]:
    """Return the places of labels in three parts of 30, 35 and 35 %, those of one group in the same part.

    Args:
        groups: of each label: turns of one conversation are too alike to be found on both sides.
        seed: of the dice.
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
    """Return different sets of places, drawn at random, each with as many of every verdict as there can be.

    Greedy search, and taking what the judge got wrong first, were within .04 of this in true gain wherever they were simulated.

    Args:
        verdicts: the right one of each label; a verdict that is rare stands in every set all the same.
        size: of each; smaller where there are not so many labels.
        number: of sets; fewer where there are not so many.
        seed: of the dice.
    """
    dice, found = Random(seed), dict[frozenset[int], tuple[int, ...]]()
    for _ in range(_TRIES * number):
        drawn = _balanced(verdicts, size, dice)
        found.setdefault(frozenset(drawn), drawn)
        if len(found) == number:
            break
    return [*found.values()]


def _balanced(verdicts: Sequence[int], size: int, dice: Random) -> tuple[int, ...]:
    by_verdict: defaultdict[int, list[int]] = defaultdict(list)
    for place in dice.sample(range(len(verdicts)), len(verdicts)):
        by_verdict[verdicts[place]].append(place)
    piles, drawn = [*by_verdict.values()], list[int]()
    while len(drawn) < min(size, len(verdicts)):
        drawn += [pile.pop() for pile in piles if pile]
    drawn = drawn[:size]
    dice.shuffle(drawn)
    return tuple(drawn)


def best_of(before: Answers, candidates: Sequence[Answers]) -> tuple[int, Paired] | None:
    """Return the place of the candidate that got most labels right, and how it did; None if none did better than before."""
    scored = [Paired.of(before, answers) for answers in candidates]
    best = max(range(len(scored)), key=lambda place: scored[place].after, default=None)
    return None if best is None or scored[best].after <= scored[best].before else (best, scored[best])


Prompts: TypeAlias = dict[str, dict[str, Any]]
"""A metric's parameter ``prompts``; empty = its own words."""
_MOST_SHOWN = 8_000
"""Characters of a demonstration: it is read, and paid for, with every later question."""
_NAMED = 5


@dataclass(frozen=True, slots=True)
class VerdictStep:
    """The one step of a metric that gives the verdict.

    Attributes:
        question: in the words in force.
        own: in the metric's own.
        verdict: field of its answer that holds the verdict, a whole number.
        reason: field that holds the judge's words; None if it has none.
    """

    question: Step[Any]
    own: Step[Any]
    verdict: str
    reason: str | None

    @property
    def prompts_in_force(self) -> Prompts:
        """The ``prompts`` that turn the metric's own words into the words in force."""
        return self.prompts(self.question.examples)

    def prompts(self, examples: Sequence[Example], instruction: str | None = None) -> Prompts:
        """Return what a metric takes as ``prompts``, to show these demonstrations; ``instruction`` None = the one in force."""
        words = self.question.instruction if instruction is None else instruction
        change: dict[str, Any] = {} if words == self.own.instruction else {"instruction": words}
        if tuple(examples) != self.own.examples:
            change["examples"] = [{"evidence": one.evidence, "output": one.output} for one in examples]
        return {self.own.name: change} if change else {}


@dataclass(frozen=True, slots=True)
class Lesson:
    """A sample whose right verdict is known.

    Attributes:
        evidence: what the judge is shown of it, as JSON.
        verdict: the human's, as the judge would give it.
        example: the same as a demonstration; None if it is too long for one.
    """

    sample: Sample
    evidence: Mapping[str, Any]
    verdict: int
    group: Hashable
    example: Example | None


@dataclass(frozen=True, slots=True)
class Lessons:
    """The lessons in labels.

    Attributes:
        notes: what was left out, and why, a sentence each.
    """

    step: VerdictStep
    lessons: tuple[Lesson, ...]
    notes: tuple[str, ...]


def verdict_step(metric: JudgedMetric) -> VerdictStep:
    """Return the step of a metric that a label can teach.

    Raises:
        ConfigurationError: it has several, or its answer holds no verdict on the sample; the message names the step.
    """
    without = next((question for question in metric.questions if not _verdict_fields(question)), None)
    if without is not None:
        fields = ", ".join(without.output.model_fields)
        raise _unteachable(metric, without.name, f"its answer ({fields}) holds no verdict on the sample")
    if len(metric.questions) != 1:
        others = " and ".join(question.name for question in metric.questions[:-1]) or "no step"
        name = metric.questions[-1].name if metric.questions else "nothing"
        raise _unteachable(metric, name, f"a label says nothing of each verdict of several ({others} beside it)")
    (own,) = metric.questions
    if metric.scale.kind == "continuous":
        raise _unteachable(metric, own.name, "the metric's value is made of its verdicts, and is none itself")
    texts = [name for name, kind in own.output.model_fields.items() if kind.annotation is str]
    return VerdictStep(metric.steps[own.name], own, _verdict_fields(own)[0], texts[0] if texts else None)


def _verdict_fields(question: Step[Any]) -> list[str]:
    """Return the one field that is a whole number, where all others are texts; none where it is otherwise."""
    kinds = {name: kind.annotation for name, kind in question.output.model_fields.items()}
    numbers = [name for name, kind in kinds.items() if kind in (int, bool)]
    return numbers if len(numbers) == 1 and all(kind in (int, bool, str) for kind in kinds.values()) else []


def _unteachable(metric: JudgedMetric, step: str, why: str) -> ConfigurationError:
    return ConfigurationError(
        f"{metric.name} cannot be fitted: its step {step} cannot be taught by a label of the whole sample: {why}"
    )


async def lessons_of(metric: JudgedMetric, labels: Sequence[AnnotatedSample]) -> Lessons:
    """Return the labels that can teach a metric. Asks nobody.

    Raises:
        ConfigurationError: the metric has no verdict step, or asks it several times about one sample; or a label is none of
            its scale's.
    """
    step = verdict_step(metric)
    lessons, seen, left_out = list[Lesson](), set[str](), Counter[str]()
    for label, verdict in zip(labels, _verdicts(metric, labels), strict=True):
        if label.sample is None:
            left_out["no sample stands beside the label"] += 1
        elif (evidence := await _shown(metric, label.sample)) is None:
            left_out[f"{metric.name} asks nothing about such a sample"] += 1
        elif (shown := fenced(evidence)) in seen:
            left_out["an equal sample stands before it, and may not teach and test at once"] += 1
        else:
            seen.add(shown)
            lessons.append(_lesson(step, label, label.sample, evidence, verdict))
    notes = [f"{count} of {len(labels)} labels are left out: {why}" for why, count in left_out.items()]
    long = sum(lesson.example is None for lesson in lessons)
    if long:
        notes.append(f"{long} samples are no demonstrations: longer than {_MOST_SHOWN:,} characters")
    return Lessons(step, tuple(lessons), tuple(notes))


def _lesson(
    step: VerdictStep, label: AnnotatedSample, sample: Sample, evidence: Mapping[str, Any], verdict: int
) -> Lesson:
    shown = fenced(evidence)
    comment = label.label.comment if label.label else None
    output: dict[str, Any] = {step.reason: comment} if step.reason and comment else {}
    example = Example(evidence, {**output, step.verdict: verdict})
    group: Hashable = ("line", label.line) if label.group is None else ("group", label.group)
    return Lesson(sample, evidence, verdict, group, example if len(shown) <= _MOST_SHOWN else None)


def _verdicts(metric: JudgedMetric, labels: Sequence[AnnotatedSample]) -> list[int]:
    found, faults = list[int](), list[str]()
    for label in labels:
        try:
            found.append(_verdict(label.human, metric.scale))
        except ConfigurationError as error:
            faults.append(f"  line {label.line}: {error}")
    if faults:
        more = [f"  and {len(faults) - _NAMED} more"] if len(faults) > _NAMED else []
        raise ConfigurationError(
            "\n".join([f"labels that are none of {metric.name}'s scale:", *faults[:_NAMED], *more])
        )
    return found


def _verdict(human: HumanValue, scale: Scale) -> int:
    """Return what a human said as the judge would say it: of a pass or fail 0 or 1, else the grade."""
    if scale.kind == "binary":
        return int(passes(human, scale) == (scale.direction == "higher"))
    if isinstance(human, bool | str) or human != int(human):
        raise ConfigurationError(f"the judge gives grades, so a label is a grade, a whole number; this is {human!r}")
    if scale.range is not None and not scale.range[0] <= human <= scale.range[1]:
        raise ConfigurationError(f"{human:g} is not on the scale, {scale.range[0]:g} to {scale.range[1]:g}")
    return int(human)


class _Listening:
    """A judge that says nothing, and remembers what it was asked."""

    model = "none"

    def __init__(self) -> None:
        self.heard: list[Prompt] = []

    async def ask(self, prompt: Prompt) -> Reply:
        self.heard.append(prompt)
        raise JudgeError(f"{prompt.step}: nobody was asked")


async def _shown(metric: JudgedMetric, sample: Sample) -> Mapping[str, Any] | None:
    """Return what the judge would be shown of a sample; None if it would not be asked.

    Raises:
        ConfigurationError: it would be asked about several things.
    """
    judge = _Listening()
    with asked_by(ScoreContext()):  # no budget pays for it
        await metric.with_changes(judge=judge).score(sample)
    different = {fenced(prompt.evidence): prompt for prompt in judge.heard}
    if len(different) > 1:
        step = judge.heard[0].step
        raise _unteachable(metric, step, f"it is asked about {len(different)} parts of one sample")
    # As it will stand in a file: a text that is more than a text (Passages) is a text.
    asked = [json.loads(json.dumps(prompt.evidence, default=str)) for prompt in different.values()]
    return asked[0] if asked else None


_KEYS = ("metric", "step", "fitted_to", "kept", "prompts")
_MADE_BY = "make it by `spanscore tune`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """The result of fitting a judge to human labels. ``print`` it; its file is for a metric's ``prompts: {file: …}``.

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
        cost_usd: of those with a known price; None if none is known.
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
        needed = tested.labels_needed
        more = "It was right no more often there: no gain that more labels would show."
        if needed is not None:
            more = f"About {ceil(needed / 10) * 10:,} labels in all would show such a gain, four times out of five."
        return f"{name}: not kept, unchanged; {how}, and {ALPHA:g} is asked. {more}"

    def _way(self) -> Iterable[str]:
        first, second, third = self.labels
        yield f"Labels: {first} for demonstrations, {second} for the choice, {third} for the test."
        if self.chosen is not None:
            yield (
                f"On those that it was chosen by, it was right on {self.chosen.after} instead of {self.chosen.before} of "
                f"{self.chosen.labels}: that is no promise, as the best of many looks better than it is."
            )
        cost = "" if self.cost_usd is None else f", {format_usd(self.cost_usd)} USD"
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


def fitted_prompts(path: Any, metric: str, own: Iterable[Step[Any]]) -> Mapping[str, Any]:
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


def digest_of(own: Step[Any]) -> str:
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
