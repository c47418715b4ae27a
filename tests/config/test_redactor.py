"""A redactor that a configuration names: a function, or a class with parameters; in force as one that was given."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.live import Trace, a_trace, rag

from spanscore import OnlineScorer
from spanscore.config import Capture
from spanscore.errors import ConfigurationError
from spanscore.metrics import ExactMatch


def without_capitals(text: str) -> str:
    """Redact the texts in which the tests are interested."""
    return text.replace("Paris", "[city]")


class Without:
    """Redacts a word."""

    def __init__(self, word: str) -> None:
        self.word = word

    def __call__(self, text: str) -> str:
        return text.replace(self.word, "[word]")


def exported(file: Path, named: str, **overrides: object) -> Trace:
    file.write_text(f"metrics: [string_presence]\ncapture: {{content: true}}\nredactor: {named}\n")
    trace = a_trace()
    with OnlineScorer.from_config(file, tracer_provider=trace.provider, **overrides) as scorer:
        rag().invoke("What is the capital?", config={"callbacks": [scorer.handler]})
        assert scorer.flush(10)
    return trace


@pytest.mark.parametrize(
    ("named", "shown"),
    [
        ("tests.config.test_redactor:without_capitals", "[city]"),
        ("{tests.config.test_redactor:Without: {word: Paris}}", "[word]"),
    ],
)
def test_a_configuration_names_a_function_or_a_class_with_parameters(tmp_path: Path, named: str, shown: str) -> None:
    text = exported(tmp_path / "spanscore.yaml", named).text()

    assert shown in text
    assert "Paris" not in text


@pytest.mark.parametrize("named", ["${REDACTOR}", "''", "{}"])
def test_one_without_a_name_is_refused_as_no_text_would_be_redacted(
    tmp_path: Path, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDACTOR", "")

    with pytest.raises(ConfigurationError, match="redactor: write a name"):
        exported(tmp_path / "spanscore.yaml", named)


class Growing:
    """Has found no word to redact yet, so that it is empty."""

    def __len__(self) -> int:
        return 0

    def __call__(self, text: str) -> str:
        return text.replace("Paris", "[city]")


def test_one_that_is_empty_is_in_force() -> None:
    trace = a_trace()
    with OnlineScorer(
        [ExactMatch()], redactor=Growing(), capture=Capture(content=True), tracer_provider=trace.provider
    ) as scorer:
        rag().invoke("What is the capital?", config={"callbacks": [scorer.handler]})
        assert scorer.flush(10)

    assert "Paris" not in trace.text()


def test_one_that_is_given_is_in_force_instead(tmp_path: Path) -> None:
    text = exported(
        tmp_path / "spanscore.yaml", "tests.config.test_redactor:without_capitals", redactor=Without("Paris")
    ).text()

    assert ("[word]" in text, "[city]" in text) == (True, False)


def test_python_may_give_its_name_too() -> None:
    trace = a_trace()
    named = "tests.config.test_redactor:without_capitals"
    with OnlineScorer(
        [ExactMatch()], redactor=named, capture=Capture(content=True), tracer_provider=trace.provider
    ) as scorer:
        rag().invoke("What is the capital?", config={"callbacks": [scorer.handler]})
        assert scorer.flush(10)

    assert "[city]" in trace.text()
