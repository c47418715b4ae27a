"""Metrics by name."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from spanscore.errors import ConfigurationError
from spanscore.metrics import AspectCritic, BaseMetric, ExactMatch, Faithfulness, create, metric
from spanscore.metrics.catalog.registry import ALIASES, RENAMED, built_ins, by_name, find_metric, under_current_names
from spanscore.testing import ScriptedJudge
from spanscore.wiring.accounts import judges_of


class Politeness(BaseMetric):
    """A user's metric."""

    name = "politeness"

    def __init__(self, *, strict: bool = False) -> None:
        self.strict = strict


@metric
def brief(sample: Any) -> bool:
    return True


@pytest.fixture(autouse=True)
def outside(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("my_metrics")
    module.Politeness = Politeness  # type: ignore[attr-defined]
    module.brief = brief  # type: ignore[attr-defined]
    module.seven = 7  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "my_metrics", module)


def test_a_built_in_is_made_with_judge_and_parameters() -> None:
    judge = ScriptedJudge()

    critic = create("aspect_critic", judge=judge, name="polite", definition="Polite?", strictness=3)

    assert isinstance(critic, AspectCritic)
    assert (critic.name, critic.votes, judges_of(critic)) == ("polite", 3, [judge])


def test_a_judge_offered_to_a_metric_that_takes_none_is_ignored() -> None:
    assert isinstance(create("exact_match", judge=ScriptedJudge()), ExactMatch)


def test_the_name_can_be_a_parameter() -> None:
    assert create("exact_match", name="same_as_gold").name == "same_as_gold"


@pytest.mark.parametrize(("alias", "name"), sorted(ALIASES.items()))
def test_an_alias_stands_for_a_built_in_and_names_its_scores(alias: str, name: str) -> None:
    made = create(alias, judge="lexical")

    assert name in built_ins()
    assert alias not in built_ins()
    assert (type(made), find_metric(alias)) == (find_metric(name), find_metric(name))
    assert (made.name, create(alias, judge="lexical", name="mine").name) == (alias, "mine")


@pytest.mark.parametrize(("before", "name"), sorted(RENAMED.items()))
def test_the_name_a_metric_had_before_makes_it_under_the_one_it_has(before: str, name: str) -> None:
    made = create(before, judge="lexical")

    assert (type(made), made.name) == (find_metric(name), name)
    assert create(before, judge="lexical", name=before).name == before
    assert before not in {*built_ins(), *ALIASES}


def test_what_is_said_of_metrics_is_said_under_their_current_names() -> None:
    rates = {"nv_accuracy": 0.1, "nv_context_relevance": 0.2, "faithfulness": 0.3}

    said = under_current_names(rates, {"answer_accuracy", "nv_context_relevance", "faithfulness"})

    assert said == {"answer_accuracy": 0.1, "nv_context_relevance": 0.2, "faithfulness": 0.3}


def test_an_alias_nearly_hit_is_proposed() -> None:
    with pytest.raises(ConfigurationError, match="did you mean 'context_relevance'"):
        create("context_relevanc")


def test_a_class_from_outside_is_found() -> None:
    made = create("my_metrics:Politeness", judge=ScriptedJudge(), strict=True)

    assert isinstance(made, Politeness)
    assert made.strict


def test_a_ready_made_metric_from_outside_is_found() -> None:
    assert create("my_metrics:brief") is brief


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("faithfullness", {}, "did you mean 'faithfulness'?"),
        ("zzz", {}, "built-in names are .*aspect_critic, .*exact_match, .*faithfulness"),
        ("no_such_package.metrics:X", {}, "Python finds no module 'no_such_package'"),
        ("my_metrics:Nope", {}, "has no Nope"),
        ("my_metrics:seven", {}, "is a int, which is not a metric"),
        ("my_metrics:brief", {"strict": True}, "has no parameters"),
        ("faithfulness", {"pass_att": 1}, "did you mean 'pass_at'?"),
        ("faithfulness", {}, "faithfulness needs a judge"),
        ("aspect_critic", {"judge": ScriptedJudge()}, "definition is empty: write the condition in one sentence"),
        ("simple_criteria_score", {"judge": ScriptedJudge()}, "missing a required argument: 'definition'"),
    ],
)
def test_a_wrong_name_or_parameter_is_answered_with_what_is_right(
    name: str, params: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        create(name, **params)


def test_one_name_in_place_of_a_list_of_metrics_is_named_whole() -> None:
    with pytest.raises(
        ConfigurationError, match="'exact_match' is the name of a metric, not a metric: write ExactMatch"
    ):
        by_name("exact_match")


def undecorated(sample: Any) -> bool:
    return True


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (Faithfulness, r"Faithfulness is the class of a metric, not a metric: write Faithfulness\(llm\)"),
        (ExactMatch, r"ExactMatch is the class of a metric, not a metric: write ExactMatch\(\)"),
        (undecorated, "undecorated is a function, not a metric: write @metric above it"),
        (dict, "<class 'dict'> is no metric: it needs name"),
    ],
)
def test_a_class_or_a_function_in_place_of_a_metric_is_refused(given: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        by_name([given])


def test_no_judge_is_said_in_plain_words() -> None:
    with pytest.raises(ConfigurationError, match="faithfulness needs a judge"):
        Faithfulness(None)


OWN = {
    "def nope(": "importing my_own raised SyntaxError: ",
    "1 / 0": "importing my_own raised ZeroDivisionError: division by zero",
    "import nonesuch_of_it": "No module named 'nonesuch_of_it'",
    "brief = 1": "module my_own has no breif; did you mean 'brief'?",
}


@pytest.mark.parametrize("text", OWN)
def test_what_is_wrong_with_a_module_of_ones_own_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    (tmp_path / "my_own.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_own", raising=False)

    with pytest.raises(ConfigurationError) as raised:
        create("my_own:breif")

    assert OWN[text] in str(raised.value)
