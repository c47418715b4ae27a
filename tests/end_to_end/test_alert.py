"""Retrieval breaks, an alert reaches a webhook; it is repaired, the alert resolves. A control without the fault stays silent.

Windows of hours are shortened to seconds by configuration; z and the least number of scores are computed for them by the code
that makes the operator's rules.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from integrations.grafana import formulas
from tests.end_to_end.application import METRICS, Application, Traffic, metrics
from tests.end_to_end.webhook import Webhook
from tests.servers import alertmanager, prometheus
from tests.servers.server import poll

from spanscore.config.monitoring import AlertSettings, Monitoring
from spanscore.monitoring import promql
from spanscore.monitoring.drops import plans_of
from spanscore.monitoring.rules import ALERTMANAGER, RULES, rule_files
from spanscore.monitoring.watched_means import watched_means

SHORTENED = Monitoring(
    interval=1.0,
    windows=[10.0, 20.0, 40.0],
    no_scores_after=10.0,
    trace_url="http://localhost:16686/search?tags=%7B%22spanscore.label.{metric}%22%3A%22fail%22%7D",
)
# The tolerance, a quarter of min_drop, takes the control exactly to the edge: without z it is below in half of all seconds.
BASELINE, MIN_DROP, FALSE_ALARM_EVERY_S = 0.9, 0.1, 3_600.0
DROP = "SpanscoreQualityDrop"
SCRAPE = {"scrape_interval": "1s", "evaluation_interval": "1s"}
STEP_WITHIN_S = 90.0

pytestmark = [pytest.mark.server, pytest.mark.timeout(480)]


class Stage:
    """Applications: one breaks and one stops. Servers watch them, and there is a second Prometheus with z = 0."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self.webhook = stack.enter_context(Webhook())
        self.bot, self.control, self.leaver = Application("bot"), Application("control"), Application("leaver")
        for application in (self.bot, self.control, self.leaver):
            stack.callback(application.scorer.shutdown)
        notifier = stack.enter_context(alertmanager.running(folder / "am", self._route()))
        self.watch = stack.enter_context(
            prometheus.running(
                folder / "watch",
                config([self.bot, self.control, self.leaver], notifier.target),
                {"rules.yml": rules()},
            )
        )
        self.without_z = stack.enter_context(
            prometheus.running(folder / "z0", config([self.control]), {"rules.yml": rules(z=1e-9)})
        )
        self.traffic = stack.enter_context(Traffic(self.bot, self.control, self.leaver))

    def _route(self) -> str:
        """The operator's route, with waits of a second and our webhook."""
        tree = yaml.safe_load(rule_files({}, metrics(), SHORTENED)[ALERTMANAGER])
        tree["route"] |= {"group_wait": "1s", "group_interval": "1s"}
        tree["receivers"][0]["webhook_configs"][0]["url"] = self.webhook.url
        return yaml.safe_dump(tree)

    def scores(self, service: str, metric: str, window: str = "10s") -> float:
        """Return the effective number of scores in a window, as the rules count them."""
        matchers = f'gen_ai_evaluation_name="{metric}",service_name="{service}",window="{window}"'
        found = self.watch.query(f"spanscore:n_eff{{{matchers}}}")
        return float(found[0]["value"][1]) if found else 0.0

    def alerts(self, status: str, metric: str, name: str = DROP, service: str = "bot") -> list[dict[str, Any]]:
        """Return the webhook's notifications of a service."""
        return [a for a in self.webhook.named(name, metric=metric, service_name=service) if a["status"] == status]

    def ever(self, watch: prometheus.Prometheus, service: str) -> list[dict[str, Any]]:
        """Return the drop alerts of a service that fired at any time."""
        alerts = f'ALERTS{{alertname="{DROP}",alertstate="firing",service_name="{service}"}}'
        return watch.query(f"count_over_time({alerts}[15m])")


def config(applications: Sequence[Any], notify: str | None = None) -> str:
    """Return a Prometheus configuration that scrapes the applications (each has a name and a port) each second."""
    scraped = [
        {"job_name": one.name, "static_configs": [{"targets": [f"127.0.0.1:{one.port}"]}]} for one in applications
    ]
    tree: dict[str, Any] = {"global": SCRAPE, "scrape_configs": scraped}
    if notify:
        tree["alerting"] = {"alertmanagers": [{"static_configs": [{"targets": [notify]}]}]}
    return json.dumps(tree)


def alerts(z: float | None = None) -> dict[str, AlertSettings]:
    """Return when each metric is worth a page."""
    one = AlertSettings(baseline=BASELINE, min_drop=MIN_DROP, false_alarm_every=FALSE_ALARM_EVERY_S, z=z)
    return dict.fromkeys(METRICS, one)


