"""Every built-in metric documents the facts that a person needs to trust it."""

from __future__ import annotations

import pytest

from spanscore.metrics import ExactMatch, Faithfulness, metric
from spanscore.metrics.catalog.registry import MetricDoc, built_ins, find_metric, metric_doc_of


@pytest.mark.parametrize("name", sorted(built_ins()))
def test_the_doc_of_a_built_in_is_whole(name: str) -> None:
    doc = metric_doc_of(find_metric(name))

    assert not doc.lacking, (
        f"the docstring of {name} lacks {', '.join(doc.lacking)}; metrics/catalog/registry.py says how it is written"
    )
    assert doc.question.endswith((".", "?"))


def test_a_doc_is_cut_from_the_docstring() -> None:
    assert metric_doc_of(ExactMatch) == MetricDoc(
        question="Is the response equal to the reference?",
        formula="1 when both strings are equal, else 0. Range {0, 1}, higher is better. Two empty strings are equal.",
        range="{0, 1}",
        direction="higher",
        fields="``response``, ``reference``.",
        judge_calls="none.",
        blind_spot='case, white space, punctuation and Unicode form all count; "42" and "42." differ.',
        source="ragas 0.4.3's ``ExactMatch``.",
        deviations="a missing field is an outcome (ragas compares None).",
    )


def test_a_label_within_a_sentence_is_no_label() -> None:
    def seven(sample: object) -> float:
        """Is it seven?

        Formula: seven. See Source: nothing, the Fields: too.

        Range [0, 7], lower is better.

        Args:
            sample: Source: nowhere.
        """
        return 7.0

    doc = metric_doc_of(metric(seven))

    assert (doc.range, doc.direction) == ("[0, 7]", "lower")
    assert doc.formula == "seven. See Source: nothing, the Fields: too."
    assert doc.lacking == ["fields", "judge_calls", "blind_spot", "source", "deviations"]


def test_what_follows_the_arguments_is_not_part_of_it() -> None:
    assert "Args" not in " ".join(str(getattr(metric_doc_of(Faithfulness), part)) for part in MetricDoc.__slots__)


def test_a_metric_without_docstring_has_an_empty_doc() -> None:
    assert metric_doc_of(lambda sample: 1.0) == MetricDoc()
