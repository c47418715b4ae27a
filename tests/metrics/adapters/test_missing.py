"""A missing extra leads to a message with the command that installs it. The adapters themselves are tested in tests/extras."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from spanscore.errors import MissingExtraError
from spanscore.metrics import ContextRelevancyV0, FaithfulnessWithHHEM, SemanticSimilarity
from spanscore.metrics.adapters import DeepEvalMetric, RagasMetric
from spanscore.testing import ScriptedJudge

NEEDY: dict[str, Any] = {
    "ragas": lambda: RagasMetric(object()),
    "deepeval": lambda: DeepEvalMetric(object()),
    "transformers": lambda: FaithfulnessWithHHEM(ScriptedJudge()),
    "sentence_transformers": lambda: SemanticSimilarity(cross_encoder="some/model"),
    "sentence_transformers ": lambda: ContextRelevancyV0(ScriptedJudge(), agreement="bert_score"),
}


@pytest.mark.parametrize("library", NEEDY)
def test_without_its_library_it_says_what_to_install(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library.strip(), None)
    extra = library if library in {"ragas", "deepeval"} else "hhem"

    with pytest.raises(MissingExtraError, match=rf'pip install "spanscore\[{extra}\]"'):
        NEEDY[library]()


def test_the_package_exports_both_adapters() -> None:
    from spanscore.metrics import adapters

    assert adapters.__all__ == ["DeepEvalMetric", "RagasMetric"]
    assert adapters.RagasMetric is RagasMetric
