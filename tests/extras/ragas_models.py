"""ragas's own kinds of model and embeddings, that answer from a script."""

from __future__ import annotations

import json
from typing import Any

from langchain_core.outputs import Generation, LLMResult
from ragas.embeddings.base import BaseRagasEmbedding, BaseRagasEmbeddings
from ragas.llms.base import BaseRagasLLM, InstructorBaseRagasLLM
from ragas.run_config import RunConfig

from spanscore.core.context import is_judging

VECTORS = {"When did it open?": [1.0, 0.0], "What opened?": [0.6, 0.8]}


class OlderModel(BaseRagasLLM):  # type: ignore[misc]
    """Answers each request with the next object, text or exception of the script; the last one for ever."""

    model = "scripted-older"

    def __init__(self, *answers: Any) -> None:
        super().__init__(run_config=RunConfig(max_retries=1, max_wait=0))
        self.answers = list(answers)
        self.judging: list[bool] = []

    def generate_text(self, prompt: Any, n: int = 1, **_: Any) -> LLMResult:
        raise AssertionError("not the blocking side")

    async def agenerate_text(self, prompt: Any, n: int = 1, **_: Any) -> LLMResult:
        self.judging.append(is_judging())
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, BaseException):
            raise answer
        text = answer if isinstance(answer, str) else json.dumps(answer)
        return LLMResult(generations=[[Generation(text=text)] * n])

    def is_finished(self, response: Any) -> bool:
        return True


class NewerModel(InstructorBaseRagasLLM):  # type: ignore[misc]
    """Returns its answers in the requested class."""

    model = "scripted-newer"

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.judging: list[bool] = []

    def generate(self, prompt: str, response_model: Any) -> Any:
        raise AssertionError("not the blocking side")

    async def agenerate(self, prompt: str, response_model: Any) -> Any:
        self.judging.append(is_judging())
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, BaseException):
            raise answer
        return response_model.model_validate(answer)


class OlderEmbeddings(BaseRagasEmbeddings):  # type: ignore[misc]
    def embed_query(self, text: str) -> list[float]:
        return VECTORS[text]

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [VECTORS[text] for text in texts]

    async def aembed_query(self, text: str) -> list[float]:
        return VECTORS[text]

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        return self.embed_documents(texts)


class NewerEmbeddings(BaseRagasEmbedding):  # type: ignore[misc]
    def embed_text(self, text: str, **_: Any) -> list[float]:
        return VECTORS[text]

    async def aembed_text(self, text: str, **_: Any) -> list[float]:
        return VECTORS[text]
