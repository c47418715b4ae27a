"""Preview: which units rules and rates would take, at what cost; also of the last units of a scorer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from spanscore import semconv
from spanscore.config.sampling import Rule
from spanscore.config.tree import ScorerSettings
from spanscore.core.job import BASE
from spanscore.core.printable import TextTable, format_count, format_number, format_usd, printable, printable_lines
from spanscore.errors import ConfigurationError
from spanscore.judges.lexical.judge import is_offline
from spanscore.pipeline.decisions import RecentUnit
from spanscore.pipeline.sampling import DEFAULT_KEY, PreviewTally, TakenUnit, TakerCount
from spanscore.wiring.accounts import models_of
from spanscore.wiring.metrics import checked_rates

if TYPE_CHECKING:
    from spanscore.wiring.build import Pipeline

__all__ = [
    "NOTHING",
    "Preview",
    "TakerPreview",
    "UnitCost",
    "UnitPreview",
    "costs_so_far",
    "preview_of",
    "recent_preview",
    "tally_of",
]

# --- preview --------------------------------------------------------------------------------------------------------

# Preview: what rules and rates would take, and what that would cost, as a value and as small tables.


class UnitCost(NamedTuple):
    """What a metric costs for one unit, or for several; None of what nobody knows."""

    calls: float | None = None
    tokens: float | None = None
    usd: float | None = None

    def times(self, units: int) -> UnitCost:
        """Return what it costs for so many; of nothing, nothing."""
        if not units:
            return NOTHING
        return UnitCost(*(None if amount is None else units * amount for amount in self))


NOTHING: Final = UnitCost(0, 0, 0.0)
"""What a metric costs that asks no judge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TakerPreview:
    """What a rule takes, or a metric.

    Attributes:
        name: of the rule, ``base`` for the metrics' own rates; or of the metric.
        rate: of the rule, or the metric's own, [0, 1]; None where metrics differ.
        matched: units for which it is.
        taken: of them, those that it takes, with the dice that they have. By a rule: that no larger rate is for.
        expected: of them, how many that are on average.
        unknown: units of which it is not known whether the rule is for them; they are not among the others.
        calls: questions to judges about those that are taken; None where nobody knows.
        tokens: read and written; likewise.
        usd: None also where a model has no price.
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

    def as_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitPreview:
    """One unit that is taken; nothing of what it was given or gave.

    Attributes:
        trace_id: 32 hex digits; ``span_id``: 16.
        name: of the workflow, agent or model that was run; empty where it is not known.
        began: ISO 8601, UTC; None likewise.
        taken: metric → ``{"rule": name, "probability": of all traffic}``.
    """

    trace_id: str
    span_id: str
    name: str
    began: str | None
    taken: Mapping[str, Mapping[str, Any]]

    @property
    def why(self) -> str:
        """Which rule takes it with which probability, and for which metrics where that differs."""
        by_rule = dict[str, list[str]]()
        for metric, decision in self.taken.items():
            by_rule.setdefault(f"{decision['rule']} {decision['probability']:.2g}", []).append(metric)
        return (
            next(iter(by_rule))
            if len(by_rule) == 1
            else "\n".join(f"{rule}: {', '.join(of)}" for rule, of in by_rule.items())
        )

    def as_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What rules and rates would take of units that have ended; ``print`` it for its tables. No judge was asked.

    Attributes:
        units: that were looked at.
        taken: of them, those that some metric takes.
        rules: the metrics' own rates, and each rule.
        metrics: each of them.
        named: ten of the units that are taken, at most; each rule's are among them.
        notes: what must be known of the numbers, a sentence each.
    """

    units: int
    taken: int
    rules: Sequence[TakerPreview]
    metrics: Sequence[TakerPreview]
    named: Sequence[UnitPreview] = ()
    notes: Sequence[str] = ()

    def as_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return asdict(self)

    def __str__(self) -> str:
        from spanscore.core.terminal import as_plain

        return as_plain(self)

    def __rich__(self) -> Any:
        """Return the tables."""
        from rich.console import Group

        return Group(*self.render())

    def render(self) -> Iterator[Any]:
        """Yield the tables, and a line for each note."""
        yield f"{self.taken:,} of {format_count(self.units, 'unit')} would be scored; no judge was asked"
        yield _by_rule(self.rules)
        yield _by_metric(self.metrics)
        if self.named:
            yield _by_name(self.named)
        yield from self.notes


