"""An unusable answer is named by its cause, retried no more often than may help, and recorded with its cost."""

from __future__ import annotations

from typing import Any

import pytest
from tests.judges.langchain.wire import Answer, Exchanged, Wire, chat
from tests.judges.models import CRITIQUE_JSON, QUESTION

from spanscore.core.prompt import Reply
from spanscore.core.sample import SingleTurnSample
from spanscore.core.score import JudgeCall
from spanscore.errors import JudgeError, JudgeOutOfQuota, JudgeOverloaded, JudgeTimeout, JudgeUnavailable
from spanscore.judges import LangChainJudge, judge
from spanscore.judges.langchain.message import UNKNOWN, read_tokens
from spanscore.judges.records import failed_call, recorded_calls
from spanscore.metrics import AspectCritic

SAMPLE = SingleTurnSample(user_input="Hello?", response="Good morning.")
LONG = "This model's maximum context length is 8192 tokens"
FILTERED = {"innererror": {"code": "ResponsibleAIPolicyViolation"}}


async def asked(answer: Answer, **settings: Any) -> tuple[JudgeError | Reply, list[JudgeCall], list[dict[str, Any]]]:
    """Ask once; return the result, the calls that were recorded inside, and the requests."""
    with Wire(answer) as wire, recorded_calls() as calls:
        try:
            came: JudgeError | Reply = await LangChainJudge(chat(wire, **settings)).ask(QUESTION)
        except JudgeError as error:
            came = error
    return came, calls, wire.requests


@pytest.mark.parametrize(
    ("status", "about", "error_type"),
    [
        (400, {"code": "content_filter"}, "declined"),
        (400, {"code": "content_policy_violation"}, "declined"),
        (400, FILTERED, "declined"),
        (400, {"code": "context_length_exceeded"}, "too_long"),
        (400, {"message": LONG}, "too_long"),
        (413, {}, "too_long"),
        (404, {"code": "model_not_found"}, "no_such_model"),
        (401, {"code": "invalid_api_key"}, "not_allowed"),
        (403, {}, "not_allowed"),
        (400, {}, "http_400"),
        (422, {}, "http_422"),
    ],
)
async def test_a_refusal_is_named_by_its_cause_and_asked_once(
    status: int, about: dict[str, Any], error_type: str
) -> None:
    error, calls, requests = await asked(lambda one: one.refuse(status, **about))

    assert (type(error), getattr(error, "error_type", None)) == (JudgeError, error_type)
    assert (len(requests), calls) == (1, [])


@pytest.mark.parametrize(
    ("status", "about", "kind"),
    [
        (429, {"code": "insufficient_quota"}, JudgeOutOfQuota),
        (402, {}, JudgeOutOfQuota),
        (400, {"message": "Your credit balance is too low to access the API"}, JudgeOutOfQuota),
        (429, {"code": "rate_limit_exceeded"}, JudgeOverloaded),
        (529, {}, JudgeOverloaded),
        (503, {"headers": {"retry_after": "2"}}, JudgeOverloaded),
        (503, {}, JudgeUnavailable),
        (500, {}, JudgeUnavailable),
        (408, {}, JudgeUnavailable),
    ],
)
async def test_a_refusal_says_whether_waiting_or_asking_again_may_help(
    status: int, about: Any, kind: type[Any]
) -> None:
    error, _, requests = await asked(lambda one: one.refuse(status, **about))

    assert type(error) is kind
    assert len(requests) == 1


async def test_a_refusal_and_an_answer_bring_what_they_say_of_limits_and_no_other_header() -> None:
    said = {"X_RateLimit_Remaining_Requests": "7", "retry_after": "2", "x_request_id": "r1"}

    refused, _, _ = await asked(lambda one: one.refuse(429, headers=said))
    answered, _, _ = await asked(lambda one: one.say(CRITIQUE_JSON, **said))

    assert refused.headers == answered.headers == {"x-ratelimit-remaining-requests": "7", "retry-after": "2"}


async def test_a_filtered_answer_is_declined_and_billed() -> None:
    error, calls, requests = await asked(lambda one: one.say("", finish="content_filter"))

    assert isinstance(error, JudgeError)
    assert (error.error_type, error.input_tokens, error.output_tokens) == ("declined", 20, 5)
    assert (len(requests), calls) == (1, [])


async def test_a_model_that_uses_its_refusal_field_has_declined() -> None:
    def refusing(one: Exchanged) -> None:
        message = {"role": "assistant", "content": None, "refusal": "I will not."}
        one.answer_with([{"index": 0, "finish_reason": "stop", "message": message}])

    error, _, requests = await asked(refusing)

    assert isinstance(error, JudgeError)
    assert (error.error_type, len(requests)) == ("declined", 1)


async def test_a_cut_answer_is_asked_once_more_with_twice_the_room() -> None:
    error, calls, requests = await asked(lambda one: one.say('{"reas', finish="length"), max_tokens=100)

    assert isinstance(error, JudgeError)
    assert [body["max_completion_tokens"] for body in requests] == [100, 200]
    assert (error.error_type, error.input_tokens, error.output_tokens) == ("cut", 20, 5)
    assert [(call.error_type, call.input_tokens, call.output_tokens) for call in calls] == [("cut", 20, 5)]


def test_what_is_billed_without_an_answer_has_its_cost_on_its_call() -> None:
    with Wire(lambda one: one.say("{", finish="length")) as wire:
        priced = judge(chat(wire), prices={"gpt-4o-mini": (1.0, 2.0)})
        score = AspectCritic(priced, definition="Polite?").score_sync(SAMPLE)

    assert [(call.error_type, call.cost_usd) for call in score.usage.calls] == [("cut", 30e-6)] * 2


