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

LEAST: Final = 2
"""Jurors whose answers a score needs."""
_WHEN: Final = "disagree"


class Jury:
    """Judges of different models, each of which scores the whole metric; a metric takes it in the place of a judge.

    The score is the mean of the jurors' values, or their majority for a pass/fail metric. A tie has no value. Jurors are
    asked concurrently. ``kit/jury.py`` has the rules for jurors that fail.

    Source: Verga et al., "Replacing Judges with Juries: Evaluating LLM Generations with a Panel of Diverse Models" (2024).
    Deviations: the panel scores any metric, also one of several questions; a juror that fails is left out; ``then``.

    Args:
        judges: two or more: LangChain chat models, Judges or names, each of a different model.
        then: another judge, asked only if the jurors disagree; its value counts as one more. None = no further judge.
        when: when ``then`` is asked; ``disagree`` is the only condition.

    Raises:
        ConfigurationError: fewer than two judges, two of one model, a jury among them, or another condition.

    Example:
        >>> from spanscore.judges import Jury
        >>> from spanscore.testing import ScriptedJudge
        >>> Jury([ScriptedJudge([], model="small"), ScriptedJudge([], model="other")]).model
        'other+small'
    """

    def __init__(self, judges: Sequence[Any], *, then: Any = None, when: Literal["disagree"] = "disagree") -> None:
        if isinstance(judges, str) or len(judges) < LEAST:
            named = [judges] if isinstance(judges, str) else judges
            raise ConfigurationError(f"a jury of {len(named)}: judges takes {LEAST} or more, each of a different model")
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
        """The models of all members in one text, part of the evaluator version; the order of the jurors has no effect."""
        return self.describe(lambda judge: judge.model)

    @property
    def account(self) -> Hashable:
        """The accounts of all members: metrics with equal accounts are queued together."""
        return tuple(map(account_of, self.members))

    @property
    def prompt_order(self) -> PromptOrder:
        """The order of the questions to the first juror."""
        return prompt_order(self.jurors[0])

    def describe(self, name_of: Callable[[Judge], str]) -> str:
        """Return a text with the name of each member, as ``model`` has it."""
        jurors = "+".join(sorted(map(name_of, self.jurors)))
        return jurors if self.then is None else f"{jurors} then {name_of(self.then)}"

    async def ask(self, prompt: Prompt) -> Reply:
        """Refuse: a jury votes on scores, as the questions of a metric may depend on earlier answers of the same juror.

        Raises:
            JudgeError: always.
        """
        raise JudgeError(
            f"{prompt.step}: a jury answers no single question; a metric that keeps it as _judge asks each juror",
            error_type="jury",
        )


def members_of(judge: Judge) -> tuple[Judge, ...]:
    """Return the members of a jury; any other judge alone."""
    return judge.members if isinstance(judge, Jury) else (judge,)
