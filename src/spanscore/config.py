"""The sections of a configuration, as arguments of ``OnlineScorer``: ``OnlineScorer(…, sessions=Sessions(max_turns=50))``."""

from spanscore.settings.alerting import Monitoring
from spanscore.settings.budget import Budget
from spanscore.settings.capture import Capture, Extract
from spanscore.settings.collect import Collect
from spanscore.settings.compare import Compare
from spanscore.settings.judge_check import JudgeCheck
from spanscore.settings.judging import JudgeSettings
from spanscore.settings.limits import Limits
from spanscore.settings.outputs import Outputs
from spanscore.settings.remote_scoring import RemoteScoring
from spanscore.settings.sampling import FeedbackSampling, HeadSampling, Rule, RuleCondition, Sampling, ScoreBelow
from spanscore.settings.sessions import Sessions
from spanscore.settings.spool import Spool
from spanscore.settings.units import Units

__all__ = [
    "Budget",
    "Capture",
    "Collect",
    "Compare",
    "Extract",
    "FeedbackSampling",
    "HeadSampling",
    "JudgeCheck",
    "JudgeSettings",
    "Limits",
    "Monitoring",
    "Outputs",
    "RemoteScoring",
    "Rule",
    "RuleCondition",
    "Sampling",
    "ScoreBelow",
    "Sessions",
    "Spool",
    "Units",
]