async def test_an_answer_that_fits_into_twice_the_room_is_the_answer() -> None:
    def answer(one: Exchanged) -> None:
        one.say(*(("{", "length") if one.body["max_completion_tokens"] == 100 else (CRITIQUE_JSON, "stop")))

    reply, calls, _ = await asked(answer, max_tokens=100)

    assert isinstance(reply, Reply)
    assert (reply.text, reply.finish, len(calls)) == (CRITIQUE_JSON, "stop", 1)


@pytest.mark.parametrize("choices", [[], None])
async def test_an_answer_without_a_choice_is_empty(choices: Any) -> None:
    error, _, requests = await asked(lambda one: one.answer_with(choices))

    assert isinstance(error, JudgeError)
    assert (error.error_type, error.input_tokens, len(requests)) == ("empty", 20, 1)


async def test_an_answer_without_words_is_empty() -> None:
    error, _, requests = await asked(lambda one: one.say("  "))

    assert isinstance(error, JudgeError)
    assert (error.error_type, len(requests)) == ("empty", 1)


@pytest.mark.parametrize("kind", ["text/html", "application/json"])
async def test_a_page_where_an_answer_should_be_is_unparseable(kind: str) -> None:
    error, _, requests = await asked(lambda one: one.send(200, b"<html>Log in</html>", content_type=kind))

    assert isinstance(error, JudgeError)
    assert (error.error_type, len(requests)) == ("unparseable", 1)
    assert "the judge's answer could not be read (" in str(error)


async def test_a_gateway_that_refuses_with_200_has_refused() -> None:
    error, _, requests = await asked(lambda one: one.send(200, {"error": {"code": 429, "message": "slow down"}}))

    assert isinstance(error, JudgeOverloaded)
    assert len(requests) == 1


async def test_a_connection_that_breaks_in_the_middle_may_be_tried_again() -> None:
    def half(one: Exchanged) -> None:
        one.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{")
        one.close_connection = True

    error, _, _ = await asked(half)

    assert isinstance(error, JudgeUnavailable)
    assert error.error_type == "connection"
    call = failed_call(QUESTION, "m", error, 1.0)
    assert call.estimated  # it was answering: it may bill
    assert call.input_tokens > 0


async def test_nobody_there_is_a_matter_of_connection() -> None:
    with Wire(lambda one: None) as wire:
        away = LangChainJudge(chat(wire))

    with pytest.raises(JudgeUnavailable) as raised:
        await away.ask(QUESTION)

    assert raised.value.error_type == "connection"
    assert "the judge could not be reached (" in str(raised.value)
    assert not failed_call(QUESTION, "m", raised.value, 1.0).estimated


async def test_silence_is_a_timeout() -> None:
    with Wire(lambda one: wire.closing.wait(10) and None) as wire, pytest.raises(JudgeTimeout) as raised:
        await LangChainJudge(chat(wire), timeout=0.2).ask(QUESTION)

    assert (raised.value.error_type, len(wire.requests)) == ("timeout", 1)


@pytest.mark.parametrize("prompt_tokens", [-5, 1e30, "many", 12.5, True])
async def test_tokens_that_cannot_be_are_unknown_and_the_verdict_stays(prompt_tokens: Any) -> None:
    reply, _, _ = await asked(
        lambda one: one.say(CRITIQUE_JSON, usage={"prompt_tokens": prompt_tokens, "completion_tokens": 5})
    )

    assert isinstance(reply, Reply)
    assert (reply.text, reply.input_tokens, reply.output_tokens) == (CRITIQUE_JSON, 0, 0)


async def test_tokens_from_a_provider_s_cache_are_reported() -> None:
    usage = {"prompt_tokens": 2_000, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 1_024}}

    reply, _, _ = await asked(lambda one: one.say(CRITIQUE_JSON, usage=usage))

    assert isinstance(reply, Reply)
    assert (reply.input_tokens, reply.cached_input_tokens) == (2_000, 1_024)


@pytest.mark.parametrize("cached", [-5, 1e30, "many"])
def test_cached_tokens_of_an_integration_that_cannot_be_leave_all_unknown(cached: Any) -> None:
    usage = {"input_tokens": 90, "output_tokens": 5, "input_token_details": {"cache_read": cached}}

    assert read_tokens(usage) == UNKNOWN


async def test_an_answer_is_read_to_its_two_hundred_thousandth_character() -> None:
    reply, _, _ = await asked(lambda one: one.say("x" * 1_000_000))

    assert isinstance(reply, Reply)
    assert len(reply.text) == 200_000


@pytest.mark.parametrize(
    "choices", [b"[" + b"[]," * 600_000 + b"[]]", b"[" + b"1," * 900_000 + b"1]", b'["' + b'a","' * 300_000 + b'"]']
)
async def test_an_answer_of_a_million_parts_reaches_no_parser(choices: bytes) -> None:
    error, _, requests = await asked(lambda one: one.send(200, b'{"choices":' + choices + b"}"))

    assert isinstance(error, JudgeError)
    assert (error.error_type, len(requests)) == ("too_big", 1)


async def test_what_looks_like_parts_inside_a_text_is_text() -> None:
    text = '{"statements": [' + ", ".join('{"statement": "a"}' for _ in range(5_000)) + "]}"

    reply, _, _ = await asked(lambda one: one.say(text))

    assert isinstance(reply, Reply)
    assert reply.text == text


async def test_a_model_that_streams_is_asked_for_the_whole_answer() -> None:
    _, _, requests = await asked(lambda one: one.say(CRITIQUE_JSON), streaming=True)

    assert [bool(body.get("stream")) for body in requests] == [False]
