"""Jury: judges of different models that score a metric together, and one more judge for disagreements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, Literal

from spanscore.core.prompt import Prompt, PromptOrder, Reply
from spanscore.errors import ConfigurationError, JudgeError
from spanscore.judges.build import shared_judge
from spanscore.judges.effects.middleware import account_of, prompt_order
from spanscore.protocols import Judge

MIN_JURORS: Final = 2
"""Fewest judges of a jury, and fewest jurors that must answer for a score: one judge alone is no jury."""
_WHEN: Final = "disagree"


class Jury:
    """Judges of different models, each of which scores the whole metric; a metric takes it in the place of a judge.

    The score is the mean of the jurors' values, or their majority for a metric that is pass/fail or has categories. A tied vote
    gives no value. Jurors are asked concurrently. ``metrics/kit/jury.py`` has the rules for jurors that fail.

    Source: Verga et al., "Replacing Judges with Juries: Evaluating LLM Generations with a Panel of Diverse Models" (2024).
    Deviations: the panel scores any metric, even a metric that asks several questions; a juror that fails is left out; a
    further judge may decide (``then``).

    Args:
        judges: two or more: LangChain chat models, Judges or names, each of a different model.
        then: another judge of a different model, asked only if the jurors disagree; its value joins the mean or the vote. None
            = no further judge.
        when: when ``then`` is asked; ``disagree`` is the only condition: some jurors gave a value and some answered without
            one, or their highest and lowest quality differ by more than 0.25. On an open scale or with categories, any two
            different values disagree.

    Raises:
        ConfigurationError: fewer than two judges, two of one model, one of the judges is a jury, or ``when`` is not
            ``disagree``.

    Example:
        >>> from spanscore.judges import Jury
        >>> from spanscore.testing import ScriptedJudge
        >>> Jury([ScriptedJudge([], model="small"), ScriptedJudge([], model="other")]).model
        'other+small'
    """

    def __init__(self, judges: Sequence[Any], *, then: Any = None, when: Literal["disagree"] = "disagree") -> None:
        if isinstance(judges, str) or len(judges) < MIN_JURORS:
            named = [judges] if isinstance(judges, str) else judges
            raise ConfigurationError(
                f"a jury of {len(named)}: judges takes {MIN_JURORS} or more, each of a different model"
            )
        if when != _WHEN:
            raise ConfigurationError(f"when is {when!r}; allowed is {_WHEN!r}")
        self.jurors: tuple[Judge, ...] = tuple(map(shared_judge, judges))
        self.then: Judge | None = None if then is None else shared_judge(then)
        if any(isinstance(judge, Jury) for judge in self.members):
            raise ConfigurationError("a jury is among the judges of a jury; name its judges one by one")
        model, times = Counter(judge.model for judge in self.members).most_common(1)[0]
        if times > 1:
            raise ConfigurationError(f"{times} judges of a jury are {model!r}; each is of a different model")

    @property
    def members(self) -> tuple[Judge, ...]:
        """The jurors, and ``then`` at the end if there is one."""
        return self.jurors if self.then is None else (*self.jurors, self.then)

    @property
    def model(self) -> str:
        """The models of all members in one text, part of the evaluator version; the order of the jurors has no effect on it."""
        return self.describe(lambda judge: judge.model)

    @property
    def account(self) -> Hashable:
        """The accounts of all members: metrics with equal accounts are queued together."""
        return tuple(map(account_of, self.members))

    @property
    def prompt_order(self) -> PromptOrder:
        """Place of the evidence in the first juror's prompts (``evidence_first`` or ``instruction_first``)."""
        return prompt_order(self.jurors[0])

    def describe(self, name_of: Callable[[Judge], str]) -> str:
        """Return the members' names in one text, in the layout of ``model``."""
        jurors = "+".join(sorted(map(name_of, self.jurors)))
        return jurors if self.then is None else f"{jurors} then {name_of(self.then)}"

    async def ask(self, prompt: Prompt) -> Reply:
        """Refuse: a jury votes on scores, as the questions of a metric may depend on earlier answers of the same juror.

        Raises:
            JudgeError: always.
        """
        raise JudgeError(
            f"{prompt.step}: ask() was called on a jury; only a metric can use a jury, because it asks each juror separately",
            error_type="jury",
        )


def members_of(judge: Judge) -> tuple[Judge, ...]:
    """Return the members of a jury; for any other judge a tuple of that judge."""
    return judge.members if isinstance(judge, Jury) else (judge,)
