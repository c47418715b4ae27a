"""The checks without a judge: cases written by hand, each with the reason of its value."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from spanscore import SingleTurnSample
from spanscore.core.sample import TokenUsage
from spanscore.core.score import Outcome
from spanscore.errors import ConfigurationError
from spanscore.metrics import create

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name"],
    "additionalProperties": False,
}
TEXTS: dict[str, list[tuple[dict[str, Any], str, float | None, str]]] = {
    "regex": [
        ({"must": r"ORD-\d{4}"}, "Your order ORD-1931 has left.", 1, "the pattern stands in the text"),
        ({"must": r"ORD-\d{4}"}, "Your order has left.", 0, "it stands nowhere"),
        ({"must": r"ORD-\d{4}"}, "ORD-19", 0, "two digits of four"),
        ({"must_not": "guarantee"}, "We guarantee delivery.", 0, "the forbidden word"),
        ({"must_not": "guarantee"}, "Delivery takes two days.", 1, "no forbidden word"),
        ({"must_not": "guarantee"}, "GUARANTEE", 1, "case counts"),
        ({"must_not": "guarantee", "ignore_case": True}, "GUARANTEE", 0, "case does not count"),
        ({"must": "yes", "must_not": "no"}, "yes and no", 0, "the first is there, and so is the second"),
        ({"must": "yes", "must_not": "no"}, "yes", 1, "both conditions hold"),
        ({"must": r"\Ayes\Z"}, "yes, of course", 0, "anchors: the whole text is asked for"),
        ({"must": "größe"}, "die größe", 1, "letters beyond ASCII"),
        ({"must": "x"}, "", 0, "an empty answer has no x"),
    ],
    "json_valid": [
        ({}, '{"a": 1}', 1, "an object"),
        ({}, "[1, 2]", 1, "an array"),
        ({}, "null", 1, "a JSON text by RFC 8259"),
        ({}, ' {"a": "ü"}\n', 1, "blanks around it are allowed"),
        ({}, "{'a': 1}", 0, "quotes of Python"),
        ({}, '{"a": 1,}', 0, "a comma too many"),
        ({}, "NaN", 0, "not a JSON value"),
        ({}, '{"a": Infinity}', 0, "not a JSON value"),
        ({}, 'Here you are: {"a": 1}', 0, "words before it"),
        ({}, '```json\n{"a": 1}\n```', 0, "a fence is not JSON"),
        ({"fenced": True}, '```json\n{"a": 1}\n```', 1, "the fence is allowed"),
        ({}, "[" * 100_000, 0, "nested too deeply to be read"),
    ],
    "json_schema": [
        ({"schema": PERSON}, '{"name": "Ada"}', 1, "the required field"),
        ({"schema": PERSON}, '{"name": "Ada", "age": 36}', 1, "both fields"),
        ({"schema": PERSON}, '{"age": 36}', 0, "the name is missing"),
        ({"schema": PERSON}, '{"name": "Ada", "age": -1}', 0, "below the minimum"),
        ({"schema": PERSON}, '{"name": "Ada", "age": "36"}', 0, "a text in place of a number"),
        ({"schema": PERSON}, '{"name": "Ada", "city": "London"}', 0, "a field that is not allowed"),
        ({"schema": PERSON}, "[]", 0, "an array in place of an object"),
        ({"schema": PERSON}, "Ada", 0, "no JSON"),
        ({"schema": PERSON, "fenced": True}, '```\n{"name": "Ada"}\n```', 1, "in a fence, which is allowed"),
        ({"schema": {"enum": ["a", "b"]}}, '"a"', 1, "one of the words"),
        ({"schema": {"enum": ["a", "b"]}}, '"c"', 0, "none of the words"),
        ({"schema": {"type": "array", "maxItems": 1}}, "[1, 2]", 0, "too many items"),
    ],
    "length": [
        ({"max": 3}, "one two three", 1, "three words"),
        ({"max": 3}, "one two three four", 0, "four words"),
        ({"min": 2}, "one", 0, "one word of two"),
        ({"min": 1}, "", 0, "no word"),
        ({"max": 3}, "", 1, "no word is at most three"),
        ({"min": 2, "max": 2}, "  two\nwords ", 1, "a line break separates"),
        ({"max": 5, "unit": "characters"}, "größe", 1, "five letters, seven bytes"),
        ({"max": 5, "unit": "characters"}, "größer", 0, "six letters"),
        ({"max": 2, "unit": "characters"}, "好的", 1, "two characters"),
        ({"max": 1, "unit": "sentences"}, "It opened in 1931.", 1, "one sentence"),
        ({"max": 1, "unit": "sentences"}, "It opened in 1931. It is long.", 0, "two sentences"),
        ({"max": 1, "unit": "sentences"}, "Dr. Smith opened it.", 1, "an abbreviation ends no sentence"),
    ],
    "language_is": [
        ({"language": "german"}, "Die Brücke wurde 1931 eröffnet.", 1, "German"),
        ({"language": "de"}, "The bridge was opened in 1931.", 0, "English"),
        ({"language": "en"}, "The bridge was opened in 1931.", 1, "English"),
        ({"language": "French"}, "Le pont a été inauguré en 1931.", 1, "names are read in any case"),
        ({"language": "es"}, "O ponte foi inaugurado em 1931.", 0, "Portuguese"),
        ({"language": "ru"}, "Мост был открыт в 1931 году.", 1, "Russian"),
        ({"language": "bg"}, "Мост был открыт в 1931 году.", 0, "Russian, in the same script"),
        ({"language": "ja"}, "橋は千九百三十一年に開通しました。", 1, "Japanese"),
        ({"language": "zh"}, "橋は千九百三十一年に開通しました。", 0, "Japanese, in part in the same script"),
        ({"language": "sr"}, "Most je otvoren za promet 1931. godine.", 1, "Croatian counts as the same language"),
        ({"language": "en"}, "OK 1931", None, "fewer than ten letters"),
        ({"language": "en"}, "", None, "no letters"),
    ],
    "contains_pii": [
        ({}, "Write to ada.king@example.org.", 1, "a mail address"),
        ({}, "Call +44 20 7946 0958 today.", 1, "an international number"),
        ({}, "Call (555) 123-4567.", 1, "a North American number"),
        ({}, "Telefon 030 1234 5678", 1, "a national number in groups"),
        ({}, "It opened on 04/05/1931 at 09:15.", 0, "a date and a time"),
        ({}, "Pay with 4111 1111 1111 1111.", 1, "a card number with a right check digit"),
        ({}, "Order 4111 1111 1111 1112.", 0, "the check digit is wrong"),
        ({}, "IBAN DE89 3704 0044 0532 0130 00", 1, "an IBAN with right check digits"),
        ({}, "Code DE88 3704 0044 0532 0130 00", 0, "the check digits are wrong"),
        ({}, "The bridge is 412 metres long and was built in 1931.", 0, "numbers of other kinds"),
        ({"kinds": ["card"]}, "Write to ada.king@example.org.", 0, "mail is not asked for"),
        ({}, "", 0, "an empty answer"),
    ],
    "citation_present": [
        ({}, "It opened in 1931 [1].", 1, "a number in brackets"),
        ({}, "It opened in 1931 [1, 3].", 1, "two numbers in brackets"),
        ({}, "It opened in 1931【4†source】.", 1, "the form of OpenAI's file search"),
        ({}, "It opened in 1931[^2].", 1, "a footnote"),
        ({}, "It opened in 1931 (Source: handbook).", 1, "a named source"),
        ({}, "See https://example.org/bridge for more.", 1, "an address"),
        ({}, "It opened in 1931.", 0, "no citation"),
        ({}, "It opened in [year].", 0, "a word in brackets"),
        ({"min": 2}, "It opened in 1931 [1].", 0, "one citation of two"),
        ({"min": 2}, "It opened in 1931 [1] and is long [2].", 1, "two citations"),
        ({"pattern": r"§ \d+"}, "By § 12 it is allowed.", 1, "a pattern of the user"),
        ({"pattern": r"§ \d+"}, "It opened in 1931 [1].", 0, "ours is replaced"),
    ],
    "refusal_words": [
        ({}, "I'm sorry, but I can't help with that.", 1, "a refusal"),
        ({}, "I\u2019m sorry, I can\u2019t help.", 1, "typographic apostrophes"),
        ({}, "I CANNOT ASSIST with it.", 1, "case does not count"),
        ({}, "I am  unable\nto open it.", 1, "blanks do not count"),
        ({}, "Dabei kann ich nicht helfen.", 1, "German"),
        ({}, "Je ne peux pas vous aider.", 1, "French"),
        ({}, "No puedo ayudar con eso.", 1, "Spanish"),
        ({}, "It opened in 1931.", 0, "an answer"),
        ({}, "I can help with that.", 0, "an offer"),
        ({"words": ["no comment"]}, "No comment.", 1, "a phrase of the user"),
        ({"words": ["no comment"]}, "I cannot help.", 0, "ours are replaced"),
        ({}, "", 0, "an empty answer refuses nothing in words"),
    ],
}
MEASURES: dict[str, list[tuple[dict[str, Any], dict[str, Any], float | None, Outcome, str]]] = {
    "latency": [
        ({"max_s": 2}, {"duration_s": 1.5}, 1, Outcome.SCORED, "faster than allowed"),
        ({"max_s": 2}, {"duration_s": 2.0}, 1, Outcome.SCORED, "just in time"),
        ({"max_s": 2}, {"duration_s": 2.001}, 0, Outcome.SCORED, "a millisecond late"),
        ({"max_s": 0.1}, {"duration_s": 0.0}, 1, Outcome.SCORED, "no time at all"),
        ({"max_s": 2}, {"duration_s": 3600.0}, 0, Outcome.SCORED, "an hour"),
        ({"max_s": 2}, {}, None, Outcome.MISSING_FIELD, "a data set without durations"),
        ({"max_s": 3}, {"duration_s": 2.5}, 1, Outcome.SCORED, "another limit"),
        ({"max_s": 2.5}, {"duration_s": 2.5}, 1, Outcome.SCORED, "a limit that is no whole number"),
        ({"max_s": 1e9}, {"duration_s": 1e8}, 1, Outcome.SCORED, "years"),
        ({"max_s": 1e-6}, {"duration_s": 1e-5}, 0, Outcome.SCORED, "microseconds"),
        ({"max_s": 2}, {"duration_s": 1.5, "usage": {}}, 1, Outcome.SCORED, "usage does not matter"),
        ({"max_s": 2, "pass_at": 0.5}, {"duration_s": 9.0}, 0, Outcome.SCORED, "a pass mark changes no value"),
    ],
    "tokens": [
        ({"max": 100}, {"usage": {"input_tokens": 60, "output_tokens": 40}}, 1, Outcome.SCORED, "100 in all"),
        ({"max": 100}, {"usage": {"input_tokens": 60, "output_tokens": 41}}, 0, Outcome.SCORED, "101 in all"),
        (
            {"max": 50, "count": "output"},
            {"usage": {"input_tokens": 60, "output_tokens": 40}},
            1,
            Outcome.SCORED,
            "40 written",
        ),
        (
            {"max": 50, "count": "input"},
            {"usage": {"input_tokens": 60, "output_tokens": 40}},
            0,
            Outcome.SCORED,
            "60 read",
        ),
        ({"max": 50, "count": "input"}, {"usage": {"input_tokens": 50}}, 1, Outcome.SCORED, "output is not asked for"),
        ({"max": 50, "count": "output"}, {"usage": {"input_tokens": 50}}, None, Outcome.NO_VALUE, "output is unknown"),
        ({"max": 50}, {"usage": {"output_tokens": 5}}, None, Outcome.NO_VALUE, "half of a sum is not a sum"),
        ({"max": 50}, {"usage": {}}, None, Outcome.NO_VALUE, "nothing is known"),
        ({"max": 50}, {}, None, Outcome.MISSING_FIELD, "a data set without usage"),
        ({"max": 1}, {"usage": {"input_tokens": 0, "output_tokens": 0}}, 1, Outcome.SCORED, "zero is known"),
        ({"max": 10**9}, {"usage": {"input_tokens": 10**8, "output_tokens": 1}}, 1, Outcome.SCORED, "large counts"),
        ({"max": 1, "count": "output"}, {"usage": {"output_tokens": 2}}, 0, Outcome.SCORED, "one too many"),
    ],
}


@pytest.mark.parametrize(
    ("name", "params", "response", "value", "why"), [(name, *row) for name, rows in TEXTS.items() for row in rows]
)
def test_a_text_has_the_value_of_its_reason(
    name: str, params: dict[str, Any], response: str, value: float | None, why: str
) -> None:
    score = create(name, **params).score_sync(SingleTurnSample(response=response))

    assert score.value == value, why
    assert (score.outcome is Outcome.NO_VALUE) == (value is None)


@pytest.mark.parametrize(
    ("name", "params", "fields", "value", "outcome", "why"),
    [(name, *row) for name, rows in MEASURES.items() for row in rows],
)
def test_a_measure_has_the_value_of_its_reason(
    name: str, params: dict[str, Any], fields: dict[str, Any], value: float | None, outcome: Outcome, why: str
) -> None:
    score = create(name, **params).score_sync(SingleTurnSample.model_validate(fields))

    assert (score.value, score.outcome) == (value, outcome), why


def test_every_check_has_twelve_cases() -> None:
    assert {name: len(rows) for name, rows in (TEXTS | MEASURES).items()} == dict.fromkeys(TEXTS | MEASURES, 12)


@pytest.mark.parametrize("name", ["contains_pii", "refusal_words"])
def test_a_text_that_has_it_fails_and_one_that_lacks_it_passes(name: str) -> None:
    bad = create(name).score_sync(SingleTurnSample(response="I can't help; write to ada@example.org."))
    good = create(name).score_sync(SingleTurnSample(response="It opened in 1931."))

    assert (bad.value, bad.quality, bad.label) == (1.0, 0.0, "fail")
    assert (good.value, good.quality, good.label) == (0.0, 1.0, "pass")


def test_personal_data_is_counted_and_never_quoted() -> None:
    text = "ada@example.org, bob@example.org, 4111 1111 1111 1111"

    explanation = create("contains_pii").score_sync(SingleTurnSample(response=text)).explanation

    assert explanation == "card: 1, mail: 2"


def test_a_fault_by_the_schema_is_named_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "person.json"
    file.write_text(json.dumps(PERSON))

    score = create("json_schema", schema=str(file)).score_sync(SingleTurnSample(response='{"name": "Ada", "age": -1}'))

    assert score.explanation == "$.age: -1 is less than the minimum of 0"


def test_a_reference_to_another_host_is_not_followed() -> None:
    metric = create("json_schema", schema={"$ref": "http://127.0.0.1:9/person.json"})

    assert metric.score_sync(SingleTurnSample(response="{}")).outcome is Outcome.METRIC_ERROR


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("regex", {}, "regex: no pattern is given; give must, must_not or both"),
        ("regex", {"must": "("}, "regex: must is not a regular expression"),
        ("json_schema", {"schema": {"type": "text"}}, "json_schema: schema is not a JSON Schema"),
        ("json_schema", {"schema": "absent.json"}, "json_schema: schema cannot be read as a JSON file"),
        ("length", {}, "length: min is None and max is None; give one of them"),
        ("length", {"min": 3, "max": 2}, "length: min is 3 and max is 2"),
        ("length", {"max": 2, "unit": "pages"}, "length: unit is 'pages'; it is one of characters, words, sentences"),
        ("latency", {"max_s": 0}, "latency: max_s is 0; it must be a number above 0"),
        ("tokens", {"max": 10, "count": "all"}, "tokens: count is 'all'; it is one of total, input, output"),
        ("language_is", {"language": "klingon"}, "language_is: language is 'klingon'; allowed are English names"),
        ("contains_pii", {"kinds": ["name"]}, "allowed are mail, phone, card, iban"),
        ("citation_present", {"min": 0}, "citation_present: min is 0; it must be a number above 0"),
        ("refusal_words", {"words": [""]}, "refusal_words: words is ['']; give at least one phrase"),
    ],
)
def test_a_wrong_parameter_is_refused_with_what_is_allowed(name: str, params: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        create(name, **params)

    assert message in str(refused.value)


def test_counts_under_the_names_of_the_chat_api_are_read_from_stored_data() -> None:
    from spanscore.core.codecs.stored_sample import sample_of

    record = {
        "response": "x",
        "usage": '{"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}',
        "duration_s": "1.5",
    }

    sample = sample_of(record, texts=True)

    assert sample == SingleTurnSample(response="x", duration_s=1.5, usage=TokenUsage(input_tokens=3, output_tokens=4))
