"""Chat model, name or judge → judge."""

from __future__ import annotations

import gc
import sys
import weakref

import pytest
from tests.judges.models import CRITIQUE_JSON, QUESTION, Answers, PlainModel

from spanscore.config.judging import OF_SCORER, JudgeSettings
from spanscore.errors import ConfigurationError, MissingExtraError
from spanscore.judges import Cached, LangChainJudge, LexicalJudge, Priced, RateLimited, judge, shared_judge
from spanscore.judges.effects.cost import Budgeted
from spanscore.judges.effects.limited import BatchedVotes
from spanscore.judges.effects.middleware import layers
from spanscore.judges.effects.prefix import CacheFilled


def test_a_chat_model_is_asked_through_the_limiter_of_its_account() -> None:
    made = judge(PlainModel(), max_concurrency=4, timeout=5.0, max_attempts=2, queue_timeout=60.0)

    assert [type(layer) for layer in layers(made)] == [
        Cached,
        BatchedVotes,
        CacheFilled,
        Budgeted,
        RateLimited,
        Priced,
        LangChainJudge,
    ]
    *_, limited, _, _ = layers(made)
    assert isinstance(limited, RateLimited)
    assert (limited.max_attempts, limited.limiter.ceiling, limited.timeout, limited.queue_timeout) == (2, 4, 5.0, 60.0)
    assert made.model == "plain-1"


async def test_the_judge_made_of_a_chat_model_answers() -> None:
    assert (await judge(PlainModel()).ask(QUESTION)).text == CRITIQUE_JSON


def test_a_judge_is_returned_as_it_is() -> None:
    own = Answers("x")

    assert judge(own) is own


def test_a_judge_is_wrapped_in_what_is_asked_for() -> None:
    own = Answers("x")

    assert [type(layer) for layer in layers(judge(own, timeout=3.0))] == [RateLimited, Priced, Answers]


async def test_prices_are_the_innermost_of_the_limits() -> None:
    made = judge(PlainModel(), prices={"plain-1": (1, 10)})

    assert (await made.ask(QUESTION)).cost_usd == pytest.approx((30 * 1 + 5 * 10) / 1e6)
    assert [type(layer) for layer in layers(made)][-2:] == [Priced, LangChainJudge]
    assert shared_judge(made) is made


def test_the_offline_judge_has_a_name() -> None:
    assert isinstance(judge("lexical"), LexicalJudge)


def test_an_openai_model_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")

    assert judge("openai:gpt-4o-mini").model == "gpt-4o-mini"


def test_a_missing_key_is_a_configuration_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    with pytest.raises(ConfigurationError, match="OPENAI_API_KEY"):
        judge("openai:gpt-4o-mini")


def test_a_missing_library_is_answered_with_its_pip_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "langchain_openai", None)

    with pytest.raises(MissingExtraError, match=r'pip install "spanscore\[openai\]"'):
        judge("openai:gpt-4o-mini")


def test_without_langchain_another_provider_s_name_is_answered_with_a_pip_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "langchain.chat_models", None)

    with pytest.raises(ConfigurationError, match="pip install langchain"):
        judge("anthropic:claude")


def test_an_uninstalled_provider_is_answered_with_its_package() -> None:
    with pytest.raises(ConfigurationError, match="langchain-groq"):
        judge("groq:llama")  # which nothing that the tests need brings along


@pytest.mark.parametrize("model", ["no such thing", "", 7, None])
def test_what_makes_no_judge_is_refused(model: object) -> None:
    with pytest.raises(ConfigurationError):
        judge(model)


def test_metrics_that_share_a_model_share_its_limits() -> None:
    model = PlainModel()

    assert shared_judge(model) is shared_judge(model)
    assert shared_judge(model) is not shared_judge(PlainModel())


def test_a_forgotten_model_is_not_kept() -> None:
    made = shared_judge(PlainModel())
    kept = weakref.ref(made)
    del made
    gc.collect()

    assert kept() is None


def test_every_setting_of_a_judge_is_explained_where_code_gives_it() -> None:
    docstrings = {key: JudgeSettings if key in OF_SCORER else judge for key in JudgeSettings.model_fields}

    assert [key for key, owner in docstrings.items() if f"    {key}: " not in str(owner.__doc__)] == []
