"""A row of an earlier run is taken over only if the same judge, asked in the same way, and the same code would make it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain_core.embeddings import Embeddings
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from spanscore import evaluate_sync, metric
from spanscore.core.sample import SingleTurnSample
from spanscore.metrics import AspectCritic, ExactMatch, Faithfulness, SemanticSimilarity
from spanscore.metrics.kit.base import BaseMetric
from spanscore.stored.evaluation import hash_setup


def asking(**parameters: Any) -> AspectCritic:
    given = {"model": "gpt-x", "base_url": "http://one:1/v1", "api_key": SecretStr("k"), **parameters}
    return AspectCritic(ChatOpenAI(**given), definition="It is right.")


@pytest.mark.parametrize(
    "parameters",
    [{"temperature": 0.7}, {"base_url": "http://two:1/v1"}, {"seed": 3}],
    ids=["temperature", "address", "seed"],
)
def test_another_way_to_ask_makes_other_rows_of_the_same_series(parameters: dict[str, Any]) -> None:
    one, other = asking(), asking(**parameters)

    assert one.evaluator_version == other.evaluator_version
    assert hash_setup(one) != hash_setup(other)


def test_another_key_makes_the_same_rows() -> None:
    assert hash_setup(asking()) == hash_setup(asking(api_key=SecretStr("other")))


def test_a_metric_of_ours_that_asks_nobody_has_no_such_hash() -> None:
    assert [hash_setup(ExactMatch()), hash_setup(Faithfulness("lexical"))] == ["", ""]


class Vectors(Embeddings):
    """Embeddings without a name."""

    def __init__(self, vector: list[float]) -> None:
        self.vector = vector

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.vector for _ in texts]

    def embed_query(self, text: str) -> list[float]:
        return self.vector


def test_embeddings_without_a_name_are_known_by_what_they_hold() -> None:
    one, same, other = (SemanticSimilarity(embeddings=Vectors([x, 1.0])) for x in (1.0, 1.0, 0.0))

    assert hash_setup(one) == hash_setup(same) != hash_setup(other)


def constant(value: float) -> Callable[[Any], float]:
    def own(sample: Any) -> float:
        return value

    return own


def typed(body: str) -> Any:
    """A function that was typed in: there is no file with its text."""
    names: dict[str, Any] = {}
    exec(f"def own(sample) -> float:\n    return {body}", names)
    return names["own"]


def test_a_function_of_ones_own_counts_by_its_body_and_what_it_encloses(tmp_path: Path) -> None:
    def own(sample: Any) -> float:
        return 0.5

    functions = [own, constant(0.1), constant(0.9), typed("0.2"), typed("0.8"), typed("min(0.3, 1)")]
    metrics = [metric(name="own")(function) for function in functions]

    assert len({one.evaluator_version for one in metrics}) == 1
    assert len({*map(hash_setup, metrics)}) == len(metrics)
    values = [evaluate_sync([SingleTurnSample()], [one], out=tmp_path / "a.csv").mean("own") for one in metrics]
    assert values == [0.5, 0.1, 0.9, 0.2, 0.8, 0.3]


def test_a_row_of_the_same_code_is_taken_over(tmp_path: Path) -> None:
    runs = [
        evaluate_sync([SingleTurnSample()], [metric(name="own")(constant(0.1))], out=tmp_path / "a.jsonl")
        for _ in range(2)
    ]

    assert [run.taken_over for run in runs] == [0, 1]


def test_a_class_of_ones_own_counts_by_its_methods() -> None:
    def kind(measured: float) -> type[BaseMetric]:
        class Own(BaseMetric):
            name = "own"

            async def measure(self, sample: Any) -> float:
                return measured

        return Own

    assert hash_setup(kind(0.1)()) == hash_setup(kind(0.1)()) != hash_setup(kind(0.9)())
