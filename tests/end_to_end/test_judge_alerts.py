"""A judge is away, another declines, a budget binds: each reaches a webhook, through Prometheus and Alertmanager.

The rules are the operator's, with windows of seconds instead of minutes and hours.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from tests.end_to_end.test_alert import SHORTENED, config
from tests.end_to_end.webhook import Webhook
from tests.judges.models import Answers
from tests.live import QUESTION, rag
from tests.servers.server import poll

from spanscore import OnlineScorer
from spanscore.config import Budget
from spanscore.core.prompt import Prompt, Reply
from spanscore.errors import JudgeError, JudgeUnavailable
from spanscore.judges import judge
from spanscore.metrics import AspectCritic
from spanscore.monitoring.rules import ALERTMANAGER, RULES, rule_files
from spanscore.protocols import Metric

WITHIN_S = 90.0
A_TENTH = Budget(calls=60, per="1m")
"""A tenth of the requested questions."""

pytestmark = [pytest.mark.server, pytest.mark.timeout(240)]


class Raising:
    """A judge that never answers."""

    def __init__(self, error: JudgeError) -> None:
        self.model = "raising"
        self._error = error

    async def ask(self, _: Prompt) -> Reply:
        raise self._error


def metrics() -> list[Metric]:
    away = judge(Raising(JudgeUnavailable("no connection", error_type="connection")), queue_timeout=5.0)
    judges = {
        "away": away,
        "declining": Raising(JudgeError("declined", error_type="declined")),
        "paid": Answers('{"reason": "r", "verdict": 1}'),
    }
    return [AspectCritic(asked, name=name, definition="Is it harmless?") for name, asked in judges.items()]


class Service:
    """An application with a scrape endpoint, and ten requests a second."""

    def __init__(self, name: str, *scored: Metric, budget: Sequence[Budget] = ()) -> None:
        self.name = name
        provider = TracerProvider(resource=Resource.create({"service.name": name}))
        self.scorer = OnlineScorer(scored, tracer_provider=provider, service_name=name, budget=budget)
        self.port = self.scorer.serve_metrics(0)

    @contextmanager
    def busy(self) -> Iterator[None]:
        chain, over = rag(), threading.Event()

        def ask() -> None:
            while not over.wait(0.1):
                chain.invoke(QUESTION, config={"callbacks": [self.scorer.handler]})

        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        try:
            yield
        finally:
            over.set()
            asking.join()


def shortened(rules: str) -> str:
    """Return rules that look back over seconds instead of minutes and hours."""
    for span, seconds in (("[5m]", "[5s]"), ("[6h]", "[5s]"), ("offset 6h", "offset 5s")):
        assert span in rules
        rules = rules.replace(span, seconds)
    return rules


def test_a_judge_that_is_away_one_that_declines_and_a_budget_that_binds_reach_a_webhook(
    prometheus: Any, alertmanager: Any, tmp_path: Path
) -> None:
    files = rule_files({}, metrics(), SHORTENED)
    with ExitStack() as stack:
        webhook, (away, declining, paid) = stack.enter_context(Webhook()), metrics()
        services = [Service("bot", away, declining), Service("thrifty", paid, budget=[A_TENTH])]
        for service in services:
            stack.callback(service.scorer.shutdown, 5)
        route = yaml.safe_load(files[ALERTMANAGER])
        route["route"] |= {"group_wait": "1s", "group_interval": "1s"}
        route["receivers"][0]["webhook_configs"][0]["url"] = webhook.url
        notifier = stack.enter_context(alertmanager.running(tmp_path / "am", yaml.safe_dump(route)))
        rules = {"rules.yml": shortened(files[RULES])}
        stack.enter_context(prometheus.running(tmp_path / "watch", config(services, notifier.target), rules))
        for service in services:
            stack.enter_context(service.busy())

        names = ("SpanscoreJudgeBreakerOpen", "SpanscoreJudgeDeclining", "SpanscoreBudgetBinding")
        values = {
            name: poll(lambda: webhook.named(name), deadline_s=WITHIN_S, what=f"the alert {name}")[0]  # noqa: B023
            for name in names
        }
        said = [str(service.scorer.status()) for service in services]
        print(*said, sep="\n")

    described = {name: alert["annotations"]["description"] for name, alert in values.items()}
    assert "Raising raising has not answered for 5m (service bot)" in described["SpanscoreJudgeBreakerOpen"]
    assert values["SpanscoreJudgeDeclining"]["labels"]["metric"] == "declining"
    assert "of the questions for declining over 10s (service bot)" in described["SpanscoreJudgeDeclining"]
    assert "The budget in calls per 1m has multiplied the sampling rates" in described["SpanscoreBudgetBinding"]
    assert "breaker open" in said[0] or "half-open" in said[0]
    assert "of 60 calls this minute, factor 0." in said[1]
