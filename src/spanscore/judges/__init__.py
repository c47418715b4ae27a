"""Judges: language models, or a comparison of words, that answer the prompts of metrics; with limits, caches and budgets."""

from spanscore.core.prompt import Passages as Passages
from spanscore.judges.ask import ask as ask
from spanscore.judges.build import judge as judge
from spanscore.judges.build import shared_judge as shared_judge
from spanscore.judges.effects.cache import Cached as Cached
from spanscore.judges.effects.cost import Priced as Priced
from spanscore.judges.effects.limited import FallingBack as FallingBack
from spanscore.judges.effects.limited import RateLimited as RateLimited
from spanscore.judges.embeddings import LangChainEmbedder as LangChainEmbedder
from spanscore.judges.embeddings import LexicalEmbedder as LexicalEmbedder
from spanscore.judges.embeddings import embedder as embedder
from spanscore.judges.jury import Jury as Jury
from spanscore.judges.langchain.chat import LangChainJudge as LangChainJudge
from spanscore.judges.lexical.judge import LexicalJudge as LexicalJudge
from spanscore.judges.records import record as record
from spanscore.judges.records import recorded_calls as recorded_calls
from spanscore.judges.rendering import render as render
from spanscore.judges.score_context import suppress_tracing as suppress_tracing

# Names that were imported, without the submodules that the imports bound.
__all__ = sorted(name for name, thing in globals().items() if name[0] != "_" and hasattr(thing, "__module__"))  # noqa: PLE0605
