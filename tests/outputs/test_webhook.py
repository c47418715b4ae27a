"""Messages of the sink ``webhook``: the event, its forms, the limit of an hour, and the signature."""

from __future__ import annotations

import hmac
import json
import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import pytest

from spanscore import MultiTurnSample, SingleTurnSample
from spanscore.config.outputs import WebhookSettings
from spanscore.core.job import Job
from spanscore.core.sample import Samples
from spanscore.core.score import Outcome, Score
from spanscore.core.span import Session, Unit, UnitKey
from spanscore.errors import ConfigurationError
from spanscore.outputs.http_sink import Destination, HttpRequest, Message
from spanscore.outputs.webhook import WebhookSink
from spanscore.testing import make_score

URL = "https://hooks.example/services/T0/B0"
SECRET = f"whsec_{b64encode(bytes(range(32))).decode()}"
QUESTION, ANSWER = "What is the capital of France?", "Lyon is."


class Stage:
    """A webhook with the test's own clocks, whose messages are kept."""

    def __init__(self, *, content: bool = False, **settings: Any) -> None:
        self.now_s, self.messages = 0.0, list[Message]()
        self.due: list[tuple[float, Callable[[], Any]]] = []
        self.sink = WebhookSink(
            self.open_outbox,
            content,
            later=lambda seconds, work: self.due.append((self.now_s + seconds, work)),
            clock=lambda: self.now_s,
            wall_s=lambda: 1_700_000_000.25 + self.now_s,
            **{"url": URL, "when": ["grounded<0.5", "harmless=fail"], **settings},
        )

    def open_outbox(self, destination: Destination) -> Stage:
        self.destination = destination
        return self

    def put(self, message: Message) -> None:
        self.messages.append(message)

    def end_unit(self, number: int = 1, *scores: Score, samples: Samples | None = None, **unit: Any) -> None:
        samples = samples or Samples(single_turn=SingleTurnSample(user_input=QUESTION, response=ANSWER))
        job = Job(Unit(UnitKey(number, number), (), **unit), samples, {})
        self.sink.emit_job(job, scores or [make_score(0.25, metric="grounded")])

    def pass_time(self, seconds: float) -> None:
        self.now_s += seconds
        due, self.due = (
            [work for work in self.due if work[0] <= self.now_s],
            [work for work in self.due if work[0] > self.now_s],
        )
        for _, work in due:
            work()

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(message.body) for message in self.messages]

    def request(self) -> HttpRequest:
        """The request with the latest message."""
        return self.destination.request(self.messages[-1:])


def test_a_unit_that_meets_a_condition_gives_one_message_with_all_its_scores() -> None:
    stage = Stage(url_template="https://jaeger.example/trace/{trace_id}?span={span_id}")

    stage.end_unit(7, make_score(0.25, metric="grounded", probability=0.1), make_score(1.0, metric="harmless"))

    trace_id, span_id = f"{7:032x}", f"{7:016x}"
    (event,) = stage.events
    scores = event["data"].pop("scores")
    assert event == {
        "version": 1,
        "type": "unit.matched",
        "timestamp": "2023-11-14T22:13:20.250Z",
        "data": {
            "trace_id": trace_id,
            "span_id": span_id,
            "url": f"https://jaeger.example/trace/{trace_id}?span={span_id}",
            "matched": ["grounded<0.5"],
        },
    }
    assert [(one["metric"], one["value"], one["label"], one["outcome"]) for one in scores] == [
        ("grounded", 0.25, "fail", "scored"),
        ("harmless", 1.0, "pass", "scored"),
    ]
    assert scores[0]["probability"] == 0.1


@pytest.mark.parametrize(
    "scores",
    [
        [make_score(0.75, metric="grounded")],
        [make_score(None, metric="grounded", outcome=Outcome.TIMEOUT)],
        [make_score(0.25, metric="other")],
    ],
)
def test_a_unit_that_meets_no_condition_gives_no_message(scores: list[Score]) -> None:
    stage = Stage()

    stage.end_unit(1, *scores)

    assert stage.messages == []


def test_a_conversation_that_goes_on_gives_no_message() -> None:
    stage = Stage()

    stage.end_unit(session=Session("chat", 2, "open"))
    stage.end_unit(session=Session("chat", 3, "idle"))

    assert [event["data"]["turns"] for event in stage.events] == [3]


def test_scores_that_another_process_has_exported_give_no_message() -> None:
    stage = Stage()

    stage.end_unit(1, make_score(0.25, metric="grounded", sent=True))

    assert stage.messages == []


def test_texts_are_sent_only_with_content_and_are_cut() -> None:
    quoting = make_score(0.25, metric="grounded", explanation="because of Lyon")
    without, with_ = Stage(), Stage(content=True)
    long = Samples(single_turn=SingleTurnSample(user_input="Q" * 600, response=ANSWER))
    for stage in (without, with_):
        stage.end_unit(1, quoting, samples=long)

    assert not {"question", "answer"} & without.events[0]["data"].keys()
    assert "explanation" not in without.events[0]["data"]["scores"][0]
    data = with_.events[0]["data"]
    assert (data["question"], data["answer"]) == ("Q" * 499 + "…", ANSWER)
    assert data["scores"][0]["explanation"] == "because of Lyon"


def test_a_conversation_has_an_excerpt_of_its_end() -> None:
    talk = MultiTurnSample(user_input=[{"type": "human", "content": "Q" * 600}, {"type": "ai", "content": ANSWER}])
    stage = Stage(content=True)

    stage.end_unit(samples=Samples(multi_turn=talk), session=Session("chat", 1, "idle"))

    assert stage.events[0]["data"]["conversation"].endswith(ANSWER)
    assert len(stage.events[0]["data"]["conversation"]) == 500


