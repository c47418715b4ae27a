"""The sinks ``webhook``, ``phoenix`` and ``langfuse`` on the real line, with a receiver on loopback."""

from __future__ import annotations

import json
import logging
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.live import ANSWER, QUESTION, Grounded, a_line, rag
from tests.servers.otlp import dead_endpoint
from tests.servers.server import free_port, poll
from tests.service.backend import RawBackend, Reply

from spanscore import OnlineScorer
from spanscore.config import Capture, Outputs, Spool
from spanscore.durable.sink_outbox import SinkOutboxState
from spanscore.durable.spool import inspect_spool
from spanscore.errors import ConfigurationError, NotReadyError
from spanscore.outputs.http_sink import Destination
from spanscore.outputs.webhook import WebhookSink
from spanscore.testing import MemorySink

WRONG = "Lyon is the capital of France."
JSON = {"Content-Type": "application/json"}


@pytest.fixture
def receiver() -> Iterator[RawBackend]:
    with RawBackend() as backend:
        backend.reply(Reply(headers=JSON))
        yield backend


def webhook(url: str, **parameters: Any) -> Outputs:
    return Outputs(sinks=[{"webhook": {"url": f"{url}/hook?key=a", "when": ["grounded<0.5"], **parameters}}])


def ask(scorer: OnlineScorer, units: int = 1, answer: str = WRONG) -> None:
    rag(answer).batch([QUESTION] * units, config={"callbacks": [scorer.handler]})
    assert scorer.flush(10)


def state(scorer: OnlineScorer) -> SinkOutboxState:
    (found,) = scorer.status().sinks
    return found


def counts(scorer: OnlineScorer) -> tuple[int, int, int]:
    now = state(scorer)
    return now.sent, now.waiting, now.dropped


def until(what: str, condition: Any) -> None:
    poll(condition, deadline_s=20, what=what)


def ids(receiver: RawBackend) -> list[str]:
    return [request.headers["webhook-id"] for request in receiver.taken]


def test_a_failing_unit_gives_one_message_although_its_scores_come_one_by_one(receiver: RawBackend) -> None:
    with a_line(Grounded(), Grounded("other"), outputs=webhook(receiver.endpoint)) as (scorer, trace):
        ask(scorer, answer=ANSWER)
        ask(scorer)
        until("the message", lambda: counts(scorer) == (1, 0, 0))
        row = f"sink webhook: 1 sent to {receiver.endpoint}"

        assert row in str(scorer.status())
    (request,) = receiver.taken
    data = json.loads(request.body)["data"]
    assert request.path == "/hook?key=a"
    assert data["trace_id"] in {f"{root.context.trace_id:032x}" for root in trace.roots}
    assert [score["metric"] for score in data["scores"]] == ["grounded", "other"]


def test_texts_leave_only_with_content_and_as_the_redactor_returns_them(receiver: RawBackend) -> None:
    for content in (False, True):
        with a_line(
            outputs=webhook(receiver.endpoint, content=None),
            capture=Capture(content=content),
            redactor=lambda text: text.replace("Lyon", "(city)"),
        ) as (scorer, _):
            ask(scorer)
            until("the message", lambda scorer=scorer: state(scorer).sent == 1)

    without, with_ = (request.body.decode() for request in receiver.taken)
    assert "capital of France" not in without
    assert json.loads(with_)["data"]["answer"] == "(city) is the capital of France."
    assert "Lyon" not in with_


def test_a_receiver_that_fails_gets_the_same_message_again(receiver: RawBackend) -> None:
    receiver.reply(lambda request: Reply(500 if len(receiver.arrived) < 3 else 200, headers=JSON))
    with a_line(outputs=webhook(receiver.endpoint)) as (scorer, _):
        ask(scorer)
        until("the message", lambda: counts(scorer) == (1, 0, 0))

    assert len({request.headers["webhook-id"] for request in receiver.arrived}) == 1
    assert len(receiver.arrived) == 3


