"""OfflineModel: a chat model without a model. It quotes the sentence of its notes that fits the question best.

Where no sentence fits it does what real models do: it answers from what it believes to remember, as fluently, and wrongly.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Any

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import PrivateAttr

from spanscore.demo.library import memory
from spanscore.judges.lexical.words import sentences, words

__all__ = ["QUESTION", "OfflineModel"]

QUESTION = "\n\nQuestion: "
"""What stands between notes and question in a prompt for this model."""
_FITS = 0.5
"""A sentence must hold more than this share of the question's words to be its answer."""
_EMBELLISHES = 0.08
"""Share of good answers to which it adds something it believes to remember."""
_STRAYS = 0.35
"""Share of questions off its subject that it answers instead of declining."""
_OFF_SUBJECT = re.compile(r"\b(?:shares|football|pancakes?|election)\b", re.IGNORECASE)
_SAILING = re.compile(r"\b(?:leaves?|crossing take|last ferry|first ferry)\b", re.IGNORECASE)
_DECLINED = "I cannot help with that. I answer questions about our ferries."


class OfflineModel(BaseChatModel):
    """A chat model that needs no key and no network; deterministic for a seed and an order of calls.

    With tools it first calls the one whose subject the question is, then answers from what that returned.
    """

    seed: int = 0
    model_name: str = "offline-extractive"
    _dice: random.Random = PrivateAttr()

    def model_post_init(self, context: Any, /) -> None:
        """Seed the dice."""
        super().model_post_init(context)
        self._dice = random.Random(self.seed)

    @property
    def _llm_type(self) -> str:
        return self.model_name

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Runnable[LanguageModelInput, AIMessage]:
        """Take the tools along with each call, in the form of OpenAI's."""
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], **kwargs)

    def _generate(
        self, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        turn = _last_turn(messages)
        notes, _, question = str(turn[0].content).rpartition(QUESTION)
        results = [str(message.content) for message in turn if isinstance(message, ToolMessage)]
        if kwargs.get("tools") and not results and not _OFF_SUBJECT.search(question):
            said = AIMessage(content="", tool_calls=[self._call(question)])
        else:
            said = AIMessage(content=self._answer(question, "\n".join(results) or notes))
        return ChatResult(generations=[ChatGeneration(message=_counted(said, messages, self.model_name))])

    def _call(self, question: str) -> dict[str, Any]:
        name = "timetable" if _SAILING.search(question) else "search_handbook"
        return {"name": name, "args": {"question": question}, "id": f"call_{self._dice.getrandbits(48):012x}"}

    def _answer(self, question: str, notes: str) -> str:
        if _OFF_SUBJECT.search(question):
            return _best(question, memory())[0] if self._dice.random() < _STRAYS else _DECLINED
        answer, share = _best(question, notes)
        remembered, _ = _best(question, memory())
        if share <= _FITS:
            return remembered
        return f"{answer} {remembered}" if self._dice.random() < _EMBELLISHES else answer


def _last_turn(messages: Sequence[BaseMessage]) -> Sequence[BaseMessage]:
    asked = max(place for place, message in enumerate(messages) if isinstance(message, HumanMessage))
    return messages[asked:]


def _best(question: str, text: str) -> tuple[str, float]:
    """Return the sentence that shares most words with the question, and the share of the question's words in it."""
    asked = set(words(question).content)
    fits = [(len(asked & set(words(said).content)) / max(1, len(asked)), said) for said in sentences(text)]
    share, said = max(fits, key=lambda fit: fit[0], default=(0.0, ""))
    return said, share


def _counted(said: AIMessage, messages: Sequence[BaseMessage], model: str) -> AIMessage:
    """Return the message with its usage, a word counting as a token."""
    asked = sum(len(str(message.content).split()) for message in messages)
    answered = len(str(said.content).split()) or 8
    usage = {"input_tokens": asked, "output_tokens": answered, "total_tokens": asked + answered}
    return said.model_copy(update={"usage_metadata": usage, "response_metadata": {"model_name": model}})
