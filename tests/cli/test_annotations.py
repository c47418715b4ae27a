"""``spanscore annotations import``: a file of labels reaches a backend; errors name the line."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.integrations.langfuse_contract import PUBLIC_KEY, SECRET_KEY, Langfuse
from tests.live import a_line
from tests.servers.otlp import OtlpReceiver
from typer.testing import CliRunner, Result

from spanscore import semconv
from spanscore.cli.main import app
from spanscore.config import Capture
from spanscore.errors import ConfigurationError

IDS = {"trace_id": "0af7651916cd43dd8448eb211c80319c", "span_id": "b7ad6b7169203331"}
BAD = {"human": "bad", **IDS, "when": 1_772_323_200}


METRICS = '[exact_match, {aspect_critic: {name: harmless, definition: "Is it free of harm?"}}]'


def imported(tmp_path: Path, *lines: dict[str, Any], outputs: str = "{}", more: str = "") -> Result:
    (tmp_path / "labels.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "spanscore.yaml").write_text(
        f"metrics: {METRICS}\nfeedback_scales: {{user_feedback: [bad, ok, good]}}\noutputs: {outputs}\n{more}"
    )
    files = [str(tmp_path / "labels.jsonl"), "--config", str(tmp_path / "spanscore.yaml")]
    return CliRunner().invoke(app("annotations"), ["annotations", "import", *files, "--json"])


def test_labels_of_a_file_arrive_with_the_ids_that_feedback_gives_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with a_line(feedback_scales={"user_feedback": ["bad", "ok", "good"]}) as (scorer, trace):
        scorer.feedback(IDS["trace_id"], "bad", span_id=IDS["span_id"], when=1_772_323_200)
        assert scorer.flush(10)
    with OtlpReceiver() as backend:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", backend.endpoint)
        result = imported(tmp_path, BAD, BAD, {"human": "good", "key": "order-1"})

        document = json.loads(result.stdout)
        assert (result.exit_code, document["sent"], document["repeated"], document["delivered"]) == (0, 2, 1, True)
        (span,) = backend.spans
        assert span.span_id == trace.named("evaluation")[0].context.span_id


@pytest.mark.parametrize("secret_key", [SECRET_KEY, "sk-lf-wrong"])
def test_labels_go_to_the_sinks_of_trace_stores_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, secret_key: str
) -> None:
    monkeypatch.setenv("LANGFUSE_PUBLIC_KEY", PUBLIC_KEY)
    monkeypatch.setenv("LANGFUSE_SECRET_KEY", secret_key)
    with Langfuse() as langfuse, OtlpReceiver() as backend:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", backend.endpoint)
        monkeypatch.setenv("LANGFUSE_BASE_URL", langfuse.endpoint)
        result = imported(tmp_path, BAD, outputs="{sinks: [langfuse]}")

    is_right = secret_key == SECRET_KEY
    assert json.loads(result.stdout)["delivered"] is is_right
    assert [score["value"] for score in langfuse.scores.values()] == ["bad"] * is_right


def without_digits(text: str) -> str:
    if "secret" in text:
        raise ValueError(text)
    return re.sub(r"\d", "#", text)


@pytest.mark.parametrize("comment", ["call 0441", "a secret"])
def test_an_imported_label_is_the_span_that_feedback_exports_with_its_texts_redacted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, comment: str
) -> None:
    texts = {"annotator": "ann 7", "comment": comment}
    settings = {"feedback_scales": {"user_feedback": ["bad", "ok", "good"]}, "capture": Capture(content=True)}
    with a_line(redactor=without_digits, **settings) as (scorer, trace):
        scorer.feedback(IDS["trace_id"], "bad", span_id=IDS["span_id"], when=1_772_323_200, **texts)
        assert scorer.flush(10)
    with OtlpReceiver() as backend:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", backend.endpoint)
        redacting = f"redactor: {__name__}:without_digits\ncapture: {{content: true}}\n"
        assert json.loads(imported(tmp_path, {**BAD, **texts}, more=redacting).stdout)["sent"] == 1

        (span,), (own,) = backend.spans, trace.named("evaluation")
        assert (span.span_id, span.attributes) == (own.context.span_id, dict(own.attributes))
        assert span.attributes[semconv.ANNOTATOR] == "ann #"
        assert span.attributes.get(semconv.EVALUATION_EXPLANATION) == ("call ####" if comment == "call 0441" else None)


def test_a_label_with_the_name_of_a_configured_metric_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with OtlpReceiver() as backend:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", backend.endpoint)
        result = imported(tmp_path, {"human": True, "name": "harmless", **IDS})

    (fault,) = json.loads(result.stdout)["faults"]
    assert fault == "line 1: 'harmless' is a metric of this scorer; give the label another name"


def test_a_wrong_line_is_reported_and_the_others_are_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with OtlpReceiver() as backend:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", backend.endpoint)
        result = imported(tmp_path, {"human": "soso", **IDS}, {"human": "bad"}, BAD, {"humen": 1})

        document = json.loads(result.stdout)
        assert (result.exit_code, document["sent"], document["wrong"], len(backend.spans)) == (1, 1, 3, 1)
        assert [fault.split(":")[0] for fault in document["faults"]] == ["line 1", "line 2", "line 4"]
        assert "bad, ok, good" in document["faults"][0]


def test_what_no_backend_takes_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")

    result = imported(tmp_path, BAD)

    assert (result.exit_code, json.loads(result.stdout)["delivered"]) == (1, False)


def test_an_option_of_label_is_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(app("annotations"), ["annotations", "import", "labels.jsonl", "--metric", "polite"])

    assert isinstance(result.exception, ConfigurationError)
    assert "--metric" in str(result.exception)
