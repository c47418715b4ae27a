"""Every name that crosses a wire: attributes, span names, scopes, instruments, events, environment variables.

*Standard* names are those of the OpenTelemetry GenAI semantic conventions (v1.42-dev, all in Development) or of
OpenInference (0.1.42); the rest, under ``spanscore.*``, are ours. No other module spells one of these names.
"""

from __future__ import annotations

from spanscore.semconv.attributes import *  # noqa: F403  (every name of it is one of ours to tell)
from spanscore.semconv.instruments import *  # noqa: F403
