"""The table of options, and what is written beside it for a user's editor: the constructor's signature and docstring."""

from __future__ import annotations

import inspect
import re
from dataclasses import MISSING, fields
from typing import Any

import pytest
from tests.live import a_trace

from spanscore import ConfigurationError, OnlineScorer
from spanscore.line.options import Options
from spanscore.metrics import ExactMatch
from spanscore.sampling.rules import Rule

TABLE = {option.name: option for option in fields(Options)}
SIGNATURE = dict(inspect.signature(OnlineScorer).parameters)
ARGS = inspect.getdoc(OnlineScorer).partition("Args:\n")[2].partition("\nRaises:")[0]  # type: ignore[union-attr]


def test_the_constructor_takes_what_the_table_has_in_its_order() -> None:
    assert [*SIGNATURE] == ["metrics", *TABLE]


@pytest.mark.parametrize("name", TABLE)
def test_the_constructors_default_is_the_tables(name: str) -> None:
    empty = TABLE[name].default is MISSING  # a dict, which a signature cannot have for a default

    assert SIGNATURE[name].default == (None if empty else TABLE[name].default)


def test_the_constructor_says_what_each_option_means() -> None:
    assert re.findall(r"^    (\w+): ", ARGS, flags=re.MULTILINE) == [*SIGNATURE]


def test_what_is_given_is_taken_by_value() -> None:
    rates = {"exact_match": 0.5}
    with OnlineScorer([ExactMatch()], rates=rates, tracer_provider=a_trace().provider) as scorer:
        rates["exact_match"] = 1.0

        assert scorer.status().rates == {"exact_match": (0.5, 0.5)}


REFUSED: dict[str, dict[str, Any]] = {
    r"outputs names 'spam'; allowed are span, evaluation_span, event, instruments": {"outputs": ["spam"]},
    r"sampling\.key has 0 bytes": {"sampling_key": b""},
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_cannot_be_is_refused(message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        OnlineScorer([ExactMatch()], tracer_provider=a_trace().provider, **REFUSED[message])


def test_a_rules_old_name_is_refused_with_the_new() -> None:
    with pytest.raises(ConfigurationError, match="slower_than"):
        Rule(rate=1.0, name="slow", min_duration_s=2.0)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            {"judge_check": "labelled.jsonl"},
            r"judge_check is 'labelled\.jsonl'; write judge_check=spanscore\.config\.JudgeCheck\(",
        ),
        (
            {"sessions": {"idle_timeout": 300}},
            r"sessions is \{'idle_timeout': 300\}; write sessions=spanscore\.config\.Sessions\(",
        ),
        ({"session_metrics": ExactMatch()}, r"exact_match is one metric, not a list of them: write \[ExactMatch\("),
        ({"feedback_scales": ["bad", "good"]}, r"feedback_scales is \('bad', 'good'\); allowed are two words or more"),
        ({"feedback_scales": {"stars": "bad"}}, r"feedback_scales\.stars is 'bad'; allowed are two words or more"),
    ],
)
def test_an_option_of_another_kind_is_refused_with_what_to_write(given: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        OnlineScorer([ExactMatch()], **given)
