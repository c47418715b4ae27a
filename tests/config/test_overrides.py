"""Arguments of ``from_config`` replace the file's values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.live import a_trace

from spanscore import ConfigurationError, OnlineScorer
from spanscore.config import Limits, Rule, RuleCondition, Sampling
from spanscore.metrics import ContextRelevance, ExactMatch
from spanscore.wiring.status import Status

FILE = """
judge: {model: lexical}
metrics: [faithfulness, exact_match]
sampling: {rate: 0.05, rates: {faithfulness: 0.02}, rules: [{when: {status: error}, rate: 0.5}]}
"""


def status(folder: Path, text: str = FILE, **overrides: Any) -> Status:
    file = folder / "spanscore.yaml"
    file.write_text(text)
    with OnlineScorer.from_config(file, tracer_provider=a_trace().provider, **overrides) as scorer:
        return scorer.status()


RATES: list[tuple[dict[str, Any], dict[str, tuple[float, float]]]] = [
    ({}, {"faithfulness": (0.02, 0.5), "exact_match": (0.05, 0.5)}),
    ({"sample_rate": 1.0}, {"faithfulness": (1.0, 1.0), "exact_match": (1.0, 1.0)}),
    ({"sample_rate": 0.0}, {"faithfulness": (0.0, 0.0), "exact_match": (0.0, 0.0)}),
    ({"sampling": Sampling(rates={"faithfulness": 0.2})}, {"faithfulness": (0.2, 0.5), "exact_match": (0.05, 0.5)}),
    ({"sampling": Sampling(rules=())}, {"faithfulness": (0.02, 0.02), "exact_match": (0.05, 0.05)}),
    ({"sampling": Sampling(rate=0.1)}, {"faithfulness": (0.02, 0.5), "exact_match": (0.1, 0.5)}),
    (
        {
            "sample_rate": 0.1,
            "sampling": Sampling(rules=[Rule(rate=0.3, name="slow", when=RuleCondition(slower_than=2.0))]),
        },
        {"faithfulness": (0.1, 0.3), "exact_match": (0.1, 0.3)},
    ),
    ({"metrics": [ExactMatch()]}, {"exact_match": (0.05, 0.5)}),
]


@pytest.mark.parametrize(("overrides", "rates"), RATES, ids=[", ".join(given) or "none" for given, _ in RATES])
def test_an_overridden_rate_is_neither_replaced_nor_raised_by_the_file(
    tmp_path: Path, overrides: dict[str, Any], rates: dict[str, tuple[float, float]]
) -> None:
    assert status(tmp_path, **overrides).rates == rates


def test_the_files_judge_is_not_made_where_the_metrics_are_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    text = "metrics: [faithfulness]\njudge: {model: 'openai:gpt-4o-mini'}"

    assert list(status(tmp_path, text, metrics=[ExactMatch()]).eligible) == ["exact_match"]


def test_the_files_rate_of_a_metric_that_is_given_holds_under_its_old_name_too(tmp_path: Path) -> None:
    text = "metrics: [exact_match]\nsampling: {rates: {nv_context_relevance: 0.2, exact_match: 0.3}}"

    assert status(tmp_path, text, metrics=[ContextRelevance("lexical")]).rates == {"context_relevance": (0.2, 0.2)}


WRONG_METRICS = {
    "a name in place of a list": ("exact_match", "'exact_match' is the name of a metric"),
    "a name in a list": (["exact_match"], "'exact_match' is the name of a metric"),
    "one metric": (ExactMatch(), r"exact_match is one metric, not a list of them: write \[ExactMatch"),
}


@pytest.mark.parametrize("given", WRONG_METRICS)
def test_wrong_metrics_are_refused_with_what_to_write(tmp_path: Path, given: str) -> None:
    metrics, expected = WRONG_METRICS[given]

    with pytest.raises(ConfigurationError, match=expected):
        status(tmp_path, metrics=metrics)


REFUSED = {
    "sampel_rate": "there is no argument 'sampel_rate'; did you mean 'sample_rate'",
    "rate": r"rate is now sampling=Sampling\(rate=…\)",
    "queue_size": r"queue_size is now limits=Limits\(queue_size=…\)",
    "xyz": r"there is no argument 'xyz'\. There are metrics, sample_rate, budget, extract, judge, sampling, ",
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_unknown_override_is_refused_with_what_to_write(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigurationError, match=REFUSED[name]):
        status(tmp_path, **{name: 1})


def test_a_section_replaces_the_fields_that_were_set_in_it(tmp_path: Path) -> None:
    text = f"{FILE}limits: {{queue_size: 7, workers: 3}}\n"

    assert status(tmp_path, text, limits=Limits(workers=5)).queue == (0, 7)
    assert status(tmp_path, text, limits=Limits(queue_size=9)).queue == (0, 9)


def test_a_variable_of_the_environment_leaves_a_given_section_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPANSCORE_LIMITS__QUEUE_SIZE", "11")
    seen = list[str]()
    limits = Limits(queue_size=5)

    assert status(tmp_path, limits=limits, sample_filter=lambda sample: seen.append("asked") is None).queue == (0, 5)
    assert status(tmp_path).queue == (0, 11)
    with OnlineScorer([ExactMatch()]) as scorer:
        assert scorer.status().queue == (0, 1_000)
