"""What a span of a scope is to us, by the scopes that instrumentations really have: those of their recordings."""

from __future__ import annotations

import pytest
from tests.traces.recordings import RECORDINGS

from spanscore.dialects.translations.registry import Translator
from spanscore.receivers.scopes import Role, Scopes

SCOPES = {recording.instrumentation: recording.scopes() for recording in RECORDINGS}
CLIENTS = {name: scopes for name, scopes in SCOPES.items() if name.endswith("-openai")}
FRAMEWORKS = {name: scopes for name, scopes in SCOPES.items() if name.endswith(("-langchain", "-index", "pydantic-ai"))}


@pytest.mark.parametrize("name", CLIENTS)
def test_a_models_client_is_one_by_whatever_instrumentation(name: str) -> None:
    scopes = Scopes(Translator().knows)

    assert {scopes.role(scope) for scope in CLIENTS[name]} == {Role.MODEL_CLIENT}


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_clients_call_at_the_top_is_a_step_where_a_framework_is_at_work(name: str) -> None:
    scopes = Scopes(Translator().knows)
    [client] = CLIENTS["openllmetry-openai"]
    assert not scopes.is_inner(client)

    assert {scopes.role(scope) for scope in FRAMEWORKS[name]} == {Role.CLAIMED}
    assert scopes.is_inner(client)


@pytest.mark.parametrize("name", SCOPES)
def test_spans_of_every_scope_are_claimed_when_they_start(name: str) -> None:
    scopes = Scopes(Translator().knows)

    assert {scopes.role(scope) for scope in SCOPES[name]} <= {Role.CLAIMED, Role.MODEL_CLIENT}
