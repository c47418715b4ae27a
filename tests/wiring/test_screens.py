"""Rules that look at a score without a judge: the other metrics are decided on when it is there."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from tests.live import QUESTION, Failing, Grounded, Held, a_line, identity_holds, model, rag, run_rag
from tests.servers.server import poll

from spanscore import ConfigurationError, SingleTurnSample, metric
from spanscore.config import Limits, Rule, RuleCondition, Sampling
from spanscore.judges.lexical.judge import LexicalJudge
from spanscore.metrics import Faithfulness

RULES = [Rule(rate=1.0, name="low", when=RuleCondition(score={"metric": "short", "below": 0.5}))]
RATES = {"short": 1.0, "dear": 0.0}
LONG = "Paris is the capital of France, and has been since 987, but for some years."


@metric
def short(sample: Any) -> bool:
    return len(sample.response) < 40


def judged(*metrics: Any, **options: Any) -> Any:
    return a_line(
        *(metrics or (short, Grounded("dear"))), **{"sampling": Sampling(rates=RATES, rules=RULES), **options}
    )


def test_a_low_score_has_the_others_score_the_unit_and_a_high_one_has_not() -> None:
    with judged() as (scorer, trace):
        for answer in (LONG, "Paris.", LONG):
            rag(answer).invoke(QUESTION, config={"callbacks": [scorer.handler]})
        assert scorer.flush(5)
        outcomes = scorer.status().outcomes

    assert outcomes == {"short": {"scored": 3}, "dear": {"scored": 2, "not_sampled": 1}}
    dear = [one.attributes for one in trace.evaluations if one.name == "evaluation dear"]
    assert [(one["spanscore.sampling.rule"], one["spanscore.probability.dear"]) for one in dear] == [("low", 1.0)] * 2


def test_both_scores_are_on_the_units_own_span() -> None:
    with judged() as (scorer, trace):
        run_rag(scorer, answer=LONG)

    attributes = trace.roots[0].attributes
    scores = {name: attributes[f"spanscore.score.{name}"] for name in ("short", "dear")}
    assert (attributes["spanscore.status"], scores) == ("scored", {"short": 0.0, "dear": 1.0})


def test_a_sampled_submission_waits_likewise() -> None:
    with judged() as (scorer, _):
        for answer in (LONG, "Paris."):
            given = SingleTurnSample(user_input=QUESTION, response=answer, retrieved_contexts=[LONG])
            scorer.submit(given, apply_sampling=True)
        assert scorer.flush(5)

        assert scorer.status().outcomes["dear"] == {"scored": 1, "not_sampled": 1}


@pytest.mark.parametrize("error", [RuntimeError("no"), None])
def test_a_unit_without_the_score_has_no_low_one(error: Exception | None) -> None:
    with judged(Failing(error, "short"), Grounded("dear")) as (scorer, _):
        run_rag(scorer, answer=LONG)

        assert scorer.status().outcomes["dear"] == {"not_sampled": 1}


def test_a_unit_without_a_sample_is_decided_on_all_the_same() -> None:
    with judged(Grounded("short"), Grounded("dear"), sampling=Sampling(rates={"dear": 1.0}, rules=RULES)) as (
        scorer,
        trace,
    ):
        model(LONG).invoke(QUESTION, config={"callbacks": [scorer.handler]})
        assert scorer.flush(5)

        assert scorer.status().outcomes == {"short": {"missing_field": 1}, "dear": {"missing_field": 1}}
    assert trace.roots[0].attributes["spanscore.status"] == "not_scored"


def test_a_full_queue_reports_those_that_would_have_been_taken_without_the_score() -> None:
    go_on = threading.Event()
    with judged(Held(go_on, "short"), Grounded("dear"), Grounded("cheap"), limits=Limits(queue_size=1)) as (scorer, _):
        for _ in range(2):
            rag(LONG).invoke(QUESTION, config={"callbacks": [scorer.handler]})
        poll(lambda: scorer.status().outcomes["short"].get("queue_full"), deadline_s=5, what="the queue")
        go_on.set()
        assert scorer.flush(5)

        outcomes = scorer.status().outcomes
    assert outcomes["dear"] == {"not_sampled": 2}
    assert outcomes["cheap"] == {"scored": 1, "queue_full": 1}


def test_an_end_in_between_is_a_shutdown_of_what_was_not_decided() -> None:
    with judged(Held(threading.Event(), "short"), Grounded("dear")) as (scorer, trace):
        rag(LONG).invoke(QUESTION, config={"callbacks": [scorer.handler]})
        poll(lambda: scorer.status().queue[0], deadline_s=5, what="the unit to be taken")
        scorer.shutdown(1)

        assert scorer.status().outcomes == {"short": {"shutdown": 1}, "dear": {"shutdown": 1}}
        assert identity_holds(scorer)
    assert len(trace.roots) == 1


REFUSED: dict[str, dict[str, Any]] = {
    "reads the score of short, which is not a metric here; there are dear": {
        "metrics": [Grounded("dear")],
        "sampling": Sampling(rules=RULES),
    },
    r"which is scored on 0\.2 of the units; set sampling\.rates: \{short: 1\.0\}": {
        "sampling": Sampling(rate=0.2, rules=RULES),
    },
    "reads the score of short, which asks a judge": {
        "metrics": [Faithfulness(LexicalJudge(), name="short")],
        "sampling": Sampling(rules=RULES),
    },
}


@pytest.mark.parametrize("message", REFUSED)
def test_a_score_at_which_no_rule_can_look_is_refused_at_the_start(message: str) -> None:
    options = {"metrics": [short, Grounded("dear")], **REFUSED[message]}

    with pytest.raises(ConfigurationError, match=message), judged(*options.pop("metrics"), **options):
        pass
