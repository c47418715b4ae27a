"""``Preview``: the units that rules and rates would sample, and their cost. ``recent_preview`` covers a scorer's last units."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rich.console import Group

from spanscore import semconv
from spanscore.config.sampling import Rule
from spanscore.config.tree import ScorerSettings
from spanscore.core.job import BASE
from spanscore.core.printable import TextTable, format_count, format_number, format_usd, printable, printable_lines
from spanscore.core.terminal import as_plain
from spanscore.errors import ConfigurationError
from spanscore.judges.lexical.judge import is_offline
from spanscore.pipeline.decisions import RecentUnit
from spanscore.pipeline.sampling import DEFAULT_KEY, PreviewTally, SamplingCount, TakenUnit
from spanscore.wiring.accounts import models_of
from spanscore.wiring.metrics import checked_rates

if TYPE_CHECKING:
    from spanscore.wiring.build import Pipeline

_AMOUNTS: Final = ("taken", "expected", "judge calls", "tokens", "USD")
_LEFT_OUT: Final = "sampling excluded them when they began, so only their root, or its ids, is known"


class UnitCost(NamedTuple):
    """The cost of a metric for one unit or several; None if unknown."""

    calls: float | None = None
    tokens: float | None = None
    usd: float | None = None

    def times(self, units: int) -> UnitCost:
        """Return the cost of several units; the cost of 0 units is 0, even if the cost is unknown."""
        if not units:
            return UnitCost(0, 0, 0.0)
        return UnitCost(*(None if amount is None else units * amount for amount in self))


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingPreview:
    """The units that a rule or a metric would sample.

    Attributes:
        name: name of the rule, ``base`` for the metrics' own rates; or of the metric.
        rate: rate of the rule, or the metric's own rate, [0, 1]; None if the metrics' rates differ.
        matched: number of units that the rule matches.
        taken: number of matched units that would be sampled, by their own random numbers. A unit that several rules match
            counts only for the rule with the largest rate.
        expected: expected number of sampled units among the matched units.
        unknown: number of units that may match or not. They count as unmatched: no other count of the row includes them.
        calls: judge calls for the sampled units; None if unknown.
        tokens: input and output tokens for the sampled units; None if unknown.
        usd: cost of the sampled units in US dollars; None if unknown, or a model has no price.
    """

    name: str
    rate: float | None
    matched: int
    taken: int
    expected: float
    unknown: int
    calls: float | None
    tokens: float | None
    usd: float | None

    @property
    def cells(self) -> tuple[str, ...]:
        """The cells of a row of a table, from ``taken`` on."""
        calls, tokens, usd = format_number(self.calls), format_number(self.tokens), format_usd(self.usd)
        return f"{self.taken:,}", f"{self.expected:,.1f}", calls, tokens, usd


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitPreview:
    """One unit that would be sampled, without its content.

    Attributes:
        trace_id: 32 hex digits.
        span_id: 16 hex digits.
        name: name of the workflow, agent or model; empty: unknown.
        began: ISO 8601, UTC; None if unknown.
        taken: metric → ``{"rule": name, "probability": among all traffic}``.
    """

    trace_id: str
    span_id: str
    name: str
    began: str | None
    taken: Mapping[str, Mapping[str, Any]]

    @property
    def why(self) -> str:
        """The rule that samples the unit, with its probability; a line for each if these differ between metrics."""
        by_rule = dict[str, list[str]]()
        for metric, decision in self.taken.items():
            by_rule.setdefault(f"{decision['rule']} {decision['probability']:.2g}", []).append(metric)
        if len(by_rule) == 1:
            return next(iter(by_rule))
        return "\n".join(f"{rule}: {', '.join(metrics)}" for rule, metrics in by_rule.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """The ended units that rules and rates would sample; ``print`` shows tables. No judge was called.

    Attributes:
        units: number of units.
        taken: units that at least one metric would sample.
        rules: the metrics' own rates, and each rule.
        metrics: each metric.
        named: at most ten of the sampled units, at least one of each rule.
        notes: remarks on the numbers, a sentence each.
    """

    units: int
    taken: int
    rules: Sequence[SamplingPreview]
    metrics: Sequence[SamplingPreview]
    named: Sequence[UnitPreview] = ()
    notes: Sequence[str] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the preview as plain values."""
        return asdict(self)

    def __str__(self) -> str:
        return as_plain(self)

    def __rich__(self) -> Any:
        return Group(*self.render())

    def render(self) -> Iterator[Any]:
        """Yield the tables, and a line for each note."""
        yield f"{self.taken:,} of {format_count(self.units, 'unit')} would be scored; no judge was asked"
        rules = []
        for rule in self.rules:
            unknown = f"\n{rule.unknown:,} unknown" if rule.unknown else ""
            rules.append((printable(rule.name), _rate_cell(rule), f"{rule.matched:,}{unknown}", *rule.cells))
        metrics = [(metric.name, _rate_cell(metric), *metric.cells) for metric in self.metrics]
        yield TextTable(("rule", "rate", "matched", *_AMOUNTS), rules, title="by rule; base is a metric's own rate")
        yield TextTable(("metric", "rate", *_AMOUNTS), metrics, title="by metric")
        if self.named:
            units = []
            for unit in self.named:
                began = "–" if unit.began is None else unit.began.replace("T", " ").removesuffix("Z")
                units.append((unit.trace_id, printable(unit.name) or "–", began, printable_lines(unit.why)))
            yield TextTable(("trace id", "run", "began (UTC)", "by"), units, title="some of them")
        yield from self.notes


