"""Which units are kept in case that somebody is not content with them."""

from __future__ import annotations

from spanscore.settings.kinds import PositiveSeconds, SettingsPart, Share, Size

__all__ = ["FeedbackSampling"]


class FeedbackSampling(SettingsPart):
    """Units whose samples are kept for a while, to be judged where ``feedback()`` says that they were no good.

    Attributes:
        rate: share of the units that are kept, (0, 1], by the dice of the other rates.
        below: quality of a label, (0, 1], below which its unit is judged; a word counts by its place in its scale.
        within: how long a sample is kept.
        max_bytes: of all that is kept; past it the oldest goes first.
    """

    rate: Share
    below: Share = 0.5
    within: PositiveSeconds = 600.0
    max_bytes: Size = 64_000_000
