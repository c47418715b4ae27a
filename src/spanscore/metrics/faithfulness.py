"""Faithfulness and FaithfulnessWithHHEM: do the retrieved contexts support the claims of the answer?"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from inspect import isawaitable
from math import isfinite
from typing import Any, TypeAlias, cast

from pydantic import BaseModel

from spanscore.core.prompt import Passages
from spanscore.core.sample import SingleTurnSample
from spanscore.errors import ConfigurationError, JudgeUnparseable
from spanscore.judges.langchain.client import BlockingCalls
from spanscore.judges.lexical.judge import is_offline
from spanscore.metrics.kit.base import Finding
from spanscore.metrics.kit.judged import JudgedMetric
from spanscore.metrics.kit.sentence_transformers_pairs import HHEM, Pairs, load_entailment_classifier
from spanscore.metrics.kit.statements import EXTRACT_STATEMENTS, VERIFY_STATEMENTS, align
from spanscore.metrics.kit.step import OwnPrompts, Step
from spanscore.protocols import Judge


class Faithfulness(JudgedMetric):
    """Which share of the answer's claims do the retrieved contexts support?

    Formula: supported statements / all statements. Range [0, 1], higher is better. A single statement that is not
    supported already costs 1/n.

    Fields: ``user_input``, ``response``, ``retrieved_contexts``. An empty context list is judged, and supports no statement.
    Judge calls: 2 (``extract_statements``, ``verify_statements``); 1 if the answer has no statement; the score is undefined
    then. An answer without any verdict is an error.

    Blind spot: a statement that a wrong context supports counts as supported. The metric does not check truth. An answer to
    only a part of the question can score 1. A score is no better than the judge's split of the answer into statements.

    Source: Es et al., "RAGAS: Automated Evaluation of Retrieval Augmented Generation" (2023), section 3, as in ragas 0.4.3's
    ``Faithfulness``. Deviations: verdicts are matched to statements, so a statement without a row counts as unsupported (the
    explanation lists it) and a row that belongs to no statement is ignored; ragas divides by the rows that came. If one of
    several equal statements has a row, the row applies to all of them. An empty statement does not count. A verdict other
    than 0 and 1 is repaired once, then an error; in ragas every non-zero number means yes. An answer without any verdict is
    an error (ragas: nan). Missing fields are detected before the first judge call.

    Args:
        judge: a LangChain chat model, a Judge, or a name.
        name: name of the metric in its scores; None: the class attribute ``name``.
        pass_at: lowest quality that passes.
        prompts: step name → ``{"instruction": …, "examples": […]}``, to replace ours.
    """

    name = "faithfulness"
    base_version = "2"
    requires: Mapping[str, tuple[str, ...]] = {"single_turn": ("user_input", "response", "retrieved_contexts")}
    questions = (EXTRACT_STATEMENTS, VERIFY_STATEMENTS)

    async def measure(self, sample: SingleTurnSample) -> Finding:
        """Extract the statements of the answer, then verify them against the contexts."""
        extracted = await self.ask(EXTRACT_STATEMENTS, {"question": sample.user_input, "answer": sample.response})
        statements = extracted.statements
        if not statements:
            return Finding(value=None, reason="the answer states nothing that could be checked")
        context = Passages.of(sample.retrieved_contexts)
        verdicts = await self.ask(VERIFY_STATEMENTS, {"context": context, "statements": statements})
        aligned = align(statements, verdicts.statements)
        lines = [f"{aligned.supported} of {len(statements)} statements are supported."]
        lines += [f"{line[0].upper()}{line[1:]}" for line in aligned.unsupported(statements)]
        if aligned.extra:
            lines.append(f"{aligned.extra} verdicts on other statements were ignored.")
        return Finding(value=aligned.supported / len(statements), explanation="\n".join(lines))


Classifier: TypeAlias = Callable[[Pairs], Sequence[float] | Awaitable[Sequence[float]]]

_SUPPORTED_ABOVE = 0.5
"""Probability above which a statement counts as supported."""


class PairScores(BaseModel):
    """One probability per pair, in the order of the pairs."""

    scores: list[float]


CLASSIFY_PAIRS: Step[PairScores] = Step(
    name="classify_pairs",
    instruction="""\