def _rate_cell(preview: SamplingPreview) -> str:
    return "–" if preview.rate is None else f"{preview.rate:g}"


def preview_of(
    tally: PreviewTally,
    *,
    rates: Mapping[str, float],
    rules: Sequence[Rule],
    costs: Mapping[str, UnitCost],
    notes: Iterable[str] = (),
) -> Preview:
    """Return the units that a tally counted by these rates and rules, with their cost.

    Args:
        tally: the counts.
        rates: metric → its own rate.
        rules: the rules.
        costs: metric → cost of one unit; the cost of a missing metric is unknown.
        notes: sentences in addition to the sentences about the counts.
    """
    own = {*rates.values()}
    rate_of = {**{rule.name: rule.rate for rule in rules}, BASE: own.pop() if len(own) == 1 else None}
    by_rule = []
    for name, count in tally.rules.items():
        scores = {metric: tally.scores[name, metric] for metric in rates}
        by_rule.append(_preview_count(name, rate_of[name], count, scores, costs))
    return Preview(
        units=tally.units,
        taken=tally.taken,
        rules=tuple(by_rule),
        metrics=tuple(
            _preview_count(name, rates[name], count, {name: count.taken}, costs)
            for name, count in tally.metrics.items()
        ),
        named=tuple(map(_build_unit_preview, tally.named())),
        notes=(*_describe_unknown(tally, rules), *notes),
    )


def _preview_count(
    name: str, rate: float | None, count: SamplingCount, scores: Mapping[str, int], costs: Mapping[str, UnitCost]
) -> SamplingPreview:
    """Return the row of a rule or metric; ``scores``: metric → number of scores. A cost with an unknown part is unknown."""
    parts = [costs.get(metric, UnitCost()).times(units) for metric, units in scores.items()]
    columns = ([part.calls for part in parts], [part.tokens for part in parts], [part.usd for part in parts])
    total = UnitCost(*(None if None in column else sum(filter(None, column)) for column in columns))
    return SamplingPreview(
        name=name,
        rate=rate,
        matched=count.matched,
        taken=count.taken,
        expected=round(count.expected, 3),
        unknown=count.unknown,
        **total._asdict(),
    )


def _build_unit_preview(unit: TakenUnit) -> UnitPreview:
    began = None if unit.began_ns is None else datetime.fromtimestamp(unit.began_ns / 1e9, UTC)
    return UnitPreview(
        trace_id=f"{unit.key.trace_id:032x}",
        span_id=f"{unit.key.span_id:016x}",
        name=unit.name,
        began=None if began is None else began.isoformat(timespec="seconds").replace("+00:00", "Z"),
        taken={metric: {"rule": rule, "probability": share} for metric, (rule, share) in unit.taken.items()},
    )


def _describe_unknown(tally: PreviewTally, rules: Sequence[Rule]) -> Iterator[str]:
    for name, count in tally.rules.items():
        if not count.unknown:
            continue
        why = dict[str, None]()
        for rule in rules:
            if rule.name != name:
                continue
            if lacking := ", ".join(tally.unlisted(rule)):
                why[f"metadata {lacking} are not kept; capture.metadata: [{lacking}] keeps them"] = None
            elif rule.when.score is not None:
                why[f"their score of {rule.when.score.metric}, which it reads, is unknown"] = None
            else:
                why[_LEFT_OUT] = None
        yield (
            f"{name}: it is unknown whether the rule matches {count.unknown:,} units, and they are counted as if it did not: "
            f"{'; '.join(why)}"
        )


# --- the last units of a scorer -------------------------------------------------------------------------------------


