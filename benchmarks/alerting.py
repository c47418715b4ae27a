"""End-to-end test of the alerts: ten services in trouble, with real replicas, Collector, Prometheus and Alertmanager.

    python -m benchmarks.alerting                   # 7 minutes; --only drop,outage for some; --markdown FILE

It measures which alerts fire, when, and when they end. An hour takes a minute: the operator's own rules, with every duration
divided by 60, on requests at 60 times the rate. Printed times are in full length. All services run concurrently. Each scenario
lists the alerts that it must raise; an additional or a missing alert is an exit with 1.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.end_to_end.hurried import BASELINE, FASTER, Stage, rules, seconds, staged
from tests.end_to_end.replicas import MoodyJudge, Service
from tests.servers import alertmanager, collector, prometheus

BAD = 0.6
"""Drop of the mean by a third."""
FIRST_MIN = 60.0
"""Minutes without trouble at the start."""
LONGEST_MIN = 480.0
DROP, SILENT, NEW = "SpanscoreQualityDrop", "SpanscoreNoScores", "SpanscoreNewEvaluatorVersion"
OUTAGE = frozenset({"SpanscoreJudgeFailing", "SpanscoreJudgeBreakerOpen", SILENT})
_HEAD = """\
# Alerts through Prometheus and Alertmanager

