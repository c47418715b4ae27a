"""The decorated programs, traced by MLflow."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

import mlflow
import mlflow.openai
from openai import OpenAI
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from tests.servers.otlp import OtlpReceiver
from tests.traces.decorated import decorated


def attach(provider: TracerProvider) -> None:
    """Let MLflow use the provider next to an endpoint, as in its documentation; the endpoint's data is not read."""
    receiver = OtlpReceiver().__enter__()  # until the process ends
    os.environ |= {
        "MLFLOW_USE_DEFAULT_TRACER_PROVIDER": "false",
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{receiver.endpoint}/v1/traces",
        "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
    }
    trace.set_tracer_provider(provider)
    mlflow.openai.autolog()


def programs(url: str) -> Mapping[str, Callable[[], object]]:
    """Return the programs, to be called: their model is at this address."""
    client = OpenAI(base_url=url, api_key="none")
    return decorated(client, lambda kind: mlflow.trace(span_type=kind.upper()))
