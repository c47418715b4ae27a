"""The judge's server itself: it limits, fails and hangs as scripted, for a plain client."""

from __future__ import annotations

import asyncio
import threading

import httpx
import pytest
from tests.servers import openai_faults as faults
from tests.servers.faulty_openai import FaultyOpenAI, Limits
from tests.servers.openai_faults import Fault

QUESTION = {"model": "m", "messages": [{"role": "user", "content": "Is it so?"}]}


def ask(server, timeout=5.0, body=QUESTION):
    return httpx.post(f"{server.url}/chat/completions", json=body, timeout=timeout)


def ask_at_once(server, times, **options):
    async def all_of_them():
        async with httpx.AsyncClient(limits=httpx.Limits(max_connections=times), timeout=5.0) as client:
            asking = (client.post(f"{server.url}/chat/completions", json=QUESTION, **options) for _ in range(times))
            return await asyncio.gather(*asking, return_exceptions=True)

    return asyncio.run(all_of_them())


def text_of(answer):
    return answer.json()["choices"][0]["message"]["content"]


def test_a_question_is_answered_and_counted_with_what_it_costs():
    with FaultyOpenAI(lambda _: "yes") as server:
        answer = ask(server)

        (asked,) = server.asked
        assert text_of(answer) == "yes"
        assert server.requests == [QUESTION]
        assert [*server.per_question.values()] == [1]
        assert (asked.status, asked.input_tokens, asked.output_tokens) == (200, 3, 1)


def test_embeddings_have_a_usage():
    with FaultyOpenAI() as server:
        answer = httpx.post(f"{server.url}/embeddings", json={"input": ["one", "two"]}, timeout=5)

    assert len(answer.json()["data"]) == 2
    assert answer.json()["usage"] == {"prompt_tokens": 2, "total_tokens": 2}


def test_beyond_its_places_it_refuses():
    with FaultyOpenAI(limits=Limits(places=4, retry_after_s=2), latency_s=0.2) as server:
        answers = ask_at_once(server, 6)

    assert sorted(answer.status_code for answer in answers) == [200] * 4 + [429] * 2
    assert {answer.headers["retry-after"] for answer in answers if answer.status_code == 429} == {"2"}


def test_with_a_queue_those_beyond_its_places_wait():
    with FaultyOpenAI(limits=Limits(places=2, queue=True), latency_s=0.05) as server:
        answers = ask_at_once(server, 6)

    assert {answer.status_code for answer in answers} == {200}


@pytest.mark.parametrize(
    ("limits", "answered"),
    [(Limits(requests_per_s=2), 2), (Limits(tokens_per_s=20), 1)],  # a question and its answer are 12 tokens
    ids=["requests", "tokens"],
)
def test_past_its_pace_it_refuses(limits, answered):
    with FaultyOpenAI(limits=limits) as server:
        answers = ask_at_once(server, 5)

    assert [answer.status_code for answer in answers].count(200) == answered


def test_it_tells_what_is_left():
    with FaultyOpenAI(limits=Limits(requests_per_s=10, tokens_per_s=1_000, tells=True)) as server:
        headers = ask(server).headers

    assert headers["x-ratelimit-remaining-requests"] == "9"
    assert int(headers["x-ratelimit-remaining-tokens"]) < 1_000
    assert headers["x-ratelimit-reset-requests"].endswith("s")


def test_a_fault_has_its_window_and_its_share():
    with FaultyOpenAI() as server:
        server.faults = [Fault(faults.status(500), until_s=-1), Fault(faults.status(503), share=0.5)]

        statuses = [ask(server).status_code for _ in range(40)]

    assert 8 < statuses.count(503) < 32
    assert statuses.count(503) + statuses.count(200) == 40


