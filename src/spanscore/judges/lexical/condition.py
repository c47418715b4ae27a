"""The lexical judge on a condition under which there is something to judge: are its words there?"""

from __future__ import annotations

from spanscore.judges.lexical.answer import text_in
from spanscore.judges.lexical.support import share_of
from spanscore.judges.lexical.words import words
from spanscore.model.prompt import Prompt

__all__ = ["applies"]

_HALF = 0.5
_OF_THE_EXCHANGE = (
    "user customer human person somebody assistant agent bot model question answer request response reply conversation message "
    "asks asked asking wants wanted says said mentions mentioned contains answers answered talks about"
)
"""Words that say where to look, and not for what."""


def applies(prompt: Prompt) -> bool:
    """Whether at least half of the condition's words are in the evidence; those that name the exchange itself do not count."""
    if prompt.applies_when is None:
        return True
    meta = frozenset(words(_OF_THE_EXCHANGE).content)
    wanted = words(prompt.applies_when)
    named = words(" ".join([*(stem for stem in wanted.content if stem not in meta), *sorted(wanted.numbers)]))
    shown = words("\n".join(text_in(prompt, name) for name in prompt.evidence))
    return share_of(named, shown, of_nothing=1.0) >= _HALF
