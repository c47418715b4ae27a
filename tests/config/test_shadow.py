"""``shadow:`` of a metric in a file: its judge, settings, key and budget."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.live import a_trace

from spanscore import ConfigurationError, OnlineScorer
from spanscore.cli._config_report import config_report
from spanscore.config import Budget
from spanscore.config.judging import ShadowSettings
from spanscore.config.reading import read_settings
from spanscore.config.tree import Configuration
from spanscore.metrics.catalog.configured import shadow_budget_of, shadow_settings

JUDGE = "judge: {model: 'openai:old', base_url: 'http://127.0.0.1:9/v1', api_key_env: OLD_KEY, timeout: 7s}"


def settings_of(folder: Path, shadow: str, judge: str = JUDGE) -> Any:
    file = folder / "spanscore.yaml"
    file.write_text(f"metrics: [{{faithfulness: {{shadow: {shadow}}}}}]\n{judge}\n")
    return read_settings(file).settings


def asked(folder: Path, shadow: str) -> dict[str, Any]:
    ((_, _, found),) = shadow_settings(settings_of(folder, shadow))
    return {name: getattr(found, name) for name in ("model", "base_url", "api_key_env", "timeout")}


OF_THE_JUDGE = {"model": "openai:old", "base_url": "http://127.0.0.1:9/v1", "api_key_env": "OLD_KEY", "timeout": 7.0}
INHERITED: dict[str, dict[str, Any]] = {
    "openai:new": {"model": "openai:new"},
    "{model: 'openai:new', timeout: 9}": {"model": "openai:new", "timeout": 9.0},
    "{model_kwargs: {temperature: 1}}": {},
    "{base_url: 'http://127.0.0.1:8/v1'}": {"base_url": "http://127.0.0.1:8/v1", "api_key_env": None},
    "{model: 'anthropic:new'}": {"model": "anthropic:new", "base_url": None, "api_key_env": None},
    "{model: lexical}": {"model": "lexical", "base_url": None, "api_key_env": None},
}


@pytest.mark.parametrize("shadow", INHERITED)
def test_what_is_left_out_is_the_judges_and_no_key_goes_where_it_was_not_meant_for(tmp_path: Path, shadow: str) -> None:
    assert asked(tmp_path, shadow) == {**OF_THE_JUDGE, **INHERITED[shadow]}


PYTHON_ONLY = {"shadows", "shadow_budget"}


def test_a_second_judge_has_every_key_of_the_judge_but_who_stands_in_for_it() -> None:
    of_judge = set(type(Configuration(metrics=["exact_match"]).judge).model_fields)

    assert of_judge - {*ShadowSettings.model_fields, *PYTHON_ONLY} == {"fallback", "prices", "replica_share", "trace"}
    assert set(ShadowSettings.model_fields) <= of_judge


REFUSED = {
    "{faithfulness: {shadow: {timeout: 3}}}": "metrics.faithfulness.shadow.model: 'openai:old' is the judge in force",
    "{faithfulness: {shadow: {modle: 'openai:new'}}}": "metrics.faithfulness.shadow.modle: no such setting",
    "{faithfulness: {shadow: {model: 'openai:new', timeout: -1}}}": "metrics.faithfulness.shadow.timeout: ",
    "{faithfulness: {shadow: {model: 'openai:new', api_key: abc}}}": "shadow.api_key: do not write a key into the file",
    "{exact_match: {shadow: {model: 'openai:new'}}}": "metrics.exact_match.shadow: this metric asks no judge",
    "{faithfulness: {shadow: {model: 'openai:new', budget: [{usd: 1, per: 1d}]}}}": "shadow.budget: it is in usd, and 'new'",
}


@pytest.mark.parametrize("metric", REFUSED)
def test_what_cannot_be_is_refused_with_its_key_by_check_and_at_the_start(
    tmp_path: Path, metric: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OLD_KEY", "none")
    file = tmp_path / "spanscore.yaml"
    file.write_text(f"metrics: [{metric}]\n{JUDGE}\n")

    assert [one for one in config_report(file).errors if REFUSED[metric] in one] == [*config_report(file).errors]
    assert config_report(file).errors
    with pytest.raises(ConfigurationError):
        OnlineScorer.from_config(file, tracer_provider=a_trace().provider)


def test_a_second_judge_has_as_much_again_or_a_budget_of_its_own(tmp_path: Path) -> None:
    judges = (Budget(calls=9, per="1h"), Budget(calls=8, per="1h", metric="harmless"))

    inherited = shadow_budget_of(settings_of(tmp_path, "openai:new"), judges)
    own = shadow_budget_of(settings_of(tmp_path, "{model: 'openai:new', budget: [{calls: 3, per: 1d}]}"), judges)

    assert (inherited, own) == (None, (Budget(calls=3, per="1d", metric="faithfulness"),))


def test_metrics_of_ones_own_have_none_of_the_files_second_judges(tmp_path: Path) -> None:
    from spanscore.metrics import ExactMatch

    settings_of(tmp_path, "openai:new")
    trace = a_trace()
    with OnlineScorer.from_config(
        tmp_path / "spanscore.yaml", metrics=[ExactMatch()], tracer_provider=trace.provider
    ) as scorer:
        assert scorer.status().shadows == ()
