"""The effects around a judge: which there are, and in which order.

    Cached(Retrying(Limited(Timed(Priced(judge)))))

The order matters: a question that waits for its place is not on the clock yet, one that waits to be asked again holds no place,
and every attempt tells what it cost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypedDict, get_type_hints

from spanscore.judges.effects.cache import Cached, CacheSetting
from spanscore.judges.effects.concurrency import Limited
from spanscore.judges.effects.cost import Priced
from spanscore.judges.effects.retry import Retrying
from spanscore.judges.effects.timeout import Timed
from spanscore.protocols import Judge

__all__ = ["Effects", "stacked"]


class Effects(TypedDict, total=False):
    """Keyword of ``judge()`` → the type of its setting, and the effect; the outermost first. A new effect is a line here."""

    cache: Annotated[CacheSetting, Cached]
    attempts: Annotated[int | None, Retrying]
    max_concurrency: Annotated[int | None, Limited]
    timeout: Annotated[float | None, Timed]
    prices: Annotated[Mapping[str, Sequence[float]] | None, Priced]


_AROUND_CHAT_MODELS = (Cached, Retrying, Limited, Timed)
"""Without being asked for, with their own defaults."""
_OUTERMOST_FIRST: dict[str, Any] = {
    keyword: hint.__metadata__[0] for keyword, hint in get_type_hints(Effects, include_extras=True).items()
}


def stacked(judge: Judge, settings: Mapping[str, Any], *, chat_model: bool = False) -> Judge:
    """Return a judge with the effects around it that have a setting.

    Args:
        settings: keyword → setting; None as if it were not there.
        chat_model: whether those that stand around every chat model do so here.

    Raises:
        TypeError: there is no such effect.
        ConfigurationError: a setting cannot be.
    """
    if unknown := settings.keys() - _OUTERMOST_FIRST.keys():
        raise TypeError(f"judge() got an unexpected keyword argument {min(unknown)!r}; it takes {[*_OUTERMOST_FIRST]}")
    for keyword, effect in reversed(_OUTERMOST_FIRST.items()):
        setting = settings.get(keyword)
        if setting is not None:
            judge = effect(judge, setting)
        elif chat_model and effect in _AROUND_CHAT_MODELS:
            judge = effect(judge)
    return judge
