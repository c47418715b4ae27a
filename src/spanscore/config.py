"""The sections of a configuration, as arguments of ``OnlineScorer``: ``OnlineScorer(…, sessions=Sessions(max_turns=50))``."""

from spanscore.settings.budget import Budget
from spanscore.settings.collect import Collect
from spanscore.settings.compare import Compare
from spanscore.settings.feedback import FeedbackSampling
from spanscore.settings.judge_check import JudgeCheck
from spanscore.settings.judging import JudgeSettings
from spanscore.settings.remote_scoring import RemoteScoring
from spanscore.settings.sessions import Sessions
from spanscore.settings.spool import Spool

__all__ = [
    "Budget",
    "Collect",
    "Compare",
    "FeedbackSampling",
    "JudgeCheck",
    "JudgeSettings",
    "RemoteScoring",
    "Sessions",
    "Spool",
]
