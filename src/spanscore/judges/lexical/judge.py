"""The offline judge, a deterministic heuristic that answers the prompts of built-in metrics by comparing words."""

from __future__ import annotations

import json

from spanscore.core.prompt import Prompt, Reply
from spanscore.errors import JudgeError
from spanscore.judges.effects.middleware import unwrapped
from spanscore.judges.lexical.answers import ANSWERS
from spanscore.judges.lexical.words import share_of, text_in, words
from spanscore.protocols import Judge

_HALF = 0.5
_OF_THE_EXCHANGE = (
    "user customer human person somebody assistant agent bot model question answer request response reply conversation message "
    "asks asked asking wants wanted says said mentions mentioned contains answers answered talks about"
)
"""Words that name the exchange itself, not its subject."""


class LexicalJudge:
    """A judge that needs no model, and compares words, numbers, names and negations.

    It is meant for tests, demos and a first look without a key, not as a basis for decisions. It detects a number or a name
    that is not in the context, an added or dropped "not", and a statement whose words are mostly foreign to the context. It
    does not detect a paraphrase in other words, an inference over two sentences, a swapped subject and object, or irony. Texts
    of any script are cut and compared; negations, opposites and endings are recognised in English only. A critique is only a
    check for insults and a few patterns (``_critique`` in ``answers.py``).

    Measured with Faithfulness on 60 answers written for it (20 topics, each with a grounded, a partly grounded and an
    ungrounded answer; tests/data/grounding.jsonl): AUC of grounded against ungrounded 0.995 on the ten topics it was not
    tuned on (1.00 on the ten it was), mean scores 0.83, 0.42 and 0.03. A grounded answer loses a sixth to its paraphrases.

    Measured on 44 questions, each with a context that answers it, mostly in other words, a near miss on the same subject that
    does not, and an unrelated context (tests/data/context_relevance.jsonl): shown the reference answer (ContextPrecision) AUC
    0.966 on the 22 questions it was not tuned on (0.90 on the 22 it was). Shown the question alone (ContextRelevance): 0.85
    against the contexts of the other questions and 0.87 against the unrelated questions (0.97 and 0.94 on the tuning half),
    but 0.51 against the near misses (0.85), as good as chance: without the answer it cannot separate the same subject from an
    answer.

    Measured with AnswerCorrectness on 48 answers with a reference (24 questions, each with a right and a wrong answer;
    tests/data/answers.jsonl): AUC 0.979 on the twelve questions it was not tuned on (0.979 on the twelve it was), mean scores
    0.71 and 0.12. With TopicAdherence on 32 conversations (16 assistants, each keeping to its topics and straying;
    tests/data/conversations.jsonl): AUC 1.00 on both halves, mean scores 1.00 and 0.21. These data favour a comparison of
    words: they name topics in words that the users use too.

    Measured with the metrics of agents on twelve cases each, for which it was written (tests/metrics/agent_cases.py): the
    value is right in 12 cases for ``tool_arguments``, in 10 for ``tool_selection``, ``error_recovery`` and
    ``plan_adherence``, and in 9 for ``step_efficiency`` and ``answer_completeness``.

    It raises JudgeError for a step without a heuristic.
    """

    model = "lexical-1"

    async def ask(self, prompt: Prompt) -> Reply:
        """Answer one prompt; the same prompt always gets the same answer.

        Raises:
            JudgeError: this step has no heuristic.
        """
        if prompt.criteria:
            answers = {name: json.loads((await self.ask(question)).text) for name, question in prompt.criteria.items()}
            return Reply(text=json.dumps(answers, ensure_ascii=False), model=self.model)
        answer = ANSWERS.get(prompt.step)
        if answer is None:
            raise JudgeError(
                f"the lexical judge answers questions that built-in metrics ask, not {prompt.step}: give this metric a model, "
                "or in a test a spanscore.testing.ScriptedJudge",
                error_type="unknown_step",
            )
        if prompt.applies_when is None:
            fields = answer(prompt)
        else:
            fields = {"applies": 1, **answer(prompt)} if applies(prompt) else {"applies": 0}
        return Reply(text=json.dumps(fields, ensure_ascii=False), model=self.model)


def is_offline(judge: Judge | None) -> bool:
    """Whether a judge is the offline one, ignoring its middleware."""
    return judge is not None and isinstance(unwrapped(judge), LexicalJudge)


def applies(prompt: Prompt) -> bool:
    """Whether at least half of the condition's words are in the evidence, apart from words that name the exchange itself."""
    if prompt.applies_when is None:
        return True
    meta = frozenset(words(_OF_THE_EXCHANGE).content)
    wanted = words(prompt.applies_when)
    named = words(" ".join([*(stem for stem in wanted.content if stem not in meta), *sorted(wanted.numbers)]))
    shown = words("\n".join(text_in(prompt, name) for name in prompt.evidence))
    return share_of(named, shown, of_nothing=1.0) >= _HALF
