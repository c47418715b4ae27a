"""Silence and lost units as promtool sees them: of a service, of a replica, for as long as it lasts, and over gaps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from tests.monitoring import backfill
from tests.monitoring.needed_rules import needed_for

from spanscore.config.monitoring import Monitoring
from spanscore.core.score import BINARY, Scale
from spanscore.monitoring import promql
from spanscore.monitoring.health import SILENT_SECONDS, silence_records
from spanscore.monitoring.rules import RULES, rule_files

pytestmark = pytest.mark.server
STEP_S = 240
HOUR = 3_600 // STEP_S
SCORES = "spanscore_scored_total"
ALIVE = "spanscore_eligible_total"
ENDED = "spanscore_evaluations_total"


@dataclass(frozen=True)
class Metric:
    name: str = "faithfulness"
    scale: Scale = BINARY


def counter(name: str, values: str, **labels: str) -> dict[str, str]:
    text = ",".join(f'{key}="{value}"' for key, value in {"gen_ai_evaluation_name": "faithfulness", **labels}.items())
    return {"series": f"{name}{{{text}}}", "values": values}


def growing(hours: float, per_hour: float = 60, start: float = 0) -> str:
    return f"{start:g}+{per_hour / HOUR:g}x{round(hours * HOUR)}"


def silent(*services: str, **labels: str) -> list[dict[str, str]]:
    return [{"job": service, **labels} for service in services]


def check(
    prometheus: ModuleType,
    folder: Path,
    series: list[dict[str, str]],
    expected: Mapping[float, list[dict[str, str]]],
    why: str = 'reason!="unscored"',
    alert: str = "SpanscoreNoScores",
    **shared: Any,
) -> None:
    """Check for which services the alert fires after so many hours."""
    settings = Monitoring(interval=STEP_S, windows=[3_600], **shared)
    (folder / "r.yml").write_text(needed_for({alert}, rule_files({}, [Metric()], settings)[RULES]))
    fires = f'ALERTS{{alertname="{alert}",alertstate="firing",{why}}}'
    asked = [
        {
            "expr": f"count by (job, instance) ({fires})",
            "eval_time": f"{round(hours * 3_600)}s",
            "exp_samples": [{"labels": f"{{{promql.matching(one)}}}", "value": 1} for one in result],
        }
        for hours, result in expected.items()
    ]
    test = {"interval": f"{STEP_S}s", "input_series": series, "promql_expr_test": asked}
    tree = {"rule_files": ["r.yml"], "evaluation_interval": f"{STEP_S}s", "tests": [test]}
    (folder / "t.yml").write_text(yaml.safe_dump(tree))
    assert "SUCCESS" in prometheus.promtool("test", "rules", folder / "t.yml")


def test_a_service_that_dies_beside_another_is_reported_within_the_hour_and_for_as_long_as_it_is_dead(
    prometheus: ModuleType, tmp_path: Path
) -> None:
    lives = counter(SCORES, growing(130), job="lives")
    dies = counter(SCORES, f"{growing(30)} stale", job="dies")

    result = dict.fromkeys([31, 40, 54, 78, 102, 129], silent("dies"))
    check(prometheus, tmp_path, [lives, dies], {30: [], 30.4: [], **result})


def test_a_replica_is_silent_only_while_it_is_there_and_its_service_scores(
    prometheus: ModuleType, tmp_path: Path
) -> None:
    stays, gone, stuck = ({"job": "bot", "instance": name} for name in ("stays", "gone", "stuck"))
    series = [counter(name, growing(40), **stays) for name in (SCORES, ALIVE)]
    series += [counter(name, f"{growing(10)} stale", **gone) for name in (SCORES, ALIVE)]
    series += [counter(SCORES, f"{growing(20)} 1200x{20 * HOUR}", **stuck), counter(ALIVE, growing(30), **stuck)]

    result = silent("bot", instance="stuck")
    check(prometheus, tmp_path, series, {12: [], 20: [], 21.2: result, 29.8: result, 31: [], 39: []})


def test_a_replica_to_which_nothing_comes_or_which_hands_it_over_is_not_silent(
    prometheus: ModuleType, tmp_path: Path
) -> None:
    """A worker that has no partition any more, and an application that has begun to leave its units to others."""
    scores, idle, leaves = ({"job": "bot", "instance": name} for name in ("scores", "idle", "leaves"))
    then_none = f"{growing(20)} 1200x{20 * HOUR}"
    series = [counter(name, growing(40), **scores) for name in (SCORES, ALIVE)]
    series += [counter(name, then_none, **idle) for name in (SCORES, ALIVE)]
    series += [counter(SCORES, then_none, **leaves), counter(ALIVE, growing(40), **leaves)]
    series += [counter(ENDED, f"0x{20 * HOUR} {growing(20)}", **leaves, spanscore_evaluation_outcome="delegated")]

    check(prometheus, tmp_path, series, {12: [], 20: [], 21.2: [], 29.8: [], 39: []})


def test_what_ends_before_it_is_handed_over_is_no_silence_where_nothing_is_scored(
    prometheus: ModuleType, tmp_path: Path
) -> None:
    front, worker = {"job": "front", "instance": "a"}, {"job": "worker", "instance": "b"}
    series = [counter(SCORES, f"0x{10 * HOUR}", **one) for one in (front, worker)]
    series += [counter(ENDED, growing(10), **one, spanscore_evaluation_outcome="no_sample") for one in (front, worker)]
    series += [counter(ENDED, growing(10, per_hour=6_000), **front, spanscore_evaluation_outcome="delegated")]

    check(prometheus, tmp_path, series, {5: silent("worker")}, why='reason="unscored"')


@pytest.mark.parametrize(("source", "services"), [("", ["bot"]), ("inner", ["bot"]), ("shadow", [])])
def test_a_full_job_queue_is_reported_for_each_source_with_units_in_it(
    source: str, services: list[str], prometheus: ModuleType, tmp_path: Path
) -> None:
    of = {"spanscore_evaluation_outcome": "queue_full", "spanscore_evaluation_source": source}
    lost = counter(ENDED, growing(3), job="bot", **of)

    why = 'reason="queue_full"'
    check(prometheus, tmp_path, [lost], {2: silent(*services)}, why=why, alert="SpanscoreUnitsLost")


def test_replicas_that_end_with_their_service_are_reported_once(prometheus: ModuleType, tmp_path: Path) -> None:
    stuck = [
        counter(
            name, f"{growing(20)} 1200x{10 * HOUR}" if name == SCORES else growing(30), job="bot", instance=instance
        )
        for instance in ("a", "b")
        for name in (SCORES, ALIVE)
    ]

    check(prometheus, tmp_path, stuck, {20: [], 21.2: silent("bot"), 29: silent("bot")})


def test_a_score_ends_it_and_few_scores_an_hour_put_it_off(prometheus: ModuleType, tmp_path: Path) -> None:
    back = counter(SCORES, f"{growing(24)} _x{10 * HOUR} {growing(40)}", job="back")
    rare = counter(SCORES, f"{growing(48, per_hour=1.5)} _x{20 * HOUR}", job="rare")

    expected = {25.2: silent("back"), 34: silent("back"), 34.8: [], 57: [], 58.8: silent("rare"), 67: silent("rare")}
    check(prometheus, tmp_path, [back, rare], expected)


def test_what_the_settings_say_is_what_counts(prometheus: ModuleType, tmp_path: Path) -> None:
    dies = [counter(SCORES, f"{growing(24)} stale", job=job) for job in ("ns/shop", "retired", "shop-2")]

    expected = {
        26: [],
        28: silent("ns/shop"),
        40: silent("ns/shop"),
    }
    check(prometheus, tmp_path, dies, expected, no_scores_after=3 * 3_600, services=["shop"])


def test_a_service_that_is_named_and_was_never_here_is_missed_and_one_that_has_yet_to_score_is_not(
    prometheus: ModuleType, tmp_path: Path
) -> None:
    fresh = counter(SCORES, f"0x{5 * HOUR}", job="fresh")

    check(prometheus, tmp_path, [fresh], {4: silent('a "$1"')}, services=["fresh", 'a "$1"'])


def test_while_nobody_looked_nobody_was_silent(prometheus: ModuleType, tmp_path: Path) -> None:
    """A store that was down for two hours has no data of them, and waits for the whole time again."""
    down = f"{growing(24)} _x{2 * HOUR} {growing(1, start=1_560)}"

    check(prometheus, tmp_path, [counter(SCORES, down, job="bot")], {24: [], 26.2: [], 26.8: []})


def test_after_a_gap_a_restarted_store_goes_on_where_it_was(prometheus: ModuleType, tmp_path: Path) -> None:
    """Three hours without evaluations do not count as silence."""
    ended, labels = backfill.END - 3 * 3_600, 'gen_ai_evaluation_name="faithfulness",job="bot"'
    text = f"# TYPE {SILENT_SECONDS} gauge\n{SILENT_SECONDS}{{{labels}}} 1200 {ended}\n# EOF\n"
    (tmp_path / "before.txt").write_text(text)
    prometheus.promtool("tsdb", "create-blocks-from", "openmetrics", tmp_path / "before.txt", tmp_path / "data")
    expression = dict(silence_records(Monitoring(interval=60)))[SILENT_SECONDS]

    with prometheus.running(tmp_path) as server:
        (found,) = server.query(expression, at=backfill.END)

    assert float(found["value"][1]) == 1_260