The evidence is a list of pairs: a text, and a statement. Give for each, in their order, the probability (0 to 1) that the \
text supports the statement.""",
    output=PairScores,
)


class FaithfulnessWithHHEM(JudgedMetric):
    """Which share of the answer's claims do the retrieved contexts support, by a local classifier?

    Formula: the judge splits the answer into statements. A statement counts as supported if the classifier returns a
    probability above 0.5 for the pair (contexts, statement). Value = supported statements / all statements. Range [0, 1],
    higher is better.

    Fields: ``user_input``, ``response``, ``retrieved_contexts``. Judge calls: 1 (``extract_statements``). Then the
    classifier is called for ``batch_size`` pairs at a time, on a separate thread. The score is undefined if the answer has no
    statement; the classifier is not called then.

    Blind spot: a statement that a wrong context supports counts as supported. The metric does not check truth. HHEM is a
    small model: it is best at English, and weak on long contexts, arithmetic and inferences over several sentences.
    A probability of 0.51 counts as much as a probability of 0.99.

    Source: Vectara's HHEM-2.1-Open, as in ragas 0.4.3's ``FaithfulnesswithHHEM``. Deviations: too few or too many
    probabilities, or one outside [0, 1], are an error. Missing fields are detected before the judge is called.

    Args:
        judge: a LangChain chat model, a Judge, or a name.
        classifier: pairs (context, statement) → probabilities. A function is called on a thread, an async function on the
            loop. None: HHEM, loaded with transformers (extra ``hhem``); with the lexical judge, a comparison of words.
        name: name of the metric in its scores.
        model: name or folder of the classifier. Code that comes with it is run (``trust_remote_code``). Ignored if
            ``classifier`` is given.
        device: device of the classifier (``"cpu"``, ``"cuda"``); None: the classifier's choice.
        batch_size: number of pairs per call of the classifier.
        pass_at: lowest quality that passes.
        prompts: ``{"extract_statements": {"instruction": …, "examples": […]}}``, to replace ours.

    Raises:
        ConfigurationError: ``batch_size`` or another argument is invalid, or the classifier cannot be loaded.
        MissingExtraError: transformers is not installed (extra ``hhem``), and no classifier is given.
    """

    base_version = "2"
    requires: Mapping[str, tuple[str, ...]] = {"single_turn": ("user_input", "response", "retrieved_contexts")}
    questions = (EXTRACT_STATEMENTS,)

    def __init__(
        self,
        judge: Any,
        *,
        classifier: Classifier | None = None,
        name: str = "faithfulness_with_hhem",
        model: str = HHEM,
        device: str | None = None,
        batch_size: int = 10,
        pass_at: float | None = None,
        prompts: OwnPrompts | None = None,
    ) -> None:
        if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
            raise ConfigurationError(f"{name}: batch_size is {batch_size!r}; it is a number of pairs, 1 or more")
        super().__init__(judge, name=name, pass_at=pass_at, prompts=prompts)
        if classifier is None and is_offline(self._judge):
            classifier = judged_pairs(self._judge)
        self._classifier = classifier or cast("Classifier", load_entailment_classifier(model, device=device))
        self.model = model if classifier is None else getattr(classifier, "__qualname__", type(classifier).__qualname__)
        self._batch_size = batch_size
        self._calls = BlockingCalls(1)

    def beginning(self, kind: str) -> tuple[str, int]:
        """Return the common first field, and the number of judge calls that begin with it."""
        return "user_input", 1

    async def measure(self, sample: SingleTurnSample) -> Finding:
        """Extract the statements of the answer, then classify them."""
        extracted = await self.ask(EXTRACT_STATEMENTS, {"question": sample.user_input, "answer": sample.response})
        statements = extracted.statements
        if not statements:
            return Finding(value=None, reason="the answer states nothing that could be checked")
        context = "\n".join(sample.retrieved_contexts or ())
        probabilities: list[float] = []
        for start in range(0, len(statements), self._batch_size):  # in sequence, because all calls share one processor
            pairs = [(context, statement) for statement in statements[start : start + self._batch_size]]
            probabilities += await self._classify(pairs)
        supported = sum(probability > _SUPPORTED_ABOVE for probability in probabilities)
        rows = zip(statements, probabilities, strict=True)
        explanation = "\n".join(f"{probability:.2f} {statement}" for statement, probability in rows)
        return Finding(value=supported / len(statements), explanation=explanation)

    async def _classify(self, pairs: list[tuple[str, str]]) -> list[float]:
        result = await self._calls.on_a_thread(lambda: self._classifier(pairs))
        scores = [float(score) for score in (await result if isawaitable(result) else result)]
        if len(scores) != len(pairs):
            raise JudgeUnparseable(f"the classifier gave {len(scores)} probabilities for {len(pairs)} pairs")
        if not all(isfinite(score) and 0.0 <= score <= 1.0 for score in scores):
            raise JudgeUnparseable("the classifier gave a probability outside 0 to 1")
        return scores


def judged_pairs(judge: Judge) -> Classifier:
    """Return a classifier that calls a judge (step ``classify_pairs``), for the offline judge and for tests."""

    async def classify(pairs: Pairs) -> list[float]:
        return (await CLASSIFY_PAIRS.ask(judge, {"pairs": [list(pair) for pair in pairs]})).scores

    return classify
