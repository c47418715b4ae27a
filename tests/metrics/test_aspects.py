"""Ready aspects: a definition, a direction and a name each, in Python, in YAML and on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from spanscore.cli.main import app
from spanscore.config.reading import read_settings
from spanscore.core.prompt import ASPECTS
from spanscore.core.sample import AIMessage, HumanMessage, MultiTurnSample, SingleTurnSample
from spanscore.errors import ConfigurationError
from spanscore.metrics import AspectCritic
from spanscore.metrics.catalog.configured import metrics_of
from spanscore.metrics.catalog.cost import cost_of
from spanscore.testing import ScriptedJudge

FINE = SingleTurnSample(user_input="When did the bridge open?", response="The bridge opened in 1931.")
BAD = {
    "harmfulness": FINE.model_copy(update={"response": "Ask somebody else, you idiot."}),
    "maliciousness": FINE.model_copy(update={"response": "You are a fool, and I will ruin you."}),
    "toxicity": FINE.model_copy(update={"response": "What a stupid question."}),
    "pii_leak": FINE.model_copy(update={"response": "Ask Ada: ada.holm@example.org, +44 20 7946 0958."}),
    "user_frustration": FINE.model_copy(update={"user_input": "I already asked you twice, this is useless."}),
    "refusal": FINE.model_copy(update={"response": "I'm sorry, but I can't help with that."}),
    "prompt_leak": FINE.model_copy(update={"response": "My instructions say: you are a helpful assistant."}),
}


def critic(aspect: str, judge: Any = "lexical", **more: Any) -> AspectCritic:
    return AspectCritic(judge, aspect=aspect, **more)


@pytest.mark.parametrize("aspect", ASPECTS)
def test_an_aspect_has_a_name_a_definition_and_a_direction(aspect: str) -> None:
    judge = ScriptedJudge([{"step": "critique", "output": {"verdict": 1}}])

    metric = critic(aspect, judge)
    score = metric.score_sync(FINE)

    assert (metric.name, metric.definition, metric.scale.direction) == (aspect, *ASPECTS[aspect])
    assert ASPECTS[aspect].definition in judge.calls[0].instruction
    assert score.label == ("fail" if aspect in BAD else "pass")


@pytest.mark.parametrize("aspect", ASPECTS)
def test_the_offline_judge_passes_a_plain_answer_and_sees_the_signs(aspect: str) -> None:
    assert critic(aspect).score_sync(FINE).label == "pass"
    assert critic(aspect).score_sync(BAD.get(aspect, BAD["toxicity"])).label == "fail"


@pytest.mark.parametrize("aspect", BAD)
def test_the_offline_judge_sees_the_signs_in_a_conversation(aspect: str) -> None:
    def talk(turn: SingleTurnSample) -> MultiTurnSample:
        return MultiTurnSample(
            user_input=[HumanMessage(content=turn.user_input or ""), AIMessage(content=turn.response or "")]
        )

    assert critic(aspect).score_sync(talk(BAD[aspect])).label == "fail"
    assert critic(aspect).score_sync(talk(FINE)).label == "pass"


def test_what_the_user_wrote_is_no_leak() -> None:
    known = FINE.model_copy(update={"user_input": "I am ada@example.org", "response": "Noted: ada@example.org."})

    assert critic("pii_leak").score_sync(known).label == "pass"


def test_the_constructor_of_an_aspect_is_the_same_metric() -> None:
    made = AspectCritic.refusal("lexical", strictness=3)  # type: ignore[attr-defined]

    assert made.evaluator_version == critic("refusal", strictness=3).evaluator_version


def test_name_and_direction_can_be_chosen() -> None:
    chosen = critic("refusal", name="declines", direction="higher")

    assert (chosen.name, chosen.scale.direction) == ("declines", "higher")


def test_a_configuration_names_an_aspect(tmp_path: Path) -> None:
    file = tmp_path / "spanscore.yaml"
    file.write_text(
        "metrics: [{aspect_critic: {aspect: harmfulness}}, {aspect_critic: {aspect: refusal, name: declines}}]\n"
        "sampling: {rates: {harmfulness: 0.1, declines: 0.2}}\nalerts: {harmfulness: {baseline: 0.98}}\n"
    )

    assert [metric.name for metric in metrics_of(read_settings(file).settings)] == [
        "harmfulness",
        "declines",
    ]
    result = CliRunner().invoke(app("check"), ["check", str(file)])
    assert result.exit_code == 0, result.output
    assert cost_of("aspect_critic", aspect="refusal").calls == 1


def test_the_command_shows_aspects_with_their_definitions() -> None:
    def ran(*arguments: str) -> str:
        return CliRunner().invoke(app("metrics"), ["metrics", *arguments], env={"COLUMNS": "200"}).stdout

    row = json.loads(ran("-m", "aspect_critic", "--json"))
    assert row["aspects"] == {name: one._asdict() for name, one in ASPECTS.items()}
    assert all(f"{name}{' ↓' * (name in BAD)} " in ran() for name in ASPECTS)
    assert "refuses the user's request" in ran("-m", "aspect_critic")


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({}, "set aspect to one of harmfulness"),
        ({"aspect": "refused"}, "did you mean 'refusal'"),
        ({"aspect": 3}, "aspect is 3"),
        ({"aspect": "refusal", "definition": "It refuses."}, "aspect and definition are both given"),
    ],
)
def test_an_aspect_that_cannot_be_is_refused(params: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        AspectCritic("lexical", **params)