def test_a_refusal_for_good_is_counted_and_the_address_stays_out_of_log_and_status(
    receiver: RawBackend, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.reply(Reply(404, headers=JSON))
    with caplog.at_level(logging.WARNING), a_line(outputs=webhook(receiver.endpoint)) as (scorer, _):
        ask(scorer)
        until("the refusal", lambda: counts(scorer) == (0, 0, 1))
        text = f"{scorer.status()} {caplog.text}"

    assert "1 dropped (latest: HTTP 404)" in text
    assert "/hook" not in text


def test_no_redirect_is_followed_and_the_message_waits(receiver: RawBackend) -> None:
    with RawBackend() as other:
        receiver.reply(Reply(307, headers={"Location": f"{other.endpoint}/hook"}))
        with a_line(outputs=webhook(receiver.endpoint)) as (scorer, _):
            ask(scorer)
            until("the redirect", lambda: "the endpoint has moved" in state(scorer).trouble)
            waiting = state(scorer).waiting
            receiver.reply(Reply(headers=JSON))
            until("the message", lambda: counts(scorer) == (1, 0, 0))

        assert waiting == 1
        assert other.arrived == []


def test_a_receiver_that_hangs_delays_neither_the_application_nor_the_span_thread(receiver: RawBackend) -> None:
    receiver.reply(Reply(hangs=True))
    sink = MemorySink()
    outputs = Outputs(sinks=[*webhook(receiver.endpoint).sinks, sink])
    with a_line(outputs=outputs) as (scorer, _):
        rag(WRONG).invoke(QUESTION, config={"callbacks": [scorer.handler]})
        assert receiver.wait_for(lambda: receiver.arrived)
        rag(WRONG).invoke(QUESTION, config={"callbacks": [scorer.handler]})
        until("the scores", lambda: len(sink.emitted) == 2)

        assert counts(scorer) == (0, 2, 0)
        assert scorer.shutdown(2)
        assert counts(scorer) == (0, 0, 2)
    assert state(scorer).last_loss == "the drain ended first"


def test_messages_wait_for_a_receiver_that_starts_later() -> None:
    port = free_port()
    with a_line(outputs=webhook(f"http://127.0.0.1:{port}")) as (scorer, _):
        ask(scorer, 3)
        until("a failure", lambda: state(scorer).trouble)
        with RawBackend(port) as receiver:
            until("the messages", lambda: counts(scorer) == (3, 0, 0))

            assert len({*ids(receiver)}) == 3


def test_waiting_messages_are_sent_at_shutdown(receiver: RawBackend) -> None:
    receiver.reply(Reply(503, headers=JSON))
    with a_line(outputs=webhook(receiver.endpoint)) as (scorer, _):
        ask(scorer, 2)
        until("a failure", lambda: state(scorer).trouble)
        receiver.reply(Reply(headers=JSON))
        assert scorer.shutdown(10)

        assert counts(scorer) == (2, 0, 0)


def test_no_request_is_made_on_the_span_thread_or_the_loop(
    receiver: RawBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = {"made": set[str](), "sent": set[str]()}

    def watch(kind: str, call: Any) -> Any:
        def watched(*arguments: Any) -> Any:
            threads[kind].add(threading.current_thread().name)
            return call(*arguments)

        return watched

    monkeypatch.setattr(WebhookSink, "emit_job", watch("made", WebhookSink.emit_job))
    opened = WebhookSink.__init__

    def open_watched(self: Any, open_outbox: Any, **more: Any) -> None:
        def opener(destination: Destination) -> Any:
            return open_outbox(
                Destination(name=destination.name, url=destination.url, request=watch("sent", destination.request))
            )

        opened(self, opener, **more)

    monkeypatch.setattr(WebhookSink, "__init__", open_watched)
    with a_line(outputs=webhook(receiver.endpoint)) as (scorer, _):
        ask(scorer)
        until("the message", lambda: state(scorer).sent == 1)

    assert threads == {"made": {"spanscore-loop"}, "sent": {"spanscore-webhook"}}


def test_a_condition_on_an_unknown_metric_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"webhook\.when names grounded, which is not a metric here"):
        OnlineScorer([Grounded("other")], outputs=webhook("http://127.0.0.1:9"))


def test_langfuse_without_a_key_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LANGFUSE_SECRET_KEY", raising=False)
    with pytest.raises(NotReadyError, match="langfuse has no secret_key; set the variable LANGFUSE_SECRET_KEY"):
        OnlineScorer([Grounded()], outputs=Outputs(sinks=[{"langfuse": {"public_key": "pk"}}]))


# --- on a disk --------------------------------------------------------------------------------------------------------


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(path=tmp_path / "spool.db")


def test_messages_on_a_disk_are_sent_by_the_next_process_once(receiver: RawBackend, spool: Spool) -> None:
    with a_line(outputs=webhook(dead_endpoint()), spool=spool) as (scorer, _):
        ask(scorer, 3)
        until("the rows", lambda: counts(scorer) == (0, 3, 0))
        until("the units to leave", lambda: inspect_spool(Path(spool.path)).state.depth == 0)

        assert inspect_spool(Path(spool.path)).state.messages == {"webhook": 3}

    with a_line(outputs=webhook(receiver.endpoint), spool=spool) as (scorer, _):
        until("the messages", lambda: counts(scorer) == (3, 0, 0))

    assert len(ids(receiver)) == len({*ids(receiver)}) == 3


def test_messages_on_a_disk_fill_half_of_the_spool_at_most(tmp_path: Path) -> None:
    small = Spool(path=tmp_path / "spool.db", max_bytes=200_000)
    with a_line(outputs=webhook(dead_endpoint(), per_hour=10_000), spool=small) as (scorer, _):
        for _ in range(40):
            if not state(scorer).dropped:
                ask(scorer, 20)
        until("a drop", lambda: state(scorer).dropped)
        ask(scorer, 1, answer=ANSWER)

        assert state(scorer).last_loss == "spool: max_bytes"
        assert scorer.status().outcomes["grounded"].keys() == {"scored"}


KILLED = """
import sys
from tests.live import QUESTION, Grounded, a_trace, rag
from spanscore import OnlineScorer
from spanscore.config import Outputs, Spool

sinks = [{"webhook": {"url": sys.argv[1], "when": ["grounded<0.5"]}}]
scorer = OnlineScorer(
    [Grounded()], outputs=Outputs(sinks=sinks), spool=Spool(path=sys.argv[2]), tracer_provider=a_trace().provider
)
for _ in range(4):
    rag("Lyon.").invoke(QUESTION, config={"callbacks": [scorer.handler]})
print("asked", flush=True)
sys.stdin.read()
"""


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kill_at", [1, 3])
def test_kill_9_loses_no_message_and_repeats_only_an_id(receiver: RawBackend, spool: Spool, kill_at: int) -> None:
    receiver.reply(lambda request: Reply(200 if len(receiver.taken) < kill_at else 503, headers=JSON))
    command = [sys.executable, "-c", KILLED, receiver.endpoint, str(spool.path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "asked\n"
        assert receiver.wait_for(lambda: len(receiver.arrived) > kill_at)
        poll(lambda: units_of(spool) == 4, deadline_s=20, what="the units on the disk or done")
        process.kill()

    receiver.reply(Reply(headers=JSON))
    with a_line(outputs=webhook(receiver.endpoint), spool=spool) as (scorer, _):
        scorer.start_workers()
        until("the messages", lambda: len({*ids(receiver)}) == 4 and not state(scorer).waiting)

    assert len({*ids(receiver)}) == 4


def units_of(spool: Spool) -> int:
    """The number of units that were written to the disk, still there or done, and of messages without a unit."""
    with sqlite3.connect(spool.path) as file:
        done = {bytes(key) for (key,) in file.execute("SELECT key FROM done")}
        waiting = {bytes(key) for (key,) in file.execute("SELECT key FROM rows WHERE kind = 'job'")}
    return len(done | waiting)
