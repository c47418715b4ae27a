"""``spanscore baseline``: weeks of counters in a real Prometheus → the swing that is in them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from math import cos, pi
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import pytest
from tests.monitoring import backfill
from typer.testing import CliRunner

from spanscore import semconv
from spanscore.cli.main import app
from spanscore.errors import ConfigurationError
from spanscore.monitoring import promql as names
from spanscore.monitoring.baselines import STEP_S, hour_of_week, read_baseline

DAY_S = 86_400
DAYS = 28
SWING, SPREAD, SCORES = 0.03, 0.1, 40
MOMENTS = (
    semconv.WEIGHT,
    semconv.WEIGHT_QUALITY,
    semconv.WEIGHT2,
    semconv.WEIGHT2_QUALITY,
    semconv.WEIGHT2_QUALITY2,
)


INNER = {"spanscore_evaluation_source": "inner", "spanscore_unit_kind": "tool", "spanscore_unit_name": "search"}


def swinging(at: float) -> float:
    """Return the true mean at a time: best at midnight."""
    return 0.8 + SWING * cos(2 * pi * at / DAY_S)


def scraped(
    evaluator_version: str, job: str, *, mean: Any, first: int, last: int, seed: int, **more: str
) -> dict[str, tuple[Any, Any]]:
    """Return instrument → one replica's labels and samples; in the middle it is restarted."""
    random, totals, samples = Random(seed), [0.0] * 5, [list[tuple[float, float]]() for _ in MOMENTS]
    for at in range(first, last, STEP_S):
        y = mean(at) + random.gauss(0, SPREAD / SCORES**0.5)
        added = (SCORES, SCORES * y, SCORES, SCORES * y, SCORES * (y * y + SPREAD**2))
        totals = [was + more for was, more in zip(totals, added, strict=True)]
        if at == first + (last - first) // STEP_S // 2 * STEP_S:
            totals = [0.0] * 5
        for one, total in zip(samples, totals, strict=True):
            one.append((at + STEP_S, total))
    labels = {
        "gen_ai_evaluation_name": "faithfulness",
        "spanscore_evaluator_version": evaluator_version,
        "job": job,
        "instance": str(seed),
        **more,
    }
    return {name: (labels, one) for name, one in zip(MOMENTS, samples, strict=True)}


@pytest.fixture(scope="module")
def server(prometheus: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("weeks")
    end = int(time.time()) // STEP_S * STEP_S
    old, new = end - DAYS * DAY_S, end - 2 * DAY_S
    replicas = [
        scraped("2/judge", "bot", mean=swinging, first=old, last=end, seed=1),
        scraped("2/judge", "bot", mean=swinging, first=old, last=end, seed=2),
        scraped("1/judge", "bot", mean=lambda _: 0.3, first=old, last=new, seed=3),
        scraped("2/judge", "staging", mean=lambda _: 0.5, first=new, last=end, seed=4),
        scraped("2/judge", "inner", mean=lambda _: 0.5, first=old, last=end, seed=5, **INNER),
        scraped("2/judge", "inner", mean=lambda _: 0.7, first=old, last=end, seed=6),
    ]
    samples = {names.series(one): [replica[one] for replica in replicas] for one in MOMENTS}
    backfill.write_samples(prometheus, folder, samples)
    with prometheus.running(folder, retention="90d") as running:
        yield running


def ran(*arguments: str | Path) -> Any:
    return CliRunner().invoke(app("baseline"), ["baseline", *map(str, arguments)])


@pytest.mark.server
def test_four_weeks_of_counters_give_their_swing_back(server: Any, tmp_path: Path) -> None:
    out = tmp_path / "baseline.yaml"

    done = ran("--prometheus", server.url, "--job", "bot", "-o", out)

    assert done.exit_code == 0, done.output
    found = read_baseline(str(out), "faithfulness")
    true = {hour_of_week(at): swinging(at + 1_800) for at in range(0, 7 * DAY_S, 3_600)}
    assert {hour: found.hours[hour] for hour in true} == pytest.approx(true, abs=0.006)
    assert found.level == pytest.approx(0.8, abs=0.001)
    assert f"faithfulness: {{baseline: {{hour_of_week: {out}}}}}" in done.stdout
    assert "2/judge" in done.stdout


@pytest.mark.server
def test_a_program_reads_what_the_profile_explains_and_what_is_left(server: Any, tmp_path: Path) -> None:
    done = ran("--prometheus", server.url, "--job", "bot", "-o", tmp_path / "out.yaml", "--json")

    (one,) = json.loads(done.stdout)["baselines"]
    assert (one["metric"], one["evaluator_version"], one["days"]) == (
        "faithfulness",
        "2/judge",
        pytest.approx(DAYS, abs=1),
    )
    assert one["explained"] > 0.9
    assert not one["is_autocorrelated"]
    assert one["baseline_sd"]["1h"] < 0.003
    assert one["scores"] == pytest.approx(2 * DAYS * DAY_S / STEP_S * SCORES, rel=0.01)


@pytest.mark.server
def test_inner_units_have_a_baseline_of_their_own(server: Any, tmp_path: Path) -> None:
    out = tmp_path / "baseline.yaml"

    done = ran("--prometheus", server.url, "--job", "inner", "-o", out)

    assert done.exit_code == 0, done.output
    alert = f"  faithfulness: {{baseline: {{hour_of_week: {out}}}}}"
    assert f"alerts:\n{alert}\nunits.also (tool search): alerts:\n{alert}\n" in done.stdout
    levels = [read_baseline(str(out), name).level for name in ("faithfulness", "faithfulness (tool search)")]
    assert levels == pytest.approx([0.7, 0.5], abs=0.001)
    entry = f"[{{kind: tool, name: search, alerts: {{faithfulness: {{baseline: {{hour_of_week: {out}}}}}}}}}]"
    (tmp_path / "spanscore.yaml").write_text(f"metrics: [faithfulness]\nunits: {{also: {entry}}}")
    checked = CliRunner().invoke(app(), ["check", str(tmp_path / "spanscore.yaml")], env={"COLUMNS": "300"})
    assert checked.exit_code == 0, checked.output


@pytest.mark.server
@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--job", "nobody"], "no such scores in the last 28d"),
        (["--metric", "faithfulness", "--job", "nobody"], "no such scores in the last 28d"),
        (["--metric", "faithfullness"], "no scores of this metric; there are scores of faithfulness"),
        (["--job", "staging"], r"2/judge.*[23] days; .*needs 7"),
        (["--since", "3d"], "--since 3d: .* at least 7d"),
        (["--since", "a month"], "--since: 'a month' is no duration"),
    ],
)
def test_what_cannot_be_learned_is_said(server: Any, tmp_path: Path, more: list[str], words: str) -> None:
    done = ran("--prometheus", server.url, "-o", tmp_path / "out.yaml", *more)

    with pytest.raises(ConfigurationError, match=words):
        raise done.exception
    assert not (tmp_path / "out.yaml").exists()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://127.0.0.1:1", "no Prometheus answers at http://127.0.0.1:1: .*http://localhost:9090"),
        ("localhost:9090", "'localhost:9090' is not an address"),
        ("http://me:secret@localhost:9090", "contains a name or a password"),
    ],
)
def test_a_prometheus_that_is_not_there_is_named_and_a_password_is_not(tmp_path: Path, url: str, words: str) -> None:
    done = ran("--prometheus", url, "-o", tmp_path / "out.yaml")

    with pytest.raises(ConfigurationError, match=words) as raised:
        raise done.exception
    assert "secret" not in str(raised.value)


