"""OpenTelemetry names → Prometheus names, as the Collector's remote write makes them, so that one query reads either way in.

Dots become underscores, a unit is spelled out (``s`` → ``_seconds``) unless it is ``1``, in braces or there already, counters
end in ``_total``. Of our instruments none is a gauge of unit ``1``, the one case in which translators differ (``_ratio``).
Source: OpenTelemetry specification, *Prometheus and OpenMetrics Compatibility*.
"""

from __future__ import annotations

import re

from spanscore.outputs.instrument_table import INSTRUMENTS

__all__ = ["family", "label", "series"]

_UNITS = {"1": "", "s": "seconds", "ms": "milliseconds", "By": "bytes"}


def label(attribute: str) -> str:
    """Return the label of an attribute: ``gen_ai.evaluation.name`` → ``gen_ai_evaluation_name``."""
    return re.sub(r"[^A-Za-z0-9_]", "_", attribute)


def family(name: str, unit: str) -> str:
    """Return the name of a metric family, without ``_total`` or ``_bucket``."""
    spelled = _UNITS.get(unit, "" if unit.startswith("{") else label(unit))
    told = label(name)
    return f"{told}_{spelled}" if spelled and not told.endswith(f"_{spelled}") else told


def series(instrument: str) -> str:
    """Return what one of our instruments is called in a query; of a histogram without ``_bucket``, ``_sum`` or ``_count``.

    Raises:
        KeyError: there is no such instrument.
    """
    about = INSTRUMENTS[instrument]
    return family(instrument, about.unit) + ("_total" if about.kind == "counter" else "")
