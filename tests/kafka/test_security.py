"""A worker that shows the brokers a certificate or a token, by properties that are passed on to the client library."""

from __future__ import annotations

import json
import shutil
import subprocess
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from time import time

import pytest
from tests.kafka.scenes import send, traces
from tests.kafka.worker import Worker, configured, working
from tests.servers.kafka import READER, Kafka, running

from spanscore.errors import ConfigurationError, SourceUnavailable

pytestmark = pytest.mark.server

OPENSSL = shutil.which("openssl")
SECRET = "client-secret"


def test_a_client_with_a_token_reads(kafka: Kafka, topic: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"principal={READER}")
    kafka.allow("READ", topic=topic)
    kafka.allow("READ", group=f"{topic}-workers")
    send(kafka, topic, traces(2))
    section = {
        "brokers": [kafka.with_password],
        "security": {"protocol": "SASL_PLAINTEXT", "mechanism": "OAUTHBEARER"},
        "client": {
            "enable.sasl.oauthbearer.unsecure.jwt": True,
            "sasl.oauthbearer.config": {"file": str(tmp_path / "token")},
        },
    }

    with working(configured(tmp_path, kafka, topic, kafka=section)) as worker:
        worker.until(lambda: worker.outcomes == {"scored": 2})


def test_a_client_that_fetches_its_tokens_reads(kafka: Kafka, topic: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(SECRET)
    kafka.allow("READ", topic=topic)
    kafka.allow("READ", group=f"{topic}-workers")
    send(kafka, topic, traces(2))
    with token_endpoint() as (url, asked):
        client = {
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": url,
            "sasl.oauthbearer.client.id": "spanscore",
            "sasl.oauthbearer.client.secret": {"file": str(tmp_path / "secret")},
        }
        security = {"protocol": "SASL_PLAINTEXT", "mechanism": "OAUTHBEARER"}
        section = {"brokers": [kafka.with_password], "security": security, "client": client}

        with working(configured(tmp_path, kafka, topic, kafka=section)) as worker:
            worker.until(lambda: worker.outcomes == {"scored": 2})

    assert {*asked} == {
        ("grant_type=client_credentials", f"Basic {b64encode(f'spanscore:{SECRET}'.encode()).decode()}")
    }


@contextmanager
def token_endpoint() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Serve OpenID Connect's token endpoint with unsigned tokens, which the broker takes; yield its URL, and its requests."""
    asked = list[tuple[str, str]]()

    class TokenHandler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            form = self.rfile.read(int(self.headers["Content-Length"])).decode()
            asked.append((form, self.headers["Authorization"]))
            now_s = int(time())
            claims = {"sub": READER, "iat": now_s, "exp": now_s + 300}
            token = ".".join([*map(_part, ({"alg": "none"}, claims)), ""])
            answer = json.dumps({"access_token": token, "token_type": "Bearer", "expires_in": 300}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *arguments: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), TokenHandler) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/token", asked
        server.shutdown()
        thread.join()


def _part(claims: Mapping[str, object]) -> str:
    return urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")


@pytest.mark.skipif(OPENSSL is None, reason="there is no openssl, which makes the certificate")
def test_only_a_client_with_a_certificate_reads(kafka: Kafka, tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    (tmp_path / "broker.pem").write_text(key.read_text() + cert.read_text())
    properties = {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SSL,CONTROLLER:PLAINTEXT",
        "ssl.client.auth": "required",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(tmp_path / "broker.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(cert),
        "super.users": "User:ANONYMOUS;User:CN=localhost",
    }
    (tmp_path / "broker").mkdir()
    with running(tmp_path / "broker", properties) as broker:
        broker.create("spans", 2)
        send(broker, "spans", traces(2))
        security = {"protocol": "SSL", "ca": str(cert)}
        section = {"brokers": [broker.with_password], "security": security}
        shown = {"ssl.certificate.location": str(cert), "ssl.key.location": str(key)}
        without = Worker(configured(tmp_path, broker, "spans", "without.yaml", kafka=section))

        with pytest.raises(SourceUnavailable):
            without.source.start(5.0)
        without.end()
        with working(configured(tmp_path, broker, "spans", kafka={**section, "client": shown})) as worker:
            worker.until(lambda: worker.outcomes == {"scored": 2})


def test_a_property_that_the_client_library_lacks_is_named(kafka: Kafka, topic: str, tmp_path: Path) -> None:
    file = configured(tmp_path, kafka, topic, kafka={"client": {"ssl.no.such": "x"}})

    with pytest.raises(ConfigurationError, match=r'kafka\.client .*"ssl\.no\.such"'):
        Worker(file)


def certificate(folder: Path) -> tuple[Path, Path]:
    """Make a certificate of localhost for broker and client; return its file, and that of its key."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    made = f"req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -keyout {key} -out {cert}"
    command = [str(OPENSSL), *made.split(), "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run(command, check=True, capture_output=True)
    return cert, key