def preview_of(
    tally: PreviewTally,
    *,
    rates: Mapping[str, float],
    rules: Sequence[Rule],
    costs: Mapping[str, UnitCost],
    notes: Iterable[str] = (),
) -> Preview:
    """Return what was counted with what it costs.

    Args:
        tally: of these rates and rules.
        costs: metric → what one unit costs; one that is missing is not known.
        notes: beside what is to be said of the counts.
    """
    own = {*rates.values()}
    rate_of = {**{rule.name: rule.rate for rule in rules}, BASE: own.pop() if len(own) == 1 else None}
    scores = {name: {metric: tally.scores[name, metric] for metric in rates} for name in tally.rules}
    return Preview(
        units=tally.units,
        taken=tally.taken,
        rules=tuple(_taker(name, rate_of[name], of, _sum(scores[name], costs)) for name, of in tally.rules.items()),
        metrics=tuple(
            _taker(name, rates[name], of, _sum({name: of.taken}, costs)) for name, of in tally.metrics.items()
        ),
        named=tuple(map(_build_unit_preview, tally.named())),
        notes=(*_describe_unknown(tally, rules), *notes),
    )


def _taker(name: str, rate: float | None, of: TakerCount, cost: UnitCost) -> TakerPreview:
    return TakerPreview(
        name=name,
        rate=rate,
        matched=of.matched,
        taken=of.taken,
        expected=round(of.expected, 3),
        unknown=of.unknown,
        **cost._asdict(),
    )


def _sum(scores: Mapping[str, int], costs: Mapping[str, UnitCost]) -> UnitCost:
    """Return what so many scores of each metric cost together; one of which a part is not known is not known."""
    each = [costs.get(metric, UnitCost()).times(units) for metric, units in scores.items()]
    columns = [(cost.calls, cost.tokens, cost.usd) for cost in each]
    return UnitCost(*(None if None in column else sum(filter(None, column)) for column in zip(*columns, strict=True)))


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
        if count.unknown:
            why = dict.fromkeys(_because(tally, rule) for rule in rules if rule.name == name)
            yield (
                f"{name}: of {count.unknown:,} units it is not known whether the rule is for them, and they are counted as if "
                f"it were not: {'; '.join(why)}"
            )


def _because(tally: PreviewTally, rule: Rule) -> str:
    if lacking := tally.unlisted(rule):
        return f"metadata {', '.join(lacking)} is not kept; capture.metadata: [{', '.join(lacking)}] keeps it"
    if rule.when.score is not None:
        return f"it looks at the score of {rule.when.score.metric}, which is not known of them"
    return "sampling left them out when they began, and all that is known of them is their root, or its ids"


def _by_rule(rules: Sequence[TakerPreview]) -> TextTable:
    headers = ("rule", "rate", "matched", *_AMOUNTS)
    rows = [
        (
            printable(rule.name),
            _rate(rule),
            f"{rule.matched:,}" + (f"\n{rule.unknown:,} not known" if rule.unknown else ""),
            *_amounts(rule),
        )
        for rule in rules
    ]
    return TextTable(headers, rows, title="by rule; base is a metric's own rate")


def _by_metric(metrics: Sequence[TakerPreview]) -> TextTable:
    rows = [(metric.name, _rate(metric), *_amounts(metric)) for metric in metrics]
    return TextTable(("metric", "rate", *_AMOUNTS), rows, title="by metric")


def _by_name(units: Sequence[UnitPreview]) -> TextTable:
    rows = [
        (unit.trace_id, printable(unit.name) or "–", _when(unit.began), printable_lines(unit.why)) for unit in units
    ]
    return TextTable(("trace id", "run", "began (UTC)", "by"), rows, title="some of them")


_AMOUNTS: Final = ("taken", "expected", "judge calls", "tokens", "USD")


def _amounts(taker: TakerPreview) -> tuple[str, ...]:
    calls, tokens, usd = format_number(taker.calls), format_number(taker.tokens), format_usd(taker.usd)
    return f"{taker.taken:,}", f"{taker.expected:,.1f}", calls, tokens, usd


def _rate(taker: TakerPreview) -> str:
    return "–" if taker.rate is None else f"{taker.rate:g}"


def _when(began: str | None) -> str:
    return "–" if began is None else began.replace("T", " ").removesuffix("Z")


# --- recent preview -------------------------------------------------------------------------------------------------

# A line's last units, rules and rates → what these would take of them.