This page shows which alert follows an event, how soon, and its text. `python -m benchmarks.alerting` prints the results;
the [README](README.md#alerts-end-to-end) describes the measurement.
"""


@dataclass(frozen=True, slots=True)
class Seen:
    """The result of a scenario.

    Attributes:
        notice: first expected notice; None = none arrived, or none was expected.
        after_min: minutes from the cause to the notice.
        ended: time at which all alerts had ended, in words.
        names: names of all raised alerts.
        overdue: notices that did not arrive in time; empty = all did.
        drops: number of alerts on drops with different labels.
    """

    notice: Mapping[str, Any] | None = None
    after_min: float = 0.0
    ended: str = "–"
    names: frozenset[str] = frozenset()
    overdue: str = ""
    drops: int = 0


@dataclass(frozen=True, slots=True)
class Scenario:
    """One service, and its trouble.

    Attributes:
        must: names of the alerts that must be raised.
        may: names of the alerts that may be raised.
    """

    name: str
    title: str
    play: Callable[[Act], None]
    must: frozenset[str] = frozenset()
    may: frozenset[str] = frozenset()
    per_s: float = 20.0


class Act:
    """A scenario while it is played: its service, and the clock of the stage."""

    def __init__(self, stage: Stage, service: Service, judge: MoodyJudge) -> None:
        self.stage, self.service, self.judge = stage, service, judge
        self.seen = Seen()
        self._cause_s = 0.0

    def passes(self, minutes: float) -> None:
        """Wait for a time."""
        time.sleep(seconds(minutes))

    def begins(self) -> None:
        """Note that the trouble begins now."""
        self._cause_s = time.monotonic()

    def first(self, *names: str) -> Seen:
        """Wait for the first notice of each of these alerts, and return the earliest."""
        firsts = [
            self.stage.first(self.service.name, name, since=self._cause_s, within_min=LONGEST_MIN) for name in names
        ]
        first = min(firsts, key=lambda alert: float(alert["at"]))
        self.seen = Seen(first, self._since(float(first["at"])))
        return self.seen

    def ends(self, what: str) -> None:
        """Wait for the end of all alerts, and note how long it took from now."""
        self.begins()
        end = self.stage.end(self.service.name, within_min=LONGEST_MIN)
        self.seen = replace(self.seen, ended=f"{self._since(end):.0f} min after {what}")

    def _since(self, at_s: float) -> float:
        return (at_s - self._cause_s) * FASTER / 60


def drop(act: Act) -> None:
    act.begins()
    act.judge.good = BAD
    seen = act.first(DROP)
    act.passes(max(0.0, 120 - seen.after_min))
    act.judge.good = BASELINE
    act.ends("the repair, 2 h later")


def drift(act: Act) -> None:
    act.begins()
    for step in range(1, 25):
        act.judge.good = BASELINE - 0.2 * step / 24
        act.passes(15)
        if DROP in act.stage.names(act.service.name):
            break
    act.first(DROP)


def outage(act: Act) -> None:
    act.begins()
    act.judge.away = True
    seen = act.first("SpanscoreJudgeBreakerOpen")
    act.passes(max(0.0, 90 - seen.after_min))
    act.judge.away = False
    act.ends("the judge is back, 90 min later")


def death(act: Act) -> None:
    act.begins()
    act.service.die()
    act.first(SILENT)
    act.passes(240)
    goes_on = SILENT in act.stage.firing(act.service.name)
    act.seen = replace(act.seen, ended="goes on 4 h later" if goes_on else "ended, though it is still dead")


def ebb(act: Act) -> None:
    act.service.per_s /= 100
    act.passes(300)


def new_judge(act: Act) -> None:
    act.service.shadow = MoodyJudge(0.7, "judge-large")
    _deploy(act)
    act.passes(90)
    act.begins()
    act.service.judge, act.service.shadow = act.service.shadow, None
    _deploy(act)
    act.first(NEW)
    act.passes(180)


def deploy(act: Act) -> None:
    _deploy(act)
    act.passes(120)


def scale_in(act: Act) -> None:
    act.service.leave(0)
    act.passes(240)


def restart(act: Act) -> None:
    act.begins()
    act.judge.good = BAD
    act.passes(3)
    act.service.restart(0)
    act.first(DROP)
    act.judge.good = BASELINE
    act.ends("the repair, at once")


def nothing(act: Act) -> None:
    act.passes(300)


def _deploy(act: Act) -> None:
    for position in range(len(act.service.replicas)):
        act.service.deploy(position)
        act.passes(3)


SCENARIOS = (
    Scenario("drop", "the mean falls from 0.9 to 0.6", drop, frozenset({DROP})),
    Scenario("drift", "the mean falls by 0.2 in 6 h", drift, frozenset({DROP})),
    Scenario("outage", "the judge gives no answer", outage, frozenset({"SpanscoreJudgeBreakerOpen"}), OUTAGE),
    Scenario("death", "all replicas of one service die and stay dead", death, frozenset({SILENT})),
    Scenario("ebb", "the traffic falls to 1 %", ebb),
    Scenario(
        "judge", "another judge, at first in the shadow, then for good (its mean is 0.7)", new_judge, frozenset({NEW})
    ),
    Scenario("deploy", "a rolling deploy", deploy),
    Scenario("scale_in", "one of two replicas leaves", scale_in),
    Scenario("restart", "a replica restarts amid a drop from 0.9 to 0.6", restart, frozenset({DROP})),
    Scenario("control", "nothing happens", nothing),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the scenarios, print a table, and return 1 if a notice was missing or unexpected."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(one.name for one in SCENARIOS))
    parser.add_argument("--markdown", type=Path, help="also write the results to this file")
    given = parser.parse_args(arguments)
    played = [one for one in SCENARIOS if one.name in given.only.split(",")]
    with tempfile.TemporaryDirectory() as folder:
        seen = _play(played, Path(folder))
    table = "\n".join(_lines(seen))
    print(table)
    if given.markdown:
        given.markdown.write_text(f"{_HEAD}\n{table}\n", encoding="utf-8")
    return int(any(_wrong(scenario, one) for scenario, one in seen.items()))


def _play(scenarios: Sequence[Scenario], folder: Path) -> dict[Scenario, Seen]:
    with staged(folder, prometheus=prometheus, alertmanager=alertmanager, collector=collector) as stage:
        ready = threading.Barrier(len(scenarios), action=lambda: stage.watch_with(rules()))
        with ThreadPoolExecutor(len(scenarios)) as threads:
            results = threads.map(lambda one: _seen(one, stage, ready), scenarios)
            return dict(zip(scenarios, results, strict=True))


def _seen(scenario: Scenario, stage: Stage, ready: threading.Barrier) -> Seen:
    judge = MoodyJudge(BASELINE)
    with ExitStack() as stack:
        service = stack.enter_context(stage.service(scenario.name, judge, per_s=scenario.per_s))
        act = Act(stage, service, judge)
        ready.wait()
        act.passes(FIRST_MIN)
        overdue = ""
        try:
            scenario.play(act)
        except TimeoutError as error:
            overdue = str(error).partition(";")[0]
        drops = {tuple(sorted(alert["labels"].items())) for alert in stage.alerts(scenario.name, DROP)}
        return replace(act.seen, names=frozenset(stage.names(scenario.name)), overdue=overdue, drops=len(drops))


def _wrong(scenario: Scenario, seen: Seen) -> str:
    missing, more = scenario.must - seen.names, seen.names - scenario.must - scenario.may
    faults = {"missing": missing, "too much": more, "overdue": {seen.overdue} - {""}}
    if seen.drops > 1:
        faults["one drop"] = {f"{seen.drops} alerts"}
    return "; ".join(f"{what}: {', '.join(sorted(names))}" for what, names in faults.items() if names)


def _lines(seen: Mapping[Scenario, Seen]) -> Iterator[str]:
    yield "| event | first alert | delay | end | all alerts | as required |"
    yield "|---|---|---|---|---|---|"
    for scenario, one in seen.items():
        notice = (
            "none" if one.notice is None else f"{one.notice['labels']['alertname']}, {one.notice['labels']['severity']}"
        )
        after = "–" if one.notice is None else f"{one.after_min:.0f} min"
        names = ", ".join(sorted(name.removeprefix("Spanscore") for name in one.names)) or "none"
        yield f"| {scenario.title} | {notice} | {after} | {one.ended} | {names} | {_wrong(scenario, one) or 'yes'} |"
    yield ""
    for scenario, one in seen.items():
        if one.notice is not None:
            yield f"- **{scenario.title}**: `{one.notice['annotations']['description']}`"


if __name__ == "__main__":
    sys.exit(main())