def test_above_the_limit_units_are_counted_and_summarized_at_the_end_of_the_hour() -> None:
    stage = Stage(per_hour=2)
    for number in range(1, 6):
        stage.end_unit(number, make_score(0.0, metric="grounded"), make_score(float(number < 4), metric="harmless"))
    remark = stage.destination.remark()

    stage.pass_time(3_599.0)
    before = len(stage.messages)
    stage.pass_time(1.0)

    assert (before, remark) == (2, "3 units in summaries (per_hour)")
    assert stage.events[2]["type"] == "units.summarized"
    assert stage.events[2]["data"] == {"units": 3, "metrics": {"grounded": 3, "harmless": 2}}


def test_each_hour_begins_with_its_first_message_and_has_its_own_limit() -> None:
    stage = Stage(per_hour=1)
    for wait_s in (0.0, 10.0, 3_600.0, 10.0, 3_600.0):
        stage.pass_time(wait_s)
        stage.end_unit()

    kinds = [event["type"] for event in stage.events]
    assert kinds == [
        "unit.matched", "units.summarized", "unit.matched", "units.summarized", "unit.matched",
    ]  # fmt: skip


def test_the_summary_of_the_present_hour_is_sent_at_shutdown_once() -> None:
    stage = Stage(per_hour=1)
    stage.end_unit(1)
    stage.end_unit(2)

    stage.sink.shutdown()
    stage.sink.shutdown()
    stage.pass_time(3_600.0)

    assert [event["type"] for event in stage.events] == ["unit.matched", "units.summarized"]


def test_a_unit_that_comes_again_has_the_same_id_and_a_revision_another() -> None:
    stage = Stage()
    stage.end_unit(1)
    stage.end_unit(1)
    stage.end_unit(1, revision=1)

    first, again, revised = (message.id for message in stage.messages)
    assert first == again != revised


def test_a_message_is_signed_by_the_standard_webhooks_scheme_at_each_attempt() -> None:
    stage = Stage(secret=SECRET)
    stage.end_unit()
    first = stage.request()
    stage.pass_time(60.0)
    second = stage.request()

    for request, sent_at in ((first, "1700000000"), (second, "1700000060")):
        headers = request.headers
        text = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + request.body
        signature = hmac.digest(b64decode(SECRET.removeprefix("whsec_")), text, sha256)
        assert headers["webhook-timestamp"] == sent_at
        assert headers["webhook-signature"] == f"v1,{b64encode(signature).decode()}"
    assert first.headers["webhook-id"] == second.headers["webhook-id"] == stage.messages[0].id


def test_a_message_without_a_secret_has_no_signature() -> None:
    stage = Stage()
    stage.end_unit()

    assert [*stage.request().headers] == ["content-type", "webhook-id", "webhook-timestamp"]


def test_slack_gets_text_and_blocks_without_markup_of_users() -> None:
    stage = Stage(format="slack", content=True, url_template="https://t.example/{trace_id}")

    stage.end_unit(1, make_score(0.25, metric="grounded", explanation="<!channel> & more"))

    body = json.loads(stage.request().body)
    assert body["text"] == "spanscore: grounded&lt;0.5"
    assert [block["type"] for block in body["blocks"]] == ["section", "section"]
    assert "grounded 0.25 (fail): &lt;!channel&gt; &amp; more" in body["blocks"][0]["text"]["text"]
    assert body["blocks"][1]["text"]["text"] == f"<https://t.example/{1:032x}|Open the trace>"


def test_a_text_that_is_too_long_for_slack_is_cut_between_two_characters() -> None:
    stage = Stage(format="slack", content=True)

    stage.end_unit(1, *(make_score(0.25, metric=name, explanation="&" * 500) for name in ("grounded", "harmless")))

    text = json.loads(stage.request().body)["blocks"][0]["text"]["text"]
    assert 2_990 < len(text) <= 3_000
    assert re.search("&(?!amp;|lt;)", text) is None


def test_teams_gets_an_adaptive_card_with_a_link() -> None:
    stage = Stage(format="teams", per_hour=1, url_template="https://t.example/{trace_id}")

    stage.end_unit(1)
    stage.end_unit(2)
    stage.sink.shutdown()

    unit, summary = (event["attachments"][0] for event in stage.events)
    assert unit["contentType"] == "application/vnd.microsoft.card.adaptive"
    assert unit["content"]["actions"][0]["url"] == f"https://t.example/{1:032x}"
    assert [block["text"] for block in summary["content"]["body"]] == [
        "spanscore: 1 further unit met a condition in the last hour",
        "grounded: 1 unit",
    ]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"url": "hooks.example"}, "webhook.url: 'hooks.example' is no address of the web"),
        ({"when": []}, "webhook.when"),
        ({"when": ["grounded<<1"]}, "is no condition"),
        ({"format": "discord"}, "webhook.format"),
        ({"url_template": "https://t.example/"}, "is no address of a trace"),
        ({"url_template": "https://t.example/{trace_id}/{user}"}, "the placeholders are"),
        ({"secret": "whsec_c2hvcnQ="}, "24 to 64 random bytes"),
        ({"secret": SECRET.removeprefix("whsec_")}, "24 to 64 random bytes"),
    ],
)
def test_a_wrong_parameter_is_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=f"(?i){message}") as refused:
        WebhookSettings(**{"url": URL, "when": ["grounded<0.5"], **parameters})

    assert SECRET.removeprefix("whsec_") not in str(refused.value)