def rules(z: float | None = None) -> str:
    """Return the operator's rule file."""
    return rule_files(alerts(z), metrics(), SHORTENED)[RULES]


@pytest.fixture(scope="module")
def stage(prometheus: Any, alertmanager: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """The stage, with traffic on it until enough scores are in every window."""
    with ExitStack() as stack:
        made = Stage(stack, tmp_path_factory.mktemp("alerts"))
        poll(
            lambda: all(made.scores(s, m, "40s") > 400 for s in ("bot", "control") for m in METRICS),
            deadline_s=STEP_WITHIN_S,
            what="scores in every window",
        )
        yield made


def test_whatever_its_scale_a_good_metric_reads_as_good(stage: Stage) -> None:
    """In [0, 1], negative, or lower is better: sums, histogram, dashboard expression and record speak of quality, 1 good."""
    where = 'service_name="control"'
    histogram = "sum by (gen_ai_evaluation_name) (spanscore_quality_{}{{service_name='control'}})"
    read = {
        "sums, as a dashboard asks": formulas.mean(promql.increases("40s", where)),
        "histogram": f"{histogram.format('sum')} / {histogram.format('count')}",
        "recording rule": f'spanscore:mean{{{where},window="40s"}}',
    }

    for what, expression in read.items():
        means = {
            one["metric"]["gen_ai_evaluation_name"]: float(one["value"][1]) for one in stage.watch.query(expression)
        }
        assert means.keys() == set(METRICS), what
        assert all(0.8 < mean < 1.0 for mean in means.values()), (what, means)


def test_a_broken_retrieval_reaches_a_webhook_and_its_repair_resolves_it(stage: Stage) -> None:
    plans = plans_of(watched_means(alerts(), metrics()), SHORTENED)
    for plan in plans:
        window = {w: round(stage.scores("bot", plan.watched.metric, w)) for w in ("10s", "20s", "40s")}
        print(f"{plan.watched.metric}: z {plan.z:.2f}, at least {plan.least} scores; scores per window {window}")
    assert stage.ever(stage.watch, "bot") == []

    stage.bot.broken.set()
    for metric in METRICS:
        poll(lambda: stage.alerts("firing", metric), deadline_s=STEP_WITHIN_S, what=f"the alert on {metric}")  # noqa: B023
    stage.bot.broken.clear()

    first = {metric: stage.alerts("firing", metric)[0] for metric in METRICS}
    for metric, alert in first.items():
        print(alert["annotations"]["description"])
        assert metric in alert["annotations"]["description"]
        assert f"fell from {BASELINE} (its baseline) to " in alert["annotations"]["description"]
        assert "(service bot; " in alert["annotations"]["description"]
        assert len(alert["annotations"]["description"]) <= 400
        assert f"spanscore.label.{metric}" in alert["annotations"]["trace_url"]
        assert metric in alert["annotations"]["dashboard_url"]
    for metric in METRICS:
        poll(lambda: _resolved(stage, metric), deadline_s=STEP_WITHIN_S, what=f"the end of the alert on {metric}")  # noqa: B023


def test_the_control_with_as_many_scores_was_silent_and_fires_where_z_is_0(stage: Stage) -> None:
    with stage.traffic.paused():
        assert all(one.scorer.flush(10) for one in (stage.bot, stage.control))
        scored = {one.name: one.scorer.status().outcomes for one in (stage.bot, stage.control)}
    assert scored["bot"] == scored["control"]
    assert all(scored["bot"][metric]["scored"] > 400 for metric in METRICS), scored

    poll(
        lambda: stage.ever(stage.without_z, "control"), deadline_s=STEP_WITHIN_S, what="the control's alert with z = 0"
    )

    assert stage.ever(stage.watch, "control") == []


def test_a_scorer_that_stops_is_noticed_while_another_goes_on(stage: Stage) -> None:
    poll(lambda: stage.scores("leaver", "faithfulness"), deadline_s=STEP_WITHIN_S, what="scores of the one that stops")
    stage.leaver.scorer.shutdown()

    silent = poll(
        lambda: stage.alerts("firing", "faithfulness", "SpanscoreNoScores", "leaver"),
        deadline_s=STEP_WITHIN_S,
        what="the alert that no scores arrive",
    )

    assert "No score of faithfulness for " in silent[-1]["annotations"]["description"]
    assert not stage.webhook.named("SpanscoreNoScores", service_name="control")


def _resolved(stage: Stage, metric: str) -> bool:
    """Whether the one alert on the metric has ended."""
    return {tuple(alert["labels"].items()) for alert in stage.alerts("firing", metric)} == {
        tuple(alert["labels"].items()) for alert in stage.alerts("resolved", metric)
    }
