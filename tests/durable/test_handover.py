"""Units on their way to another process that scores them, with scripted responses of that process."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from tests.durable.application import METRICS, TOKEN, application, run, token_file
from tests.live import ANSWER, identity_holds
from tests.servers.otlp import dead_endpoint
from tests.servers.server import poll as _poll
from tests.service.backend import RawBackend, Reply

from spanscore import ConfigurationError, Rule, SingleTurnSample, semconv
from spanscore.config import FeedbackSampling, Limits, Monitoring, Outputs, RemoteScoring, RuleCondition, Sampling
from spanscore.testing import MemorySink

ALL: dict[str, Any] = {"sampling": Sampling()}


@pytest.fixture
def other() -> Iterator[RawBackend]:
    with RawBackend() as backend:
        yield backend


@pytest.fixture
def at(tmp_path: Path, other: RawBackend) -> RemoteScoring:
    return RemoteScoring(endpoint=other.endpoint, token_file=token_file(tmp_path), timeout=0.5)


def poll(condition: Callable[[], object]) -> bool:
    _poll(condition, deadline_s=20, what="it to be so")
    return True


def outcomes(scorer: Any, metric: str = METRICS[0]) -> dict[str, int]:
    return {name: units for name, units in scorer.status().outcomes[metric].items() if units}


def shown(scorer: Any) -> str:
    """Return the status without the line breaks of a table, which depend on the width."""
    return " ".join(str(scorer.status()).split())


def spans_in(other: RawBackend) -> list[Any]:
    requests = [ExportTraceServiceRequest.FromString(one.body) for one in other.taken]
    return [span for one in requests for of in one.resource_spans for scope in of.scope_spans for span in scope.spans]


def test_the_own_backend_gets_its_spans_as_they_are_and_the_copy_has_the_content(
    other: RawBackend, at: RemoteScoring
) -> None:
    with application(at, **ALL) as (scorer, trace):
        run(scorer, 1)
        assert scorer.flush(10)

    (root,) = trace.roots
    assert root.attributes["spanscore.status"] == "delegated"
    assert ANSWER[:5] not in "".join(str(span.to_json()) for span in trace.spans)
    assert {span.name for span in spans_in(other)} == {span.name for span in trace.spans}
    assert b"asked 0 times" in other.taken[0].body
    assert other.taken[0].headers["authorization"] == f"Bearer {TOKEN}"


@pytest.mark.parametrize("status", [401, 429, 503])
def test_a_unit_waits_until_it_has_been_answered_for(other: RawBackend, at: RemoteScoring, status: int) -> None:
    other.reply(Reply(status))
    with application(at, **ALL) as (scorer, _):
        run(scorer, 3)
        assert poll(lambda: other.arrived)
        flushed, pending = scorer.flush(0.2), scorer.status().pending[METRICS[0]]
        other.reply(Reply())
        assert scorer.flush(20)

        assert (flushed, pending) == (False, 3)
        assert outcomes(scorer) == {"delegated": 3}
        assert identity_holds(scorer)


def test_one_that_hangs_is_asked_again(other: RawBackend, at: RemoteScoring) -> None:
    other.reply(Reply(hangs=True))
    with application(at, **ALL) as (scorer, _):
        run(scorer, 1)
        assert poll(lambda: len(other.arrived) > 1)
        other.reply(Reply())
        assert scorer.flush(20)

        assert outcomes(scorer) == {"delegated": 1}


def test_past_the_queue_units_are_not_taken_and_the_rest_are_settled_at_the_end(tmp_path: Path) -> None:
    nobody = RemoteScoring(endpoint=dead_endpoint(), token_file=token_file(tmp_path))
    with application(nobody, limits=Limits(queue_size=2), **ALL) as (scorer, trace):
        run(scorer, 5)
        assert poll(lambda: outcomes(scorer) == {"queue_full": 3})
        assert poll(lambda: "2 wait to be accepted there (connection refused)" in " ".join(scorer.status().notes))
        scorer.shutdown(0.5)

        assert outcomes(scorer) == {"queue_full": 3, "shutdown": 2}
        assert identity_holds(scorer)
    assert len(trace.roots) == 5


def test_a_copy_that_is_refused_for_good_is_counted(other: RawBackend, at: RemoteScoring) -> None:
    other.reply(Reply(413))
    with application(at, **ALL) as (scorer, trace):
        run(scorer, 1)
        assert scorer.flush(10)
        (explained,) = scorer.explain(f"{trace.roots[0].context.trace_id:032x}")

    assert outcomes(scorer) == {"queue_full": 1}
    assert explained["metrics"][METRICS[0]]["reason"] == "remote_scoring: HTTP 413"


def test_nothing_leaves_that_was_not_redacted(other: RawBackend, at: RemoteScoring) -> None:
    with application(at, redactor=lambda text: text.replace("Paris", "…"), **ALL) as (scorer, _):
        run(scorer, 2)
        assert scorer.flush(10)

    assert outcomes(scorer) == {"delegated": 2}
    assert b"Paris" not in b"".join(one.body for one in other.arrived)
    assert "…".encode() in other.taken[0].body


def test_of_the_metadata_only_listed_values_leave(other: RawBackend, at: RemoteScoring) -> None:
    with application(at, monitoring=Monitoring(dimensions={"tier": ["gold"]}), **ALL) as (scorer, _):
        run(scorer, 2)
        assert scorer.flush(10)

    rows = [pair for span in spans_in(other) for pair in span.attributes if pair.key == "spanscore.metadata.tier"]
    assert [pair.value.string_value for pair in rows] == ["gold"]


def refuse(text: str) -> str:
    raise ValueError(text)


@pytest.mark.parametrize("redactor", [refuse, lambda _: None])
def test_where_the_redactor_fails_nothing_leaves(other: RawBackend, at: RemoteScoring, redactor: Any) -> None:
    with application(at, redactor=redactor, **ALL) as (scorer, _):
        run(scorer, 2)
        assert scorer.flush(10)

    assert outcomes(scorer) == {"redaction_error": 2}
    assert other.arrived == []


def test_what_the_filter_leaves_out_does_not_leave(other: RawBackend, at: RemoteScoring) -> None:
    with application(at, sample_filter=lambda sample: "asked 1 times" in sample.response, **ALL) as (scorer, _):
        run(scorer, 3)
        assert scorer.flush(10)

    assert outcomes(scorer) == {"delegated": 1, "filtered": 2}
    assert b"asked 0 times" not in b"".join(one.body for one in other.arrived)


def test_a_submitted_sample_goes_along(other: RawBackend, at: RemoteScoring) -> None:
    with application(at, **ALL) as (scorer, _):
        scorer.submit(SingleTurnSample(user_input="Where?", response="In Paris."))
        assert scorer.flush(10)

    assert outcomes(scorer) == {"delegated": 1}
    assert b"In Paris." in other.taken[0].body


def test_no_judge_is_asked_and_no_sink_is_called_here(other: RawBackend, at: RemoteScoring) -> None:
    sink = MemorySink()
    with application(at, outputs=Outputs(sinks=[sink]), **ALL) as (scorer, trace):
        run(scorer, 2)
        assert scorer.flush(10)

    assert sink.scores == []
    assert not [span for span in trace.spans if span.instrumentation_scope.name == semconv.SCOPE]


def test_the_token_is_nowhere_to_be_seen(
    other: RawBackend, at: RemoteScoring, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other.reply(Reply(401))
    with application(at, **ALL) as (scorer, _), caplog.at_level(logging.DEBUG, "spanscore"):
        run(scorer, 1)
        assert poll(lambda: "HTTP 401" in shown(scorer))
        (tmp_path / "token").write_text(f"{TOKEN}\n{TOKEN}")
        assert poll(lambda: "characters that a header cannot carry" in shown(scorer))
        status_text = f"{scorer.status()} {scorer.status()!r} {at!r} {caplog.text}"

    assert TOKEN not in status_text


def test_a_token_that_was_changed_is_sent_from_then_on(other: RawBackend, at: RemoteScoring, tmp_path: Path) -> None:
    other.reply(Reply(401))
    with application(at, **ALL) as (scorer, _):
        run(scorer, 1)
        assert poll(lambda: other.arrived)
        (tmp_path / "token").write_text("another")
        other.reply(Reply())
        assert scorer.flush(10)

    assert other.taken[0].headers["authorization"] == "Bearer another"


@pytest.mark.parametrize(
    ("sampling", "named"),
    [
        (
            Sampling(rules=[Rule(rate=1.0, when=RuleCondition(score={"metric": METRICS[1], "below": 0.5}))]),
            "sampling.rules",
        ),
        (Sampling(feedback=FeedbackSampling(rate=0.5)), "sampling.feedback"),
    ],
)
def test_what_needs_scores_in_this_process_is_refused(at: RemoteScoring, sampling: Sampling, named: str) -> None:
    with (
        pytest.raises(ConfigurationError, match=f"{named} cannot be combined with remote_scoring"),
        application(at, sampling=sampling),
    ):
        pass


def test_without_a_token_nothing_starts(tmp_path: Path) -> None:
    nowhere = RemoteScoring(endpoint="https://scorer:4318", token_file=tmp_path / "token")
    said = r"remote_scoring\.token_file: the file .*token is missing"
    with pytest.raises(ConfigurationError, match=said), application(nowhere):
        pass


def test_a_forked_child_hands_over_its_own_units_alone(other: RawBackend, at: RemoteScoring) -> None:
    other.reply(Reply(503))
    with application(at, **ALL) as (scorer, _):
        run(scorer, 1)
        assert poll(lambda: other.arrived)
        child = os.fork()
        if not child:
            other.arrived.clear()
            status = 1
            try:
                run(scorer, 2)
                scorer.flush(0.2)
                status = 0 if scorer.status().eligible[METRICS[0]] == 2 else 2
            finally:
                os._exit(status)
        _, ended = os.waitpid(child, 0)
        other.reply(Reply())
        assert scorer.flush(20)

        assert os.waitstatus_to_exitcode(ended) == 0
        assert outcomes(scorer) == {"delegated": 1}
