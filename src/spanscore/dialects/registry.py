"""Which dialects there are, by name, in the order in which they are asked. A new one is a file here, and a line in this one."""

from spanscore.core.plugins import Registry
from spanscore.protocols import SampleExtractor

__all__ = ["DIALECTS"]

_BUILT_IN = {"genai": "spanscore.dialects.genai:GenAIExtractor"}
"""The last claims every run of our own callback."""
DIALECTS = Registry(
    kind="dialect",
    protocol=SampleExtractor,
    outside="my_pkg.dialects:MyDialect",
    built_in=_BUILT_IN,
    offers=("extract", "score_abandoned", "score_failed"),
)
