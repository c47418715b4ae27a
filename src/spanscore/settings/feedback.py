"""Which units are kept in case that somebody is not content with them."""

from __future__ import annotations

from dataclasses import dataclass

from spanscore.errors import ConfigurationError
from spanscore.settings.durations import seconds_of
from spanscore.settings.kinds import PositiveSeconds, SettingsPart, Share, Size
from spanscore.settings.sizes import bytes_of

__all__ = ["FeedbackSampling", "FeedbackSettings", "feedback_in"]

_BELOW, _MAX_AGE_S, _MAX_BYTES = 0.5, 600.0, 64_000_000


class FeedbackSettings(SettingsPart):
    """Units whose samples are kept for a while, to be judged where ``feedback()`` says that they were no good.

    Attributes:
        rate: share of the units that are kept, (0, 1], by the dice of the other rates.
        below: quality of a label, (0, 1], below which its unit is judged; a word counts by its place in its scale.
        max_age: how long a sample is kept.
        max_bytes: of all that is kept; past it the oldest goes first.
    """

    rate: Share
    below: Share = _BELOW
    max_age: PositiveSeconds = _MAX_AGE_S
    max_bytes: Size = _MAX_BYTES


@dataclass(frozen=True, slots=True)
class FeedbackSampling:
    """Units whose samples are kept for a while, to be judged where ``feedback()`` says that they were no good.

    Args:
        rate: share of the units that are kept, (0, 1].
        below: quality of a label, (0, 1], below which its unit is judged.
        max_age: how long a sample is kept: seconds, or a text such as ``"10m"``.
        max_bytes: of all that is kept: a number, or a text such as ``"64MB"``.

    Raises:
        ConfigurationError: one of them cannot be.
    """

    rate: float
    below: float = _BELOW
    max_age: float | str = _MAX_AGE_S
    max_bytes: int | str = _MAX_BYTES

    def __post_init__(self) -> None:
        for name, share in (("rate", self.rate), ("below", self.below)):
            if not 0 < share <= 1:
                raise ConfigurationError(f"sampling.feedback.{name} is {share}; allowed is above 0, up to 1")
        if self.within_s <= 0 or self.most_bytes <= 0:
            raise ConfigurationError("sampling.feedback: max_age and max_bytes are above 0")

    @property
    def within_s(self) -> float:
        """How long a sample is kept, seconds."""
        try:
            return seconds_of(self.max_age) if isinstance(self.max_age, str) else self.max_age
        except ValueError as error:
            raise ConfigurationError(f"sampling.feedback.max_age: {error}") from None

    @property
    def most_bytes(self) -> int:
        """Bytes that are kept at most."""
        try:
            return bytes_of(self.max_bytes) if isinstance(self.max_bytes, str) else self.max_bytes
        except ValueError as error:
            raise ConfigurationError(f"sampling.feedback.max_bytes: {error}") from None


def feedback_in(given: FeedbackSettings | None) -> FeedbackSampling | None:
    """Return what a configuration says of it."""
    return None if given is None else FeedbackSampling(given.rate, given.below, given.max_age, given.max_bytes)
