"""Prompt → Reply: judges, and what stands around them."""

from spanscore.judges.ask import ask
from spanscore.judges.build import judge, shared_judge
from spanscore.judges.effects.limits import Limited, Retrying, Timed
from spanscore.judges.embeddings import LangChainEmbedder, LexicalEmbedder, embedder
from spanscore.judges.langchain.chat import LangChainJudge
from spanscore.judges.lexical.judge import LexicalJudge
from spanscore.judges.prices import Priced
from spanscore.judges.record import record, recorded_calls
from spanscore.judges.render import render
from spanscore.judges.suppress import suppressed

__all__ = [
    "LangChainEmbedder",
    "LangChainJudge",
    "LexicalEmbedder",
    "LexicalJudge",
    "Limited",
    "Priced",
    "Retrying",
    "Timed",
    "ask",
    "embedder",
    "judge",
    "record",
    "recorded_calls",
    "render",
    "shared_judge",
    "suppressed",
]
