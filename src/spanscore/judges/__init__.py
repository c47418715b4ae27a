"""Prompt → Reply: judges, and what stands around them."""

from spanscore.judges.ask import ask
from spanscore.judges.build import judge, shared_judge
from spanscore.judges.effects.concurrency import Limited
from spanscore.judges.effects.cost import Priced
from spanscore.judges.effects.retry import Retrying
from spanscore.judges.effects.timeout import Timed
from spanscore.judges.embeddings import LangChainEmbedder, LexicalEmbedder, embedder
from spanscore.judges.langchain.chat import LangChainJudge
from spanscore.judges.lexical.judge import LexicalJudge
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
