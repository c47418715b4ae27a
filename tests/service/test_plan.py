"""The plan of ``serve`` is printed, with the obstacles, before anything listens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spanscore.config.serving import ServeSettings
from spanscore.errors import ConfigurationError, NotReadyError
from spanscore.service.plan import addresses, describe_mode, describe_serve, problems, refuse_own_endpoint

FORWARD = {"endpoint": "http://me:pass@127.0.0.1:14318"}


def settings(**given: Any) -> ServeSettings:
    return ServeSettings.model_validate(given)


def wrong(**given: Any) -> list[str]:
    return [str(problem) for problem in problems(settings(**given))]


@pytest.fixture(autouse=True)
def _no_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ENDPOINT", "TRACES_ENDPOINT", "PROTOCOL"):
        monkeypatch.delenv(f"OTEL_EXPORTER_OTLP_{name}", raising=False)


def test_the_defaults_have_no_fault() -> None:
    assert wrong() == []


def test_it_tells_listeners_mode_and_where_to_without_credentials() -> None:
    assert [*describe_serve(settings(grpc=None, mode="proxy", forward=FORWARD, token_env="T"))] == [
        "spanscore serve: http 127.0.0.1:4318 (plain text, a token)",
        "mode proxy: spans are sent on to http://127.0.0.1:14318, with their scores",
    ]


def test_a_token_of_ours_that_would_go_on_to_the_backend_is_reported() -> None:
    forward = {**FORWARD, "headers": ["X-Scope-OrgID", "Authorization"]}
    proxy = "mode proxy: spans are sent on to http://127.0.0.1:14318, with their scores"

    assert describe_mode(settings(mode="proxy", forward=forward)) == proxy
    assert describe_mode(settings(mode="proxy", forward=forward, token_env="T")) == (
        f"{proxy}; the token that clients send here goes there, too (serve.forward.headers: authorization)"
    )


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"grpc": None, "http": None}, ["serve.grpc and serve.http"]),
        ({"mode": "proxy"}, ["serve.forward.endpoint"]),
        ({"http": "0.0.0.0:4318"}, ["serve.http", "tls and a token", "insecure: true"]),
        ({"grpc": "[::]:4317"}, ["serve.grpc: [::]:4317", "insecure: true"]),
        ({"grpc": "otel.example:4317"}, ["serve.grpc", "insecure: true"]),
        ({"token_env": "NOWHERE_TOKEN"}, ["serve.token_env", "NOWHERE_TOKEN"]),
        ({"token_file": "/nowhere/token"}, ["serve.token_file", "/nowhere/token"]),
        ({"token_env": "A", "token_file": "b"}, ["give one of them"]),
        ({"tls": {"cert": "/nowhere/c.pem", "key": "/nowhere/k.pem"}}, ["serve.tls.cert", "/nowhere/c.pem"]),
    ],
)
def test_what_keeps_it_from_listening_is_reported_with_its_key(given: dict[str, Any], words: list[str]) -> None:
    (problem,) = wrong(**given)

    assert [word for word in words if word not in problem] == []


def test_what_others_reach_needs_a_token_and_tls_or_a_word_that_it_does_not(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t")

    (lacks,) = wrong(http="0.0.0.0:4318", token_file=str(tmp_path / "token"))

    assert "without tls;" in lacks
    assert wrong(http="0.0.0.0:4318", insecure=True) == []


@pytest.mark.parametrize("secret", ["tökén", "one\ntwo"])
def test_a_token_that_no_client_could_send_is_refused(tmp_path: Path, secret: str) -> None:
    (tmp_path / "token").write_text(secret, encoding="utf-8")

    (problem,) = wrong(token_file=str(tmp_path / "token"))

    assert "printable ASCII" in problem
    assert secret not in problem


def test_files_that_are_no_certificate_are_reported_without_what_stands_in_them(tmp_path: Path) -> None:
    (tmp_path / "pem").write_text("planted secret")
    file = str(tmp_path / "pem")

    (problem,) = problems(settings(tls={"cert": file, "key": file}))

    assert not isinstance(problem, NotReadyError)
    assert "not a certificate and its key" in str(problem)
    assert "planted" not in str(problem)


@pytest.mark.parametrize("http", ["127.0.0.1:4318", "localhost:4318", "[::1]:4318", "0.0.0.0:4318"])
def test_a_listener_where_scores_would_be_sent_is_refused_with_what_to_set(http: str) -> None:
    chosen = settings(http=http)

    with pytest.raises(ConfigurationError, match="Set OTEL_EXPORTER_OTLP_ENDPOINT"):
        refuse_own_endpoint(addresses(chosen), chosen)


@pytest.mark.parametrize("endpoint", ["http://collector:4318", "http://localhost:99999"])
def test_a_listener_elsewhere_is_none_of_them(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
    chosen = settings()

    refuse_own_endpoint(addresses(chosen), chosen)


def test_a_proxy_is_not_to_forward_to_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318")
    chosen = settings(mode="proxy", forward={"endpoint": "http://localhost:4318"})

    with pytest.raises(ConfigurationError, match="itself; give the address of the backend"):
        refuse_own_endpoint(addresses(chosen), chosen)
