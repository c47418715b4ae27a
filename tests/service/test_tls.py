"""Both listeners under TLS, by files of a certificate made for the occasion."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from collections.abc import Iterator
from http.client import HTTPSConnection
from pathlib import Path

import grpc
import pytest
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as OverGrpc
from opentelemetry.sdk.trace.export import SpanExportResult
from tests.service.listening import PROTOBUF, Running, a_request, listening
from tests.service.process import a_run

from spanscore.config.serving import TlsSettings
from spanscore.errors import ConfigurationError
from spanscore.service.plan import certificate

OPENSSL = shutil.which("openssl")
pytestmark = pytest.mark.skipif(OPENSSL is None, reason="there is no openssl, which makes the certificate")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """``cert`` and ``key`` of localhost."""
    folder = tmp_path_factory.mktemp("tls")
    named = {name: str(folder / f"{name}.pem") for name in ("cert", "key")}
    made = f"req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -keyout {named['key']} -out {named['cert']}"
    command = [str(OPENSSL), *made.split(), "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run(command, check=True, capture_output=True)
    return named


@pytest.fixture
def up(files: dict[str, str]) -> Iterator[Running]:
    with listening(tls=files) as running:
        yield running


def test_http_is_encrypted(up: Running, files: dict[str, str]) -> None:
    connection = HTTPSConnection(up.http, context=ssl.create_default_context(cafile=files["cert"]), timeout=30)

    connection.request("POST", "/v1/traces", a_request("a"), PROTOBUF)

    assert connection.getresponse().status == 200
    assert len(up.receiver.spans) == 1


def test_grpc_is_encrypted(up: Running, files: dict[str, str]) -> None:
    trusted = grpc.ssl_channel_credentials(Path(files["cert"]).read_bytes())

    result = OverGrpc(up.grpc, credentials=trusted).export([a_run()])

    assert result is SpanExportResult.SUCCESS
    assert len(up.receiver.spans) == 1


def test_clients_without_encryption_are_refused(up: Running) -> None:
    with pytest.raises(OSError):  # noqa: PT011 (any error of the socket)
        up.post(a_request("a"))
    with grpc.insecure_channel(up.grpc) as channel, pytest.raises(grpc.RpcError):
        channel.unary_unary("/opentelemetry.proto.collector.trace.v1.TraceService/Export")(a_request("a"), timeout=30)

    assert up.receiver.spans == []


def test_a_key_with_a_password_is_reported_and_not_asked_for(files: dict[str, str], tmp_path: Path) -> None:
    locked = str(tmp_path / "locked.pem")
    command = [str(OPENSSL), *f"rsa -aes256 -passout pass:planted -in {files['key']} -out {locked}".split()]
    subprocess.run(command, check=True, capture_output=True)

    with pytest.raises(ConfigurationError, match="has a password"):
        certificate(TlsSettings(cert=files["cert"], key=locked))
