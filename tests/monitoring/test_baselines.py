"""Baselines that differ by time: writing, reading, and the rules' use of them in promtool."""

from __future__ import annotations

from dataclasses import dataclass
from math import cos, pi
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from pydantic import ValidationError
from tests.monitoring.needed_rules import needed_for
from tests.yaml_files import read_yaml

from spanscore.config.monitoring import AlertSettings, HourOfWeekBaseline, Monitoring, OffsetBaseline
from spanscore.core.score import BINARY, UNIT_INTERVAL, Scale
from spanscore.errors import ConfigurationError
from spanscore.monitoring.baselines import DAYS, Baseline, LearnedBaseline, baseline_of, profiles_text, read_baseline
from spanscore.monitoring.drops import plans_of
from spanscore.monitoring.rules import RULES, RULES_TEST, rule_files
from spanscore.monitoring.watched_means import watched_means


@dataclass(frozen=True)
class Watched:
    name: str
    scale: Scale


METRICS = [Watched("faithfulness", UNIT_INTERVAL), Watched("harmless", BINARY)]
SETTINGS = Monitoring(interval=240, windows=[3_600, 14_400, 172_800], dimensions={"tier": ["gold"]})
SHORT = Monitoring(interval=240, windows=[1_200, 7_200])
"""An interval is no longer than Prometheus' look-back, 5 min: the groups of rules are evaluated in any order."""
HOURS = [0.85 - 0.08 * cos(2 * pi * hour / 24) for hour in range(24)]
"""At night, when promtool's time begins, it is as low as a drop."""


def entry(**changed: Any) -> dict[str, Any]:
    return {"mean": 0.85, "baseline_sd": {"1h": 0.004, "1d": 0.002}, "hours": dict.fromkeys(DAYS, HOURS), **changed}


def file(folder: Path, tree: Any) -> str:
    (folder / "baseline.yaml").write_text(tree if isinstance(tree, str) else yaml.safe_dump(tree))
    return str(folder / "baseline.yaml")


def by_hour(folder: Path, tree: Any = None, **more: Any) -> AlertSettings:
    return AlertSettings(baseline={"hour_of_week": file(folder, tree or {"faithfulness": entry()})}, **more)


@pytest.mark.server
@pytest.mark.parametrize(("baseline_sd", "design_effect"), [(None, 1), (0.01, 1), (None, 51.2)])
def test_the_swing_of_a_profile_is_quiet_and_a_drop_below_it_is_not(
    prometheus: ModuleType, tmp_path: Path, baseline_sd: float | None, design_effect: float
) -> None:
    alert = by_hour(tmp_path, {"faithfulness": entry(design_effect=design_effect)}, baseline_sd=baseline_sd)

    promtool_passes(prometheus, tmp_path, {"faithfulness": alert}, SETTINGS)


@pytest.mark.server
def test_the_swing_of_a_day_before_is_quiet_and_a_drop_below_it_is_not(prometheus: ModuleType, tmp_path: Path) -> None:
    alert = AlertSettings(baseline={"offset": "1d"}, min_drop=0.1)

    promtool_passes(prometheus, tmp_path, {"harmless": alert}, SHORT)


def test_an_offset_of_a_week_is_held_against_its_own_week_and_its_error() -> None:
    rules = rule_files({"harmless": AlertSettings(baseline={"offset": "7d"})}, METRICS, SHORT)[RULES]

    assert 'spanscore:mean{gen_ai_evaluation_name=~"harmless"} offset 7d' in rules
    assert '(spanscore:standard_error{gen_ai_evaluation_name=~"harmless"} offset 7d) ^ 2' in rules


def promtool_passes(prometheus: ModuleType, folder: Path, alerts: dict[str, AlertSettings], shared: Monitoring) -> None:
    files = rule_files(alerts, METRICS, shared)
    for path in (RULES, RULES_TEST):
        (folder / path).parent.mkdir(exist_ok=True)
    result = read_yaml(files[RULES_TEST])
    result["tests"] = [one for one in result["tests"] if "at this time" in one["name"]]
    assert len(result["tests"]) == 2 * len(alerts)
    (folder / RULES).write_text(needed_for({"SpanscoreQualityDrop"}, files[RULES]))
    (folder / RULES_TEST).write_text(yaml.safe_dump(result))
    (folder / "all.yml").write_text(files[RULES])
    assert "duplicate" not in prometheus.promtool("check", "rules", folder / "all.yml")
    prometheus.promtool("test", "rules", folder / RULES_TEST)


