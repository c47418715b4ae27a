"""The arguments of ``OnlineScorer`` are the sections of a configuration file, and their short forms."""

from __future__ import annotations

import inspect
import pickle
import re
from copy import deepcopy
from typing import Any

import pytest
from tests.live import a_trace

from spanscore import ConfigurationError, OnlineScorer
from spanscore.config import Budget, Extract, JudgeSettings, Rule, RuleCondition, Sampling, Sessions
from spanscore.config.tree import SHORT_FORMS, Configuration, ScorerSettings
from spanscore.metrics import ExactMatch

SIGNATURE = dict(inspect.signature(OnlineScorer).parameters)
ARGS = inspect.getdoc(OnlineScorer).partition("Args:\n")[2].partition("\nRaises:")[0]  # type: ignore[union-attr]
PROVIDERS = {"tracer_provider", "meter_provider", "logger_provider"}
MOST_PARAMETERS = 26


def test_the_constructor_takes_the_sections_of_a_file_and_their_short_forms() -> None:
    assert {*SIGNATURE} == {"metrics", *PROVIDERS, *SHORT_FORMS, *ScorerSettings.model_fields}
    assert len(SIGNATURE) <= MOST_PARAMETERS


def test_the_constructor_says_what_each_argument_means() -> None:
    assert re.findall(r"^    (\w+): ", ARGS, flags=re.MULTILINE) == [*SIGNATURE]


def test_a_configuration_file_may_have_each_section() -> None:
    assert {*ScorerSettings.model_fields} <= {*Configuration.model_fields}


@pytest.mark.parametrize(("short", "key"), SHORT_FORMS.items())
def test_a_short_form_beside_its_key_is_refused(short: str, key: str) -> None:
    section, _, field = key.partition(".")
    value = {"sample_rate": 0.5, "budget": [Budget(calls=1, per="1h")], "extract": Extract()}[short]

    with pytest.raises(ConfigurationError, match=f"{short} is short for {key}, which is given, too"):
        OnlineScorer([ExactMatch()], **{short: value, section: {field: value}})  # type: ignore[arg-type]


def test_a_short_form_and_another_field_of_its_section_are_both_in_force() -> None:
    rule = Rule(rate=0.7, name="failed", when=RuleCondition(any_error=True))

    with OnlineScorer([ExactMatch()], sample_rate=0.1, sampling=Sampling(rules=[rule])) as scorer:
        assert scorer.status().rates == {"exact_match": (0.1, 0.7)}


def test_a_judge_by_name_is_refused_where_metrics_have_their_own() -> None:
    with pytest.raises(ConfigurationError, match=r"judge\.model is for metrics of a file"):
        OnlineScorer([ExactMatch()], judge=JudgeSettings(model="openai:gpt-4o-mini"))


def test_a_section_cannot_be_changed() -> None:
    sampling = Sampling(rates={"exact_match": 0.5}, rules=[Rule(rate=1.0, when=RuleCondition())])

    with pytest.raises(ValueError, match="frozen"):
        sampling.rate = 0.5  # type: ignore[misc]
    with pytest.raises(TypeError, match="cannot be changed"):
        sampling.rates["exact_match"] = 1.0  # type: ignore[index]
    assert isinstance(sampling.rules, tuple)
    assert deepcopy(sampling) == pickle.loads(pickle.dumps(sampling)) == sampling


def test_what_is_given_is_taken_by_value() -> None:
    rates = {"exact_match": 0.5}
    with OnlineScorer([ExactMatch()], sampling=Sampling(rates=rates), tracer_provider=a_trace().provider) as scorer:
        rates["exact_match"] = 1.0

        assert scorer.status().rates == {"exact_match": (0.5, 0.5)}


REFUSED: dict[str, dict[str, Any]] = {
    r"outputs\.spam: no such setting.*Allowed here: span, evaluation_span": {"outputs": {"spam": True}},
    r"sampling\.key: has 0 bytes": {"sampling": {"key": b""}},
    r"sampling\.rate: must be 1 or less \(given: 1\.5\)": {"sample_rate": 1.5},
    r"judge_check: is a single value \(given: 'labelled\.jsonl'\)": {"judge_check": "labelled.jsonl"},
    r"sessions\.metrics: takes metrics, which only Python can give": {"sessions": {"metrics": ["exact_match"]}},
    r"exact_match is one metric, not a list of them: write \[ExactMatch\(": {
        "sessions": Sessions(metrics=ExactMatch())
    },  # type: ignore[arg-type]
    r"feedback_scales: is no mapping": {"feedback_scales": ["bad", "good"]},
    r"feedback_scales\.stars: is no list": {"feedback_scales": {"stars": "bad"}},
}


@pytest.mark.parametrize("message", REFUSED)
def test_a_wrong_value_is_refused_with_its_key_and_what_is_allowed(message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        OnlineScorer([ExactMatch()], tracer_provider=a_trace().provider, **REFUSED[message])


def test_a_rules_old_name_is_refused_with_the_new() -> None:
    with pytest.raises(ConfigurationError, match="slower_than"):
        RuleCondition(min_duration_s=2.0)  # type: ignore[call-arg]
