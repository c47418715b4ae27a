from __future__ import annotations

import json

import pytest

from spanscore.core.codecs.messages import text_of_events

ANSWER = "It is 62 metres high."
TOKENS = ["It", " is", " 62", " metres", " high", "."]


def framed(*datas: str, begin: str = "data: ") -> str:
    return "".join(f"{begin}{data}\n\n" for data in datas)


def objects(*values: object, **rest: object) -> str:
    return framed(*(json.dumps(value) for value in values))


@pytest.mark.parametrize(
    "text",
    [
        ANSWER,
        framed(*TOKENS, "[DONE]"),
        framed(*TOKENS, "[DONE]").replace("\n", "\r\n"),
        framed(*TOKENS, begin="data:"),
        framed(*TOKENS).rstrip("\n"),
        framed(*TOKENS, begin="event: token\ndata: "),
        framed(*TOKENS, begin="id: 7\nretry: 10\ndata: "),
        ": keep-alive\n\n" + framed(*TOKENS),
        framed(*map(json.dumps, TOKENS)) + 'event: metadata\ndata: {"text": "run 7"}\n\nevent: end\n\n',
        objects(*({"token": token} for token in TOKENS)),
        objects(
            *({"choices": [{"index": 0, "delta": {"content": token}}]} for token in TOKENS),
            {"choices": [], "usage": {}},
        ),
        objects({"type": "start"}, *({"type": "text-delta", "id": "0", "delta": token} for token in TOKENS)),
        objects(
            {"type": "message_start", "message": {"role": "assistant"}},
            *({"type": "content_block_delta", "delta": {"type": "text_delta", "text": token}} for token in TOKENS),
        ),
        objects({"answer": ANSWER}),
    ],
)
def test_the_words_of_a_stream_are_its_answer(text: str) -> None:
    assert text_of_events(text) == ANSWER


@pytest.mark.parametrize(
    "text",
    [
        "",
        "data",
        "data: \n\n",
        ": -)",
        "datas: many",
        "event: end\n\n",
        "data: 42\n\nThat is all.",
        "data: 42\nid: 7",
        'data: {"usage": 7}\n\n',
        "Write data: and a text.",
    ],
)
def test_any_other_text_stays_as_it_is(text: str) -> None:
    assert text_of_events(text) == text


def test_line_breaks_in_an_answer_stay() -> None:
    assert text_of_events(framed("First.\nSecond.", " Third.")) == "First.\nSecond. Third."
    assert text_of_events("data: First.\ndata: Second.\n\n") == "First.\nSecond."
