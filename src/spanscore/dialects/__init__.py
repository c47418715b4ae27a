"""Units → samples, one file per way of writing spans."""

from spanscore.config.capture import Extract
from spanscore.dialects.genai import GenAIExtractor

__all__ = ["Extract", "GenAIExtractor"]
