"""ScriptedJudge and ScriptedEmbeddings: answers written beforehand, for tests without a model."""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from spanscore.core.prompt import Prompt, Reply
from spanscore.errors import JudgeError

__all__ = ["ScriptedEmbeddings", "ScriptedJudge"]


class ScriptedJudge:
    """A judge that gives prepared answers, matched by step name and in order within a step.

    Args:
        answers: ``{"step": name, "output": {…}}`` gives that object as JSON, ``{"step": name, "raw": text}`` the text as it is
            (also beside an ``output``). The answers of a repair stand under the step ``fix_output_format``.
        model: its name.

    Attributes:
        model: likewise.
        calls: the prompts it was asked, in order, those it had no answer for included.
    """

    def __init__(self, answers: Iterable[Mapping[str, Any]] = (), *, model: str = "scripted") -> None:
        self.calls: list[Prompt] = []
        self.model = model
        self._answers: dict[str, deque[Mapping[str, Any]]] = defaultdict(deque)
        for answer in answers:
            self._answers[answer["step"]].append(answer)

    async def ask(self, prompt: Prompt) -> Reply:
        """Give the next answer of the prompt's step.

        Raises:
            JudgeError: there is none left.
        """
        self.calls.append(prompt)
        if not self._answers[prompt.step]:
            raise JudgeError(f"the script has no answer left for {prompt.step}", error_type="script_ended")
        answer = self._answers[prompt.step].popleft()
        raw = answer.get("raw")
        return Reply(text=raw if raw is not None else json.dumps(answer.get("output")), model=self.model)


class ScriptedEmbeddings:
    """Embeddings that look each text up.

    Args:
        vectors: text → vector.

    Attributes:
        calls: the texts it was asked for, in order.
    """

    def __init__(self, vectors: Mapping[str, Sequence[float]]) -> None:
        self.calls: list[str] = []
        self._vectors = {text: list(vector) for text, vector in vectors.items()}

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return the vectors of the texts.

        Raises:
            JudgeError: one has none.
        """
        self.calls.extend(texts)
        for text in texts:
            if text not in self._vectors:
                raise JudgeError("the script has no vector for a text", error_type="script_ended")
        return [self._vectors[text] for text in texts]
