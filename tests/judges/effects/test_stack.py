"""The stack: every effect of the folder is in it, and a judge's properties are visible through all of them."""

from __future__ import annotations

from importlib import import_module
from math import inf
from pkgutil import iter_modules
from typing import Any, get_type_hints

import pytest
from tests.judges.models import QUESTION, Answers, PlainModel

from spanscore.errors import ConfigurationError
from spanscore.judges import LexicalJudge, effects, judge, shared_judge
from spanscore.judges.build import MiddlewareSettings
from spanscore.judges.effects.cost import Budgeted
from spanscore.judges.effects.limited import BatchedVotes, RateLimited
from spanscore.judges.effects.middleware import JudgeMiddleware, reads_instructions, unwrapped
from spanscore.judges.effects.middleware import layers as wrapped
from spanscore.judges.effects.prefix import CacheFilled
from spanscore.metrics import create

IN_FOLDER = {
    thing
    for module in iter_modules(effects.__path__, f"{effects.__name__}.")
    for thing in vars(import_module(module.name)).values()
    if isinstance(thing, type) and hasattr(thing, "ask") and thing.__module__ == module.name
}
IN_STACK = {
    name: hint.__metadata__[0] for name, hint in get_type_hints(MiddlewareSettings, include_extras=True).items()
}
LIMITS: MiddlewareSettings = {
    "queue_timeout": 60.0,
    "requests_per_minute": 600.0,
    "tokens_per_minute": 1e6,
    "max_attempts": 2,
    "max_concurrency": 4,
    "timeout": 9.0,
}
FALLBACK: MiddlewareSettings = {"fallback": [Answers("other")]}
SETTINGS: MiddlewareSettings = {
    "cache": "memory",
    "prompt_cache_wait": 2.0,
    **LIMITS,
    "max_input_tokens": 9_000,
    "prices": {"answers-1": (1, 10)},
}


class Reader(Answers):
    """A user's own judge, which reads its prompts."""

    reads_instructions = True


def layers(made: Any) -> list[type]:
    return [type(made), *(layers(made.judge) if isinstance(made, JudgeMiddleware) else ())]


def test_every_effect_of_the_folder_is_in_the_stack_once() -> None:
    have_no_setting = {
        Budgeted,
        BatchedVotes,
    }  # the scorer's budget ledger has the remaining budget; the judge decides on several answers
    assert set(IN_STACK.values()) == IN_FOLDER - have_no_setting
    assert IN_STACK.keys() == SETTINGS.keys() | FALLBACK.keys()


def test_effects_stand_around_a_judge_in_their_order() -> None:
    made = judge(Reader("x"), **SETTINGS)

    cached, waiting, *inside = dict.fromkeys(IN_STACK[name] for name in IN_STACK if name in SETTINGS)
    assert layers(made) == [cached, waiting, Budgeted, *inside, Reader]


@pytest.mark.parametrize("name", LIMITS)
def test_a_limit_of_an_own_judge_brings_no_other_attempts_and_no_deadline(name: str) -> None:
    setting: Any = {name: LIMITS[name]}  # type: ignore[literal-required]  # a key of it

    limited: Any = judge(Reader("x"), **setting)

    assert (limited.max_attempts, limited.timeout) == (setting.get("max_attempts", 1), setting.get("timeout", inf))


def test_an_own_judge_with_a_fallback_has_the_attempts_and_the_deadline_of_a_chat_model() -> None:
    made: Any = judge(Reader("x"), **FALLBACK)

    limited = next(layer for layer in wrapped(made.judge) if isinstance(layer, RateLimited))
    assert (limited.max_attempts, limited.timeout) == (4, 30.0)


@pytest.mark.parametrize("name", IN_STACK)
def test_a_judge_shows_through_an_effect(name: str) -> None:
    plain, reader = Answers("x"), Reader("x")
    setting: Any = {name: {**SETTINGS, **FALLBACK}[name]}  # type: ignore[literal-required]  # a key of it

    around = judge(plain, **setting), judge(reader, **setting)

    assert [layers(made)[0] for made in around] == [IN_STACK[name]] * 2
    assert [reads_instructions(made) for made in around] == [False, name != "fallback"]  # this one does not
    assert [made.model for made in around] == ["answers", "answers"]
    assert [unwrapped(made) for made in around] == [plain, reader]


def test_a_judge_shows_through_all_effects_twice() -> None:
    reader = Reader("x")

    inner = judge(reader, **SETTINGS)
    made = judge(inner, cache="memory", prompt_cache_wait=2.0, max_input_tokens=9_000, prices={"answers-1": (1, 10)})

    assert (made.model, reads_instructions(made), unwrapped(made)) == ("answers", True, reader)


@pytest.mark.parametrize("name", LIMITS)
def test_limits_around_a_judge_that_has_its_own_are_refused(name: str) -> None:
    setting: Any = {name: LIMITS[name]}  # type: ignore[literal-required]  # a key of it

    with pytest.raises(ConfigurationError, match=f"^{name} is given around a judge that has its limits"):
        judge(judge(PlainModel()), **setting)


def test_questions_wait_for_the_first_in_one_place() -> None:
    made = judge(judge(PlainModel()), prompt_cache_wait=1.0, cache="memory")

    assert layers(made).count(CacheFilled) == 1


def test_a_judge_that_stands_in_keeps_its_own_limits() -> None:
    made: Any = judge(Reader("x"), max_attempts=2, fallback=[judge(PlainModel(), max_attempts=3)])

    assert layers(made.judges[1]).count(RateLimited) == 1


async def test_a_question_and_its_answer_pass_through_all_effects() -> None:
    reader = Reader("said")

    reply = await judge(reader, **SETTINGS).ask(QUESTION)

    assert (reply.text, reader.asked) == ("said", [QUESTION])
    assert reply.cost_usd == pytest.approx((10 * 1 + 2 * 10) / 1e6)


def test_whoever_stands_in_for_a_judge_keeps_to_budgets_as_it_does() -> None:
    made: Any = judge(Reader("x"), fallback=[Answers("y")])

    assert all(Budgeted in layers(one) for one in made.judges)


def test_a_setting_that_cannot_be_is_refused_by_every_effect() -> None:
    own = Answers("x")
    wrong: dict[str, Any] = {
        "fallback": [own],
        "cache": "",
        "prompt_cache_wait": -1,
        **dict.fromkeys([*LIMITS, "max_input_tokens"], 0),
        "prices": {"m": (1,)},
    }

    for name, setting in wrong.items():
        with pytest.raises(ConfigurationError):
            judge(own, **{name: setting})
    assert wrong.keys() == IN_STACK.keys()


def test_an_effect_that_is_not_there_is_refused() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'timout'"):
        judge(Answers("x"), timout=3.0)  # type: ignore[call-arg]


def test_a_bare_chat_model_is_shared_with_the_effects_that_judge_gives_it() -> None:
    model = PlainModel()

    assert layers(shared_judge(model)) == layers(judge(model))


def test_the_offline_judge_is_the_offline_one_behind_its_limits() -> None:
    limited = judge(LexicalJudge(), **SETTINGS)

    made: Any = [create(name, judge=limited) for name in ("response_relevancy", "faithfulness_with_hhem")]

    assert [metric.evaluator_version.split("/")[1] for metric in made] == [LexicalJudge.model] * 2