@pytest.mark.parametrize(
    ("play", "code"),
    [
        (faults.out_of_quota, (429, "insufficient_quota")),
        (faults.not_allowed, (401, "invalid_api_key")),
        (faults.forbidden, (403, "permission_denied")),
        (faults.no_such_model, (404, "model_not_found")),
        (faults.filtered_question, (400, "content_filter")),
        (faults.too_long, (400, "context_length_exceeded")),
        (faults.no_such_format, (400, None)),
        (faults.status(529, kind="overloaded_error"), (529, None)),
    ],
)
def test_an_error_has_its_status_and_its_code(play, code):
    with FaultyOpenAI(faults=[Fault(play)]) as server:
        answer = ask(server)

    assert (answer.status_code, answer.json()["error"]["code"]) == code


def test_an_answer_may_be_cut_withheld_or_refused():
    with FaultyOpenAI() as server:
        server.faults = [Fault(faults.says("yes, b", finish="length"))]
        cut = ask(server).json()["choices"][0]
        server.faults = [Fault(faults.says(None, refusal="I will not."))]
        refused = ask(server).json()["choices"][0]

    assert (cut["finish_reason"], cut["message"]["content"]) == ("length", "yes, b")
    assert (refused["message"]["content"], refused["message"]["refusal"]) == (None, "I will not.")


def test_an_answer_may_be_none_of_this_api():
    with FaultyOpenAI() as server:
        server.faults = [Fault(faults.body("<html>"))]
        page = ask(server)
        server.faults = [Fault(faults.no_choices)]
        empty = ask(server)

    assert (page.status_code, page.text) == (200, "<html>")
    assert empty.json()["choices"] == []


def test_a_usage_may_be_what_cannot_be():
    with FaultyOpenAI() as server:
        server.faults = [Fault(faults.with_usage(prompt_tokens=-5, completion_tokens="many"))]
        usage = ask(server).json()["usage"]

    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (-5, "many")


def test_two_hundred_hanging_requests_are_one_thread_and_end_with_their_client():
    with FaultyOpenAI(faults=[Fault(faults.hang)]) as server:
        before = set(threading.enumerate())
        answers = ask_at_once(server, 200, timeout=httpx.Timeout(5.0, read=0.5))

        assert {type(answer) for answer in answers} == {httpx.ReadTimeout}
        assert server.most_inflight == 200
        assert len(set(threading.enumerate()) - before) < 10  # servers of earlier tests may still be answering


def test_a_drip_outlives_a_timeout_per_read():
    with FaultyOpenAI(lambda _: "", faults=[Fault(faults.drip(0.002))]) as server:
        assert text_of(ask(server, timeout=0.2)) == ""
        assert server.now_s() > 0.2


def test_a_connection_may_be_cut():
    with FaultyOpenAI(faults=[Fault(faults.cut_connection)]) as server, pytest.raises(httpx.TransportError):
        ask(server)


def test_nobody_listens_until_it_accepts_again():
    with FaultyOpenAI() as server:
        server.refuse()
        with pytest.raises(httpx.ConnectError):
            ask(server)
        server.accept()

        assert ask(server).status_code == 200


def test_a_redirect_leads_back_to_itself():
    with FaultyOpenAI(faults=[Fault(faults.redirect_loop)]) as server:
        with httpx.Client(follow_redirects=True, max_redirects=3) as client, pytest.raises(httpx.TooManyRedirects):
            client.post(f"{server.url}/chat/completions", json=QUESTION)

        assert len(server.asked) == 4


def test_a_small_body_may_inflate_to_a_big_one():
    with FaultyOpenAI(faults=[Fault(faults.gzip_bomb(20_000_000))]) as server:
        answer = ask(server)

    assert len(answer.content) == 20_000_000
    assert int(answer.headers["content-length"]) < 100_000


def test_a_body_may_have_no_end():
    with (
        FaultyOpenAI(faults=[Fault(faults.endless)]) as server,
        httpx.stream("POST", f"{server.url}/chat/completions", json=QUESTION) as answer,
    ):
        taken = 0
        for piece in answer.iter_bytes():
            taken += len(piece)
            if taken > 5_000_000:
                break

    assert taken > 5_000_000
