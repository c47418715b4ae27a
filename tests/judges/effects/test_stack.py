"""The stack: every effect of the folder is in it, and a judge's properties are visible through all of them."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import Any, get_type_hints

import pytest
from tests.judges.models import QUESTION, Answers, PlainModel

from spanscore.errors import ConfigurationError
from spanscore.judges import LexicalJudge, effects, judge, shared_judge
from spanscore.judges.effects.cost import Budgeted
from spanscore.judges.effects.limited import BatchedVotes, RateLimited, Retrying
from spanscore.judges.effects.middleware import JudgeMiddleware, reads_instructions, unwrapped
from spanscore.judges.effects.prefix import CacheFilled
from spanscore.judges.effects.stack import MiddlewareSettings
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
GATE: MiddlewareSettings = {"queue_timeout": 60.0, "requests_per_minute": 600.0, "tokens_per_minute": 1e6}
LIMITS: MiddlewareSettings = {"max_attempts": 2, "max_concurrency": 4, "timeout": 9.0}
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
    assert IN_STACK.keys() == SETTINGS.keys() | GATE.keys() | FALLBACK.keys()


def test_effects_stand_around_a_judge_in_their_order() -> None:
    made = judge(Reader("x"), **SETTINGS)

    cached, waiting, *inside = dict.fromkeys(IN_STACK[name] for name in IN_STACK if name in SETTINGS)
    assert layers(made) == [cached, waiting, Budgeted, *inside, Reader]


@pytest.mark.parametrize("name", GATE)
def test_a_gate_takes_the_place_of_the_limits_that_it_has(name: str) -> None:
    setting: Any = {name: GATE[name]}  # type: ignore[literal-required]  # a key of it

    made: Any = judge(Reader("x"), **SETTINGS, **setting)

    cached, waiting, *inside = dict.fromkeys(IN_STACK[name] for name in IN_STACK if name not in {**LIMITS, **FALLBACK})
    assert layers(made) == [cached, waiting, Budgeted, *inside, Reader]
    gated = made.judge.judge.judge
    assert (gated.max_attempts, gated.gate.ceiling, gated.timeout) == (2, 4, 9.0)


@pytest.mark.parametrize("name", IN_STACK)
def test_a_judge_shows_through_an_effect(name: str) -> None:
    plain, reader = Answers("x"), Reader("x")
    setting: Any = {name: {**SETTINGS, **GATE, **FALLBACK}[name]}  # type: ignore[literal-required]  # a key of it

    around = judge(plain, **setting), judge(reader, **setting)

    assert [layers(made)[0] for made in around] == [IN_STACK[name]] * 2
    assert [reads_instructions(made) for made in around] == [False, name != "fallback"]  # this one does not
    assert [made.model for made in around] == ["answers", "answers"]
    assert [unwrapped(made) for made in around] == [plain, reader]


def test_a_judge_shows_through_all_effects_twice() -> None:
    reader = Reader("x")

    made = judge(judge(reader, **SETTINGS), **SETTINGS)

    assert (made.model, reads_instructions(made), unwrapped(made)) == ("answers", True, reader)


@pytest.mark.parametrize("name", [*GATE, *LIMITS])
def test_limits_around_a_judge_that_has_its_own_are_refused(name: str) -> None:
    setting: Any = {name: {**GATE, **LIMITS}[name]}

    with pytest.raises(ConfigurationError, match=f"^{name} is given around a judge that has its limits"):
        judge(judge(PlainModel()), **setting)


def test_questions_wait_for_the_first_in_one_place() -> None:
    made = judge(judge(PlainModel()), prompt_cache_wait=1.0, cache="memory")

    assert layers(made).count(CacheFilled) == 1


def test_a_judge_that_stands_in_keeps_its_own_limits() -> None:
    made: Any = judge(Reader("x"), max_attempts=2, fallback=[judge(PlainModel(), max_attempts=3)])

    kinds = layers(made.judges[1])
    assert (kinds.count(RateLimited), kinds.count(Retrying)) == (1, 0)


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
        **dict.fromkeys([*GATE, *LIMITS, "max_input_tokens"], 0),
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