def tally_of(
    settings: ScorerSettings,
    rates: Mapping[str, float],
    rules: Sequence[Rule],
    metadata: Sequence[str] | None = None,
    service: Callable[[], str] = str,
) -> PreviewTally:
    """Return an empty tally that decides as a scorer with these settings.

    ``metadata`` are the metadata keys that the units have; None = all keys. ``service`` returns the name of this process's
    service.
    """
    return PreviewTally(
        rates,
        rules,
        key=DEFAULT_KEY if settings.sampling.key is None else settings.sampling.key,
        head_sampling_rate=settings.sampling.head_sampling_rate,
        metadata=metadata,
        service=service,
    )


def recent_preview(
    pipeline: Pipeline, rules: Sequence[Rule] | None, rate: float | None, rates: Mapping[str, float] | None
) -> Preview:
    """Return the units that rules and rates would sample among the last closed units; see ``OnlineScorer.preview``.

    Raises:
        ConfigurationError: a rate is invalid, or for an unknown metric; or an entry of ``rules`` is not a rule.
    """
    chosen = pipeline.settings.sampling.rules if rules is None else tuple(rules)
    if strange := next((rule for rule in chosen if not isinstance(rule, Rule)), None):
        raise ConfigurationError(f"rules has {strange!r}; write [Rule(rate=0.5, when=RuleCondition(slower_than=2.0))]")
    checked, in_force = checked_rates(rates or {}, pipeline.of_units), pipeline.settings.sampling
    recent = pipeline.recent_units
    own = {name: checked.get(name, in_force.rates_of(name)[0] if rate is None else rate) for name in pipeline.of_units}
    tally = tally_of(pipeline.settings, own, chosen, recent.metadata, pipeline.providers.service_name)
    for unit in recent.units():
        tally.add(unit.facts, _began_ns(unit))
    costs = {name: cost for name in pipeline.of_units if (cost := _cost_so_far(pipeline, name)) is not None}
    return preview_of(tally, rates=own, rules=chosen, costs=costs, notes=_notes(pipeline))


def _began_ns(unit: RecentUnit) -> int | None:
    """Return the approximate start of a unit, to some seconds, because a unit closes a little after its end."""
    return None if unit.closed_ns is None else unit.closed_ns - (unit.facts.duration_ns or 0)


def _notes(pipeline: Pipeline) -> Iterator[str]:
    if pipeline.pacer is not None:
        yield "budgets may lower the rates: these numbers leave that out"
    if pipeline.of_sessions:
        yield f"conversations are not previewed: {', '.join(pipeline.of_sessions)}"
    if pipeline.of_inner:
        yield f"inner units are not previewed: {', '.join(map(str, pipeline.of_inner))}"


def _cost_so_far(pipeline: Pipeline, name: str) -> UnitCost | None:
    """Return the mean cost per unit of a metric's judge so far; None if unknown."""
    metric = pipeline.of_units[name]
    if not models_of(metric) or is_offline(getattr(metric, "_judge", None)):
        return UnitCost(0, 0, 0.0)
    units = _count_asked(pipeline, name)
    # The sums of a metric with a second judge include that judge's cost.
    if pipeline.telemetry is None or name in pipeline.shadowing or not units:
        return None
    calls, tokens, usd = (
        _sum_by_model(name, pipeline.telemetry.sums(instrument))
        for instrument in (semconv.JUDGE_CALLS, semconv.JUDGE_TOKENS, semconv.JUDGE_COST)
    )
    if not calls:  # other processes called it
        return None
    is_priced = {*usd} >= {model for model, amount in tokens.items() if amount}
    per_unit = sum(usd.values()) / units if is_priced else None
    return UnitCost(sum(calls.values()) / units, sum(tokens.values()) / units, per_unit)


def _count_asked(pipeline: Pipeline, name: str) -> int:
    """Return the number of units for which a metric was attempted, because of sampling or a human label."""
    units = 0
    for source, part in pipeline.count_units().parts:
        if source != semconv.SOURCE_SHADOW:
            ended = part.outcomes.items()
            units += sum(count for (metric, outcome, _), count in ended if metric == name and not outcome.not_attempted)
    return units


def _sum_by_model(name: str, sums: Mapping[tuple[tuple[str, str], ...], float]) -> Mapping[str, float]:
    """Return model → the sum of an instrument for a metric."""
    totals = dict[str, float]()
    for labels, amount in sums.items():
        attributes = dict(labels)
        if attributes[semconv.EVALUATION_NAME] == name:
            model = attributes[semconv.REQUEST_MODEL]
            totals[model] = totals.get(model, 0.0) + amount
    return totals