def tally_of(
    settings: ScorerSettings,
    rates: Mapping[str, float],
    rules: Sequence[Rule],
    metadata: Sequence[str] | None = None,
    service: Callable[[], str] = str,
) -> PreviewTally:
    """Return what counts with the dice of a scorer; ``metadata`` and ``service``: as of ``PreviewTally``."""
    return PreviewTally(
        rates,
        rules,
        key=DEFAULT_KEY if settings.sampling.key is None else settings.sampling.key,
        head_sampling_rate=settings.sampling.head_sampling_rate,
        metadata=metadata,
        service=service,
    )


def recent_preview(
    line: Pipeline, rules: Sequence[Rule] | None, rate: float | None, rates: Mapping[str, float] | None
) -> Preview:
    """Return what rules and rates would take of the last units that have closed.

    Args:
        rules: None = those that are in force.
        rate: of every metric that ``rates`` does not name; None = as it is in force.
        rates: metric → one of its own; None = none has.

    Raises:
        ConfigurationError: a rate is none, or of no metric; or what is given is no rule.
    """
    chosen = line.settings.sampling.rules if rules is None else tuple(rules)
    if strange := next((rule for rule in chosen if not isinstance(rule, Rule)), None):
        raise ConfigurationError(
            f"rules holds {strange!r}; write [Rule(rate=0.5, when=RuleCondition(slower_than=2.0))]"
        )
    own = _rates(line, rate, rates)
    tally = tally_of(line.settings, own, chosen, line.known.recent.metadata, line.providers.service_name)
    for unit in line.known.recent.units():
        tally.add(unit.facts, _began_ns(unit))
    return preview_of(tally, rates=own, rules=chosen, costs=costs_so_far(line), notes=_notes(line))


def _rates(line: Pipeline, rate: float | None, rates: Mapping[str, float] | None) -> dict[str, float]:
    checked = checked_rates(rates or {}, line.of_units)
    in_force = line.settings.sampling
    return {name: checked.get(name, in_force.rates_of(name)[0] if rate is None else rate) for name in line.of_units}


def _began_ns(unit: RecentUnit) -> int | None:
    """Return when a unit began, to some seconds: it closes a little after its end."""
    return None if unit.closed_ns is None else unit.closed_ns - (unit.facts.duration_ns or 0)


def costs_so_far(line: Pipeline) -> dict[str, UnitCost]:
    """Return metric → what its judge has cost per unit that it was asked about; those of which nobody knows are left out."""
    return {name: cost for name in line.of_units if (cost := _cost_so_far(line, name)) is not None}


def _cost_so_far(line: Pipeline, name: str) -> UnitCost | None:
    metric = line.of_units[name]
    if not models_of(metric) or is_offline(getattr(metric, "_judge", None)):
        return NOTHING
    units = _count_asked(line, name)
    if line.telemetry is None or name in line.shadowing or not units:  # a second judge's are in the same sums
        return None
    calls, tokens, usd = (
        _of_metric(name, line.telemetry.sums(of))
        for of in (semconv.JUDGE_CALLS, semconv.JUDGE_TOKENS, semconv.JUDGE_COST)
    )
    if not calls:  # other processes asked it
        return None
    priced = {*usd} >= {model for model, amount in tokens.items() if amount}
    per_unit = sum(usd.values()) / units if priced else None
    return UnitCost(sum(calls.values()) / units, sum(tokens.values()) / units, per_unit)


def _count_asked(line: Pipeline, name: str) -> int:
    """Return of how many units a metric has been asked, and that have ended: by the dice, or for what was said of them."""
    parts = (part for source, part in line.count_units().parts if source != semconv.SOURCE_SHADOW)
    ended = chain.from_iterable(part.outcomes.items() for part in parts)
    return sum(units for (metric, outcome, _), units in ended if metric == name and not outcome.not_attempted)


def _of_metric(name: str, sums: Mapping[tuple[tuple[str, str], ...], float]) -> dict[str, float]:
    """Return model → what a sum says of a metric."""
    totals = dict[str, float]()
    for labels, amount in sums.items():
        attributes = dict(labels)
        if attributes[semconv.EVALUATION_NAME] == name:
            model = attributes[semconv.REQUEST_MODEL]
            totals[model] = totals.get(model, 0.0) + amount
    return totals


def _notes(line: Pipeline) -> Iterator[str]:
    if line.pacer is not None:
        yield "budgets lower the rates by the hour: what is told here is without that"
    if line.of_sessions:
        yield f"conversations are not previewed: {', '.join(line.of_sessions)}"
