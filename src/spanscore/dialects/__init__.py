"""Units → samples, one file per way of writing spans."""

from spanscore.dialects.extract import Extract
from spanscore.dialects.genai import GenAIDialect

__all__ = ["Extract", "GenAIDialect"]