@pytest.mark.parametrize(
    "given", [0.85, "0.85", {"offset": "7d"}, {"offset": 604_800}, {"hour_of_week": "x.yaml"}, None]
)
def test_a_baseline_is_a_number_a_file_or_what_was_days_before(given: Any) -> None:
    alert = AlertSettings.model_validate({"baseline": given})

    assert AlertSettings.model_validate(alert.model_dump()) == alert
    assert isinstance(alert.baseline, float | HourOfWeekBaseline | OffsetBaseline | None)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (1.2, r"a quality, \[0, 1\], \{hour_of_week: FILE\}"),
        (True, "hour_of_week"),
        ("high", "hour_of_week"),
        ([0.8], "hour_of_week"),
        ({"hour": "x.yaml"}, "hour_of_week"),
        ({"offset": "7d", "hour_of_week": "x.yaml"}, "hour_of_week"),
        ({"hour_of_week": 7}, "hour_of_week"),
        ({"offset": "36h"}, "whole days.*offset: 7d"),
        ({"offset": "0d"}, "whole days"),
        ({"offset": None}, "whole days"),
        ({"offset": "a week"}, "no duration"),
        (0.04, "cannot drop by 0.05"),
    ],
)
def test_a_baseline_that_is_none_is_refused_with_what_can_be(given: Any, words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        AlertSettings.model_validate({"baseline": given})


@pytest.mark.parametrize(
    ("tree", "words"),
    [
        ("- a list", "holds no baselines"),
        ("a: [b", "is not YAML"),
        ({"harmless": entry()}, "no baseline of 'faithfulness'; it has harmless"),
        ({"faithfulness": entry(hours=dict.fromkeys(DAYS, HOURS[:23]))}, "hours.sunday must list 24 numbers"),
        ({"faithfulness": entry(hours=dict.fromkeys(DAYS[1:], HOURS))}, "'sunday' is missing"),
        ({"faithfulness": entry(hours=dict.fromkeys(DAYS, [1.2] * 24))}, r"qualities in \[0, 1\]"),
        ({"faithfulness": entry(baseline_sd={"a day": 0.1})}, "'a day' is no duration"),
        ({"faithfulness": entry(baseline_sd={"1d": -0.1})}, "at least 0"),
        ({"faithfulness": entry(design_effect=0.5)}, "design effect at least 1"),
        (
            {"faithfulness": entry(hours=dict.fromkeys(DAYS, [0.9] * 23 + [0.05]))},
            "0.05, the normal quality of an hour, cannot drop",
        ),
        ({"faithfulness": 0.85}, "is no baseline of 'faithfulness'"),
    ],
)
def test_a_file_that_is_no_baseline_is_refused_with_its_key(tmp_path: Path, tree: Any, words: str) -> None:
    alert = by_hour(tmp_path, tree)

    with pytest.raises(ConfigurationError, match=words) as raised:
        baseline_of("faithfulness", alert)
    assert str(raised.value).startswith("alerts.faithfulness.baseline.hour_of_week: ")


def test_an_offset_that_overlaps_the_longest_window_is_refused() -> None:
    shared = Monitoring(windows=["1h", "2d"])

    with pytest.raises(ConfigurationError, match=r"baseline.offset: 1 d is shorter than the window of 2 d"):
        plans_of(watched_means({"harmless": AlertSettings(baseline={"offset": "1d"})}, METRICS), shared)


def test_what_was_learned_is_read_as_it_was_written(tmp_path: Path) -> None:
    hours = tuple(round(0.8 + hour / 10_000, 4) for hour in range(168))
    learned = LearnedBaseline(
        mean=0.8084,
        hours=hours,
        baseline_sd={300: 0.01, 86_400: 0.002},
        days=28,
        scores=1e5,
        explained=0.9,
        design_effect=10.7,
        autocorrelation=0.0,
        autocorrelation_error=0.04,
    )

    found = read_baseline(file(tmp_path, profiles_text({"faithfulness": learned})), "faithfulness")

    assert found == Baseline(
        level=0.8084,
        text=" (normal in these hours)",
        hours=hours,
        baseline_sd={300.0: 0.01, 86_400.0: 0.002},
        design_effect=10.7,
    )


def test_a_mean_of_bursts_strays_by_its_own_error_once_more_for_each_score_that_says_nothing_new(
    tmp_path: Path,
) -> None:
    bursts = by_hour(tmp_path, {"faithfulness": entry(design_effect=10)})

    rules = read_yaml(rule_files({"faithfulness": bursts}, METRICS, SETTINGS)[RULES])["groups"][0]["rules"]

    numbers = {
        one["record"]: one["expr"]
        for one in rules
        if one.get("labels", {}).get("window", "1h") == "1h" and "record" in one
    }
    assert (numbers["spanscore:design_effect"], numbers["spanscore:baseline_variance"]) == (
        "vector(9)",
        "vector(1.6e-05)",
    )
    assert "spanscore:standard_error ^ 2 * on" in numbers["spanscore:strays"]


def test_a_learned_baseline_adds_at_most_6_kb(tmp_path: Path) -> None:
    learned = by_hour(
        tmp_path, {name: entry(hours=dict.fromkeys(DAYS, HOURS)) for name in ("faithfulness", "harmless")}
    )
    one, two = (
        len(rule_files(dict.fromkeys(names, learned), METRICS, Monitoring())[RULES].encode())
        for names in (["faithfulness"], ["faithfulness", "harmless"])
    )

    assert two - one <= 6_000


def test_a_window_strays_as_the_longest_one_that_is_no_longer(tmp_path: Path) -> None:
    alert = by_hour(tmp_path)
    learned = baseline_of("faithfulness", alert)
    said = baseline_of("faithfulness", alert.model_copy(update={"baseline_sd": 0.01}))

    assert learned
    assert said
    assert [learned.baseline_sd_of(length) for length in (300, 3_600, 21_600, 604_800)] == [0.004, 0.004, 0.004, 0.002]
    assert {said.baseline_sd_of(length) for length in (300, 604_800)} == {0.01}
