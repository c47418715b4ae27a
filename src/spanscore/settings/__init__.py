"""The configuration: YAML, overridden by ``SPANSCORE_*`` variables (``SPANSCORE_SAMPLING__RATE=0.2``)."""

from spanscore.settings.faults import wrong_settings
from spanscore.settings.reading import Reading, examine_settings, read_settings
from spanscore.settings.tree import (
    AlertSettings,
    AttachSettings,
    CaptureSettings,
    JudgeSettings,
    LimitSettings,
    MonitoringSettings,
    PriceSettings,
    RuleSettings,
    SamplingSettings,
    ServeSettings,
    Settings,
)

__all__ = [
    "AlertSettings",
    "AttachSettings",
    "CaptureSettings",
    "JudgeSettings",
    "LimitSettings",
    "MonitoringSettings",
    "PriceSettings",
    "Reading",
    "RuleSettings",
    "SamplingSettings",
    "ServeSettings",
    "Settings",
    "examine_settings",
    "read_settings",
    "wrong_settings",
]
