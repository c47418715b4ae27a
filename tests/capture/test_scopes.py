"""Roles of scopes, for the scopes of real instrumentations from their recordings."""

from __future__ import annotations

import pytest
from tests.traces.recordings import RECORDINGS

from spanscore.capture.scopes import Role, Scopes, scope_notes
from spanscore.samples.normalizers.registry import SpanNormalizers

SCOPES = {recording.instrumentation: recording.scopes() for recording in RECORDINGS}


@pytest.mark.parametrize("name", SCOPES)
def test_spans_of_every_scope_are_claimed_when_they_start(name: str) -> None:
    scopes = Scopes(SpanNormalizers().names_scope)

    assert {scopes.role(scope) for scope in SCOPES[name]} == {Role.CLAIMED}


def test_a_listed_scope_that_never_came_is_noted() -> None:
    scopes = Scopes(SpanNormalizers().names_scope, listed=["my-app", "your.app"])
    scopes.role("your.app.web")

    notes = ["units.scopes lists 'my-app', but no span so far has a scope with this prefix"]
    assert scope_notes(scopes.listed, [scopes]) == notes


def test_a_scope_that_is_read_by_content_is_noted_once(caplog: pytest.LogCaptureFixture) -> None:
    scopes = Scopes(SpanNormalizers().names_scope)
    for _ in range(2):
        scopes.found_by_content("an.unnamed.scope")

    assert scope_notes(scopes.listed, [scopes]) == ["an.unnamed.scope is scored, as its spans have GenAI attributes"]
    assert len([line for line in caplog.messages if "an.unnamed.scope" in line]) == 1