@pytest.mark.server
def test_another_server_is_distinguished_from_a_prometheus(server: Any, tmp_path: Path) -> None:
    done = ran("--prometheus", f"{server.url}/graph", "-o", tmp_path / "out.yaml")

    assert isinstance(done.exception, ConfigurationError)
    assert server.url in str(done.exception)


SHIPPED = Path(__file__).parents[1] / "data" / "baseline.yaml"


def checked(folder: Path, baseline: str) -> Any:
    (folder / "spanscore.yaml").write_text(f"metrics: [faithfulness]\nalerts: {{faithfulness: {baseline}}}")
    return CliRunner().invoke(app("check"), ["check", str(folder / "spanscore.yaml")], env={"COLUMNS": "300"})


@pytest.mark.parametrize(
    ("baseline", "words"),
    [
        (
            "{baseline: 0.85}",
            "independent scores around a mean that stays: after a week of scores run `spanscore baseline`",
        ),
        (
            "{baseline: {offset: 7d}}",
            "around a mean that repeats each period: after a week of scores run `spanscore baseline`",
        ),
        ("{baseline: {offset: 7d}}", "below that of 7 d before"),
        ("{baseline: {offset: 7d}}", "follows a slow decline"),
        (f"{{baseline: {{hour_of_week: {SHIPPED}}}}}", "0.05 or more below 0.75 to 0.83 by hour"),
        (
            "{baseline: 0.85, baseline_sd: 0.03}",
            "varies so much by itself that a drop of 0.05 is not detected",
        ),
    ],
)
def test_check_says_of_a_baseline_what_it_does_not_hold(tmp_path: Path, baseline: str, words: str) -> None:
    done = checked(tmp_path, baseline)

    assert (done.exit_code, words in done.stdout) == (0, True), done.output


@pytest.mark.parametrize(
    "baseline",
    ["{baseline: 0.85, baseline_sd: 0.01}", f"{{baseline: {{hour_of_week: {SHIPPED}}}}}"],
)
def test_check_has_nothing_to_add_where_the_straying_is_known(tmp_path: Path, baseline: str) -> None:
    assert "false_alarm_every" not in checked(tmp_path, baseline).stdout


def test_check_refuses_a_baseline_whose_file_is_not_there_with_its_key(tmp_path: Path) -> None:
    done = checked(tmp_path, "{baseline: {hour_of_week: nowhere.yaml}}")

    assert done.exit_code == 2
    assert "alerts.faithfulness.baseline.hour_of_week: there is no file nowhere.yaml; make it with" in done.output
