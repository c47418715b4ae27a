"""The settings of a row of the fault matrix, and its results compared with the required ones."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tests.judges.faults.stage import PRICE, Stage
from tests.servers.faulty_openai import FaultyOpenAI


@dataclass(frozen=True, slots=True)
class Pace:
    """How long a row lasts.

    Attributes:
        length: of a fault, and of the time after it, as a share of the full one.
        timeout_s: of an attempt.
        per_s: units.
        units: of a row that submits them at once, as a share of the full number.
        spare: requests that a short row may waste beyond its share of them: the first ones of an episode.
        clocked: whether seconds, CPU and memory are checked against their bounds; next to other tests they mean little.
    """

    length: float = 1.0
    timeout_s: float = 10.0
    per_s: float = 5.0
    units: float = 1.0
    spare: int = 0
    clocked: bool = True


FULL = Pace()
SHORT = Pace(length=1 / 20, timeout_s=0.75, per_s=20.0, units=0.1, spare=20, clocked=False)


@dataclass(slots=True)
class FaultReport:
    """The results of a row.

    Attributes:
        missed: violated requirements, with the value and the allowed value.
        seen: the values for which there is a bound.
    """

    scores: str
    per_score: float
    rest: dict[str, int]
    seen: dict[str, str] = field(default_factory=dict)
    missed: list[str] = field(default_factory=list)

    def most(self, what: str, value: float, allowed: float) -> None:
        self._bounded(what, value, f"≤ {allowed:g}", holds=value <= allowed)

    def within(self, pace: Pace, what: str, value: float, allowed: float) -> None:
        """Report a measurement by a clock; check its bound if the pace makes it meaningful."""
        self._bounded(what, value, f"≤ {allowed:g}", holds=value <= allowed or not pace.clocked)

    def least(self, what: str, value: float, allowed: float) -> None:
        self._bounded(what, value, f"≥ {allowed:g}", holds=value >= allowed)

    def same(self, what: str, value: Any, wanted: Any) -> None:
        if value != wanted:
            self.missed.append(f"{what}: {value}, = {wanted}")

    def _bounded(self, what: str, value: float, allowed: str, *, holds: bool) -> None:
        self.seen[what] = f"{value:.3g}"
        if not holds:
            self.missed.append(f"{what}: {value:.4g}, {allowed}")


def report_of(stage: Stage, *servers: FaultyOpenAI) -> FaultReport:
    """Wait for the submitted units, and check the rules for every row: each unit has one outcome, every request is a call."""
    stage.ended(120)
    asked = [one for server in servers for one in server.asked]
    report = FaultReport(
        f"{stage.scored()} of {stage.submitted * len(stage.scorer.status().eligible)}",
        len(asked) / max(1, stage.scored()),
        stage.rest(),
    )
    status = stage.scorer.status()
    ended = sum(stage.outcomes().values())
    report.same(
        "eligible − Σ outcomes − pending", sum(status.eligible.values()) - ended - sum(status.pending.values()), 0
    )
    report.same("collections that do not add up", stage.broken, [])
    return report


def check_billed(report: FaultReport, stage: Stage, server: FaultyOpenAI) -> None:
    """Check that tokens and cost are those of the server's bills, and that there is a call for every request."""
    calls = stage.calls()
    report.same("calls for requests", sum(not call.cached for call in calls), len(server.asked))
    known = [call for call in calls if not call.estimated]
    billed = Counter((one.input_tokens, one.output_tokens) for one in server.asked if one.status == 200)
    counted = Counter((call.input_tokens, call.output_tokens) for call in known if call.input_tokens)
    report.same("tokens that the server did not bill", counted - billed, Counter())
    too_late = sum(call.estimated for call in calls)  # the server bills a reply that came after the timeout, too
    report.most("bills that are not counted", (billed - counted).total(), too_late)
    usd = sum(call.input_tokens * PRICE[0] + call.output_tokens * PRICE[1] for call in known) / 1e6
    cost_usd = sum(call.cost_usd or 0.0 for call in known)
    report.most("relative error of the counted money", abs(cost_usd - usd) / max(usd, 1e-9), 0.01)


def check_scored(report: FaultReport, stage: Stage, share: float = 1.0) -> None:
    units = stage.submitted * len(stage.scorer.status().eligible)
    report.least("share scored", stage.scored() / units, share)


def check_requests(report: FaultReport, stage: Stage, server: FaultyOpenAI, per_score: float, pace: Pace) -> None:
    wasted = len(server.asked) - stage.scored()
    report.most("requests wasted", wasted, (per_score - 1) * stage.scored() + pace.spare)
