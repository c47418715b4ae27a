"""``spanscore check`` of the sinks that send messages: their destinations, and why they cannot send."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from spanscore.cli.main import app

HOOK = "https://hooks.example/services/T0/B0"
OF_UNITS = "sink webhook: messages for units with exact_match=fail, at most 5 an hour,"


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOOK", HOOK)
    for name in (
        "PHOENIX_BASE_URL",
        "LANGFUSE_BASE_URL",
        "LANGFUSE_HOST",
        "LANGFUSE_PUBLIC_KEY",
        "LANGFUSE_SECRET_KEY",
    ):
        monkeypatch.delenv(name, raising=False)


def check(sinks: str, *options: str) -> Any:
    Path("spanscore.yaml").write_text(f"metrics: [exact_match]\noutputs: {{sinks: [{sinks}]}}\n")
    return CliRunner().invoke(app(), ["check", "spanscore.yaml", *options], env={"COLUMNS": "300"})


@pytest.mark.parametrize(
    ("sinks", "line"),
    [
        ("phoenix", "sink phoenix: messages go to http://localhost:6006 without content"),
        (
            '{webhook: {url: "${HOOK}", when: [exact_match=fail], per_hour: 5, content: true}}',
            f"{OF_UNITS} go to https://hooks.example with content",
        ),
        (
            '{langfuse: {url: "http://127.0.0.1:3000", public_key: pk, secret_key: "${HOOK}"}}',
            "sink langfuse: messages go to http://127.0.0.1:3000 without content",
        ),
    ],
)
def test_the_destination_of_messages_is_shown_without_its_path(sinks: str, line: str) -> None:
    done = check(sinks)

    assert (done.exit_code, line in done.stdout) == (0, True), done.output
    assert "/services" not in done.output


@pytest.mark.parametrize(
    ("sinks", "message"),
    [
        ("{webhook: {when: [exact_match<1]}}", "webhook.url: is required"),
        ("{webhook: {url: hooks, when: [exact_match<1]}}", "webhook.url: 'hooks' is no address of the web"),
        ('{webhook: {url: "${HOOK}", when: [exact<1]}}', "webhook.when names exact, which is not a metric here"),
        ('{webhook: {url: "${NO_HOOK}", when: [exact_match<1]}}', "NO_HOOK is not set in the environment"),
        ("{phoenix: {adress: x}}", "phoenix.adress: no such setting"),
        ("{phoenix: {api_key: abc}}", "phoenix.api_key: do not write a key into the file; write ${NAME}"),
    ],
)
def test_a_wrong_parameter_is_refused(sinks: str, message: str) -> None:
    done = check(sinks)

    assert (done.exit_code, message in done.output) == (2, True), done.output


def test_a_missing_key_is_not_ready_here() -> None:
    unready, ready = check("langfuse", "--ready"), check("langfuse")

    assert "langfuse has no public_key; set the variable LANGFUSE_PUBLIC_KEY" in ready.output
    assert (ready.exit_code, unready.exit_code != 0) == (0, True)
