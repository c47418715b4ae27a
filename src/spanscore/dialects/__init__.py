"""Units → samples, one file per way of writing spans."""

from spanscore.dialects.genai import GenAIExtractor
from spanscore.settings.capture import Extract

__all__ = ["Extract", "GenAIExtractor"]
