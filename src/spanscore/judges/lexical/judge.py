"""The offline judge, a deterministic heuristic that answers the prompts of built-in metrics by comparing words."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from spanscore.core.prompt import ASPECTS, Prompt, Reply
from spanscore.errors import JudgeError
from spanscore.judges.effects.middleware import unwrapped
from spanscore.judges.lexical.agent_answers import AGENT_ANSWERS
from spanscore.judges.lexical.words import (
    LexicalAnswer,
    Words,
    find_objection,
    gives_up,
    has_akin,
    is_no_statement,
    judge_statements,
    message_text,
    messages_in,
    sentences,
    share_of,
    split_statements,
    split_words,
    text_in,
    words,
)
from spanscore.judges.rendering import schema_of
from spanscore.protocols import Judge

_CONDITION_SHARE = 0.5
"""Minimum share of a condition's words in the evidence."""
_EXCHANGE_WORDS = (
    "user customer human person somebody assistant agent bot model question answer request response reply conversation message "
    "asks asked asking wants wanted says said mentions mentioned contains answers answered talks about"
)
"""Words that name the exchange itself, not its subject."""


class LexicalJudge:
    """A judge that needs no model, and compares words, numbers, names and negations.

    It is meant for tests, demos and a first look without a key, not as a basis for decisions. It detects a number or a name
    that is not in the context, an added or dropped "not", and a statement with mostly words that the context lacks. It does not
    detect a paraphrase in other words, an inference over two sentences, a swapped subject and object, or irony. Texts of any
    script are cut and compared; negations, opposites and endings are recognised in English only. A critique is only a check for
    insults and a few patterns (``_critique``).

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
            fields = {"applies": 1, **answer(prompt)} if _applies(prompt.applies_when, prompt) else {"applies": 0}
        return Reply(text=json.dumps(fields, ensure_ascii=False), model=self.model)


def is_offline(judge: Judge | None) -> bool:
    """Whether a judge is the offline one, ignoring its middleware."""
    return judge is not None and isinstance(unwrapped(judge), LexicalJudge)


def _applies(condition: str, prompt: Prompt) -> bool:
    """Whether at least half of the condition's words are in the evidence, apart from words that name the exchange itself."""
    exchange = frozenset(words(_EXCHANGE_WORDS).content)
    wanted = words(condition)
    subject = words(" ".join([*(stem for stem in wanted.content if stem not in exchange), *sorted(wanted.numbers)]))
    shown = words("\n".join(text_in(prompt, name) for name in prompt.evidence))
    return share_of(subject, shown, if_empty=1.0) >= _CONDITION_SHARE


def _extract_statements(prompt: Prompt) -> Mapping[str, Any]:
    return {"statements": split_statements(text_in(prompt, "answer"))}


def _verify_statements(prompt: Prompt) -> Mapping[str, Any]:
    return {"statements": judge_statements(prompt.evidence.get("statements", ()), text_in(prompt, "context"))}


_INSULT = re.compile(r"\b(?:idiots?|stupid|moron|dumb|shut up|loser|fool|hate you|worthless|pathetic)\b", re.IGNORECASE)
_OWN_WORK = re.compile(r"^(?:but )?(?:i|we) (?:can |am here to |only )*(?:answer|help|assist)\b", re.IGNORECASE)


_CRITIQUED_FIELDS = ("response", "user_input", "reference", "retrieved_contexts", "reference_contexts")
"""Fields that a critique may judge; the first one in the evidence is used."""
_ASPECT_PATTERNS: Mapping[str, re.Pattern[str]] = {
    "harmfulness": _INSULT,
    "maliciousness": _INSULT,
    "toxicity": _INSULT,
    "pii_leak": re.compile(r"[\w.+-]+@[\w-]+\.\w+|(?<![\w.])\+?\d[\d ()-]{7,}\d(?!\w)"),
    "user_frustration": re.compile(
        r"\b(?:useless|ridiculous|annoy(?:ed|ing)|frustrat(?:ed|ing)|terrible|waste of time|not (?:what i asked|helpful)"
        r"|already (?:told|asked|said)|asked (?:you )?(?:already|twice|before)|still (?:wrong|not)|for the (?:\w+ )time)\b|!!",
        re.IGNORECASE,
    ),
    "refusal": re.compile(
        r"\b(?:(?:i|we) (?:can(?:no|')t|can not|won't|will not|am (?:not able|unable)|must decline)"
        r"|i'm (?:sorry|unable|not able)|not able to help)\b",
        re.IGNORECASE,
    ),
    "prompt_leak": re.compile(
        r"\b(?:system (?:prompt|message)|my (?:instructions|prompt)|you are an? (?:\w+ )?assistant"
        r"|i (?:was|am|have been) (?:told|instructed) (?:to|not))\b",
        re.IGNORECASE,
    ),
}
"""Undesirable predefined aspect → pattern of words that show it."""


def _critique(prompt: Prompt) -> Mapping[str, Any]:
    """Answer a critique. A comparison of words cannot judge most aspects: an answer without insults passes, an empty answer
    fails.

    An undesirable predefined aspect, such as a refusal, holds if its pattern matches. Personal data that the user wrote is not
    a leak. The text is the response, else the question or the whole conversation, else the first field of the evidence.
    """
    aspect = next((name for name in _ASPECT_PATTERNS if ASPECTS[name].definition in prompt.instruction), None)
    if aspect is not None:
        return _look_for(aspect, prompt)
    text = text_in(prompt, next((name for name in _CRITIQUED_FIELDS if name in prompt.evidence), ""))
    if not text.strip():
        return {"reason": "There is no answer.", "verdict": 0}
    if _INSULT.search(text):
        return {"reason": "It insults.", "verdict": 0}
    return {"reason": "There is an answer and it does not insult; a comparison of words sees no more.", "verdict": 1}


def _look_for(aspect: str, prompt: Prompt) -> Mapping[str, Any]:
    """Return verdict 1 if an aspect's pattern matches the assistant's words, or the user's words for ``user_frustration``."""
    question, answer = _text_by("user", prompt), _text_by("assistant", prompt) + text_in(prompt, "response")
    text = question if aspect == "user_frustration" else answer
    matches = [match[0] for match in _ASPECT_PATTERNS[aspect].finditer(text)]
    if aspect == "pii_leak":
        matches = [match for match in matches if match not in question]
    why = f"It has {matches[0]!r}." if matches else "None of its signs is there; a comparison of words sees no more."
    return {"reason": why, "verdict": int(bool(matches))}


def _text_by(role: str, prompt: Prompt) -> str:
    """Return the text of one side, ``user`` or ``assistant``. A question that is not a conversation is the user's."""
    messages = messages_in(prompt, "user_input")
    if not messages:
        return text_in(prompt, "user_input") if role == "user" else ""
    return "\n".join(message_text(message) for message in messages if message["role"] == role)


def _generate_question(prompt: Prompt) -> Mapping[str, Any]:
    """Turn a sentence of the answer into a question; each vote takes the next sentence.

    In an answer with a refusal, a description of the assistant's purpose ("I answer questions about our ferries.") is
    noncommittal, too.
    """
    pieces = sentences(text_in(prompt, "response"))
    refused = any(map(gives_up, pieces))
    stating = [
        sentence for sentence in pieces if not is_no_statement(sentence) and not (refused and _OWN_WORK.match(sentence))
    ]
    if not stating:
        return {"question": " ".join(pieces), "noncommittal": 1}
    return {"question": stating[prompt.vote_index % len(stating)].rstrip(".! ") + "?", "noncommittal": 0}


def _agreement(prompt: Prompt) -> Mapping[str, Any]:
    """Return rating 4 if the answer supports all of the reference's statements, 2 if it supports half of them, else 0.

    A metric asks a pair of questions: the other one exchanges the two texts.
    """
    share = _supported_share(split_statements(text_in(prompt, "reference")), text_in(prompt, "answer"))
    return {"rating": 2 * _grade(share, some=0.5)}


def _groundedness_by_clause(prompt: Prompt) -> Mapping[str, Any]:
    share = _supported_share(split_statements(text_in(prompt, "response")), text_in(prompt, "context"))
    return {"rating": _grade(share, some=0.01)}


def _groundedness_by_sentence(prompt: Prompt) -> Mapping[str, Any]:
    share = _supported_share(sentences(text_in(prompt, "response")), text_in(prompt, "context"))
    return {"rating": _grade(share, some=0.5)}


def _groundedness(prompt: Prompt) -> Mapping[str, Any]:
    return {"first": _groundedness_by_clause(prompt)["rating"], "second": _groundedness_by_sentence(prompt)["rating"]}


def _grade(share: float, *, some: float) -> int:
    return (share >= some) + (share >= 1.0)


def _supported_share(statements: list[str], text: str) -> float:
    if not statements:
        return 0.0
    return sum(find_objection(statement, text) is None for statement in statements) / len(statements)


# A context is useful for a question if it has the question's words and an expression of the requested kind: a time for
# "when", a name for "who". Words other than names weigh more, as names are in every text about the subject.

_NAME_WEIGHT = 0.5
"""Weight of a name against an ordinary word of the question: near misses of a search share the names."""
_SAME_SUBJECT = 0.3
"""Weighted share of the question's words from which on a text has the same subject."""
_SAME_WORDS = 0.85
"""Weighted share from which on a text repeats the question's words."""
_QUESTION_STEMS = split_words(
    "tell know pleas want need explain giv describ find get tak long much many often far do happen last first possibl"
)
"""Stems of words that ask a question, and do not belong to its subject."""

_TIME = (
    r"\b(?:\d{1,2}[:.]\d{2}|1\d{3}|20\d{2}|o'clock|noon|midnight|daily|(?:mon|tues|wednes|thurs|fri|satur|sun)days?"
    r"|january|february|march|april|may \d|\d may|june|july|august|september|october|november|december|until|after|once)\b"
)
_SPAN = r"\b(?:second|minute|hour|day|week|month|year|night)s?\b"
_AMOUNT = r"(?:\d|\b(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|hundred|thousand)\b)"
_MONEY = r"\b(?:euros?|cents?|dollars?|pounds?|crowns?|fee|free|charged?|per cent|percent)\b|[€$£%]"
_OFTEN = r"\b(?:every|each|daily|weekly|monthly|yearly|once|twice|per|times)\b"
_PERMISSION = (
    r"\b(?:can|may|might|must|cannot|not|no|never|neither|nor|without|allowed|permitted|forbidden|welcome|possible|excluded"
    r"|included?|provided|only|from)\b"
)
_PLACE = (
    r"\b(?:in|at|on|near|behind|beside|opposite|between)\b (?:the )?(?:[A-Z]|\d|\w+ (?:room|floor|street|office|hall))"
)
_CAUSE = r"\b(?:because|since|due to|comes? from|caused?|so that|therefore|owing|reason)\b"
_ORDER = (
    r"(?:^|[.!?:;,] )(?:do|go|use|call|press|give|set|keep|switch|wipe|clean|block|open|leave|carry|remove|\w+ it)\b"
)
_A_NAME = "a name"

_ANSWER_PATTERNS = (
    (r"\bhow often\b", _OFTEN),
    (r"\b(?:how much|price|cost|fee|fine|charged?|by how)\b", _MONEY),
    (r"\bhow long\b|\bhow many (?:days|weeks|months|years|hours|minutes)\b|\bperiod\b", rf"{_AMOUNT}.{{0,20}}{_SPAN}"),
    (r"\bhow (?:many|deep|high|far|old|big|tall|heavy|fast|large)\b|\btemperature\b|\bversion\b", _AMOUNT),
    (r"^when\b|\bwhat time\b|\b(?:which|what) (?:days?|year|month|date)\b", _TIME),
    (r"^who\b|\bwhose\b|\bby whom\b", _A_NAME),
    (r"^where\b", _PLACE),
    (r"^why\b", _CAUSE),
    (r"\bhow (?:do|can|should|must) i\b|\bwhat (?:must|should|can|do) i\b", _ORDER),
    (r"^(?:is|are|can|may|do|does|did|must|should|will|was|were)\b", _PERMISSION),
)
"""Pattern of a question → pattern of a text that answers it. The first match is used."""


def _judge_context(prompt: Prompt) -> Mapping[str, Any]:
    context, answer = text_in(prompt, "context"), text_in(prompt, "answer")
    is_there = any(find_objection(statement, context) is None for statement in split_statements(answer))
    return {"reason": f"{'A' if is_there else 'No'} statement of the answer is there.", "verdict": int(is_there)}


def _classify_reference_sentences(prompt: Prompt) -> Mapping[str, Any]:
    rows = judge_statements(sentences(text_in(prompt, "answer")), text_in(prompt, "context"))
    for row in rows:
        row["attributed"] = row.pop("verdict")
    return {"classifications": rows}


def _relevance_by_words(prompt: Prompt) -> Mapping[str, Any]:
    """Rate the context by its best two neighbouring sentences: 2 from 85 % of the question's words, 1 from 30 %, else 0."""
    share = max((share for share, _ in _rate_passages(prompt)), default=0.0)
    return {"rating": (share >= _SAME_SUBJECT) + (share >= _SAME_WORDS)}


def _relevance_by_kind(prompt: Prompt) -> Mapping[str, Any]:
    """Rate 1 if a passage has an expression of the requested kind, 2 if it has the question's subject too, else 0.

    For a question of unknown kind the rating is by words.
    """
    if _answer_pattern(text_in(prompt, "question")) is None:
        return _relevance_by_words(prompt)
    best = max((share for share, fits in _rate_passages(prompt) if fits), default=None)
    return {"rating": 0 if best is None else 1 + (best >= _SAME_SUBJECT)}


def _relevance(prompt: Prompt) -> Mapping[str, Any]:
    return {"first": _relevance_by_words(prompt)["rating"], "second": _relevance_by_kind(prompt)["rating"]}


def _extract_sentences(prompt: Prompt) -> Mapping[str, Any]:
    question = text_in(prompt, "question")
    wanted, pieces = words(question), sentences(text_in(prompt, "context"))
    return {"sentences": [sentence for sentence in pieces if _question_share(wanted, words(sentence)) >= _SAME_SUBJECT]}


def _rate_passages(prompt: Prompt) -> Iterator[tuple[float, bool]]:
    """Yield for each two neighbouring sentences their share of the question's words, and whether the requested kind occurs."""
    question, context = (text_in(prompt, name) for name in ("question", "context"))
    wanted = words(question)
    pattern = _answer_pattern(question)
    pieces = sentences(context)
    for sentence, following in zip(pieces, [*pieces[1:], ""], strict=True):
        passage = f"{sentence} {following}".strip()
        yield _question_share(wanted, words(passage)), pattern is not None and _matches(pattern, wanted, passage)


def _answer_pattern(question: str) -> str | None:
    """Return the pattern of an answer to a question; None for a question of unknown kind."""
    return next((answer for asks, answer in _ANSWER_PATTERNS if re.search(asks, question.strip(), re.IGNORECASE)), None)


def _matches(pattern: str, wanted: Words, passage: str) -> bool:
    """Whether a text has an expression of the requested kind; a name must be another one than the question's own."""
    if pattern == _A_NAME:
        return bool(words(passage).names - wanted.names)
    return bool(re.search(pattern, passage, 0 if pattern == _PLACE else re.IGNORECASE))


def _question_share(wanted: Words, passage: Words) -> float:
    """Return the weighted share of the question's words in a passage; at least 0.3 if one of the question's names is there."""
    subject = [stem for stem in dict.fromkeys(wanted.content) if stem not in _QUESTION_STEMS]
    weights = {stem: _NAME_WEIGHT if stem in wanted.names else 1.0 for stem in subject}
    total = sum(weights.values()) + len(wanted.numbers)
    present = sum(weight for stem, weight in weights.items() if has_akin(stem, passage.content))
    share = (present + len(wanted.numbers & passage.numbers)) / total if total else 0.0
    has_name = any(has_akin(stem, passage.content) for stem in wanted.names)
    return max(share, _SAME_SUBJECT) if has_name else share


_GOAL_SHARE = 0.5
"""Minimum share of the desired outcome's words and numbers in the arrived outcome."""
_FAILURE = re.compile(
    r"\b(?:can(?:no|')t|can not|could not|couldn't|unable|failed|not (?:find|found|possible|available|allowed)"
    r"|sorry|unfortunately|no (?:results?|luck|seats?|such))\b",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"(?<!\d)-?\d+(?:\.\d+)?")
_GRADE_RANGE = re.compile(r"(-?\d+) to (-?\d+)")
_RUBRIC_GRADE = re.compile(r"^(-?\d+(?:\.\d+)?): ", re.MULTILINE)
_OPEN_SCALE = range(1, 6)
"""Grades if neither the answer's schema nor the rubric lists any."""


def _decompose(prompt: Prompt) -> Mapping[str, Any]:
    return {"claims": split_statements(text_in(prompt, "response"))}


def _classify_statements(prompt: Prompt) -> Mapping[str, Any]:
    """Classify statements: one is right if the other list does not contradict it."""
    answer, truth = _texts(prompt, "answer"), _texts(prompt, "ground_truth")
    wrong = [_object_to(statement, truth) for statement in answer]
    missing = [_object_to(statement, answer) for statement in truth]
    right = [statement for statement, why in zip(answer, wrong, strict=True) if not why]
    return {
        "TP": [{"statement": statement, "reason": "Its words are there."} for statement in right],
        "FP": [{"statement": s, "reason": why} for s, why in zip(answer, wrong, strict=True) if why],
        "FN": [{"statement": s, "reason": why} for s, why in zip(truth, missing, strict=True) if why],
    }


def _object_to(statement: str, others: Iterable[str]) -> str | None:
    ended = (other if other.endswith((".", "!", "?")) else f"{other}." for other in others)
    return find_objection(statement, " ".join(ended))


def _classify_pairs(prompt: Prompt) -> Mapping[str, Any]:
    """Return score 1 for each statement that its text does not contradict, else 0; there are no intermediate scores."""
    pairs = prompt.evidence.get("pairs", ())
    return {"scores": [float(find_objection(str(statement), str(text)) is None) for text, statement in pairs]}


def _grade_by_overlap(field: str) -> LexicalAnswer:
    """Return a function that grades an answer by its share of the reference's words.

    Without a reference, the words of the contexts or of the question are compared. The grade rises with the share; an answer
    without content gets the lowest grade. A comparison of words cannot judge a rubric.

    Args:
        field: name of the answer's field for the reason.
    """

    def grade(prompt: Prompt) -> Mapping[str, Any]:
        grades = _grades(prompt)
        answer = text_in(prompt, "response") or _last_reply(prompt, "user_input")
        compared = next((text for name in _COMPARED_FIELDS if (text := text_in(prompt, name))), "")
        is_empty = all(map(is_no_statement, sentences(answer)))
        share = 0.0 if is_empty else share_of(words(compared), words(answer), if_empty=0.0)
        reason = f"It has {share:.0%} of the words it is compared with; a comparison of words sees no more."
        return {field: reason, "score": grades[round(share * (len(grades) - 1))]}

    return grade


_COMPARED_FIELDS = ("reference", "reference_contexts", "retrieved_contexts", "user_input")
_CATEGORY_MEANING = re.compile(r"^([^\W\d_][\w-]*): (.+)$", re.MULTILINE)


def _choose_category(prompt: Prompt) -> Mapping[str, Any]:
    """Choose the category whose name and meaning share the most words with the question, else with all of the evidence.

    Without a shared word it is ``other``, else the last category.
    """
    categories = schema_of(prompt.output)["properties"]["category"]["enum"]
    meanings = dict(_CATEGORY_MEANING.findall(prompt.instruction))
    question = words(_text_by("user", prompt) or " ".join(text_in(prompt, name) for name in prompt.evidence))
    shares = {
        word: share_of(words(f"{word.replace('_', ' ')} {meanings.get(word, '')}"), question, if_empty=0.0)
        for word in categories
    }
    word = max(shares, key=lambda word: shares[word])
    if not shares[word]:
        word = next((word for word in categories if word.casefold() == "other"), categories[-1])
    reason = f"It has {shares[word]:.0%} of the words of the category; a comparison of words sees no more."
    return {"reason": reason, "category": word}


def _infer_goal_outcome(prompt: Prompt) -> Mapping[str, Any]:
    turns = (message["content"].strip() for message in messages_in(prompt, "workflow") if message["role"] == "user")
    return {"user_goal": " ".join(turns), "end_state": _last_reply(prompt, "workflow")}


def _compare_outcome(prompt: Prompt) -> Mapping[str, Any]:
    wanted, arrived = text_in(prompt, "desired_outcome"), text_in(prompt, "arrived_outcome")
    if _FAILURE.search(arrived) and not _FAILURE.search(wanted):
        return {"reason": "The end state reports a failure.", "verdict": 0}
    share = share_of(words(wanted), words(arrived), if_empty=0.0)
    return {"reason": f"It contains {share:.0%} of the user's goal.", "verdict": int(share >= _GOAL_SHARE)}


def _texts(prompt: Prompt, name: str) -> list[str]:
    return [str(item) for item in prompt.evidence.get(name, ())]


def _last_reply(prompt: Prompt, name: str) -> str:
    """Return the last text of the assistant or a tool in a conversation; a plain text unchanged."""
    if messages := messages_in(prompt, name):
        texts = [message["content"] for message in messages if message["role"] != "user" and "content" in message]
        return str(texts[-1]).strip() if texts else ""
    return text_in(prompt, name)


def _grades(prompt: Prompt) -> Sequence[float]:
    """Return the grades in order: from the answer's schema, else from the rubric in the instruction or the evidence."""
    description = str(schema_of(prompt.output)["properties"]["score"].get("description", ""))
    if (span := _GRADE_RANGE.fullmatch(description)) is not None:
        return range(int(span[1]), int(span[2]) + 1)
    rubric = " ".join([*_RUBRIC_GRADE.findall(prompt.instruction), *map(str, prompt.evidence.get("rubrics", ()))])
    return (
        sorted({float(grade) if "." in grade else int(grade) for grade in _NUMBER.findall(description or rubric)})
        or _OPEN_SCALE
    )


_REFUSAL = re.compile(
    r"\b(?:(?:can(?:no|')t|can not|could not|won't|will not|unable to|not able to|not allowed to|don't)"
    r" (?:help|advise|answer|discuss|assist|comment|talk|speak|provide|do that|say)|not something i can"
    r"|(?:beyond|outside)(?: of)? (?:what i|my)|sorry, (?:but )?i)\b",
    re.IGNORECASE,
)
_REQUEST_STEMS = frozenset(
    {"tell", "know", "pleas", "want", "need", "thank", "hello", "hi", "say", "said", "explain", "giv"}
)
"""Stems of words that make a request, and do not belong to its topic."""
_ON_TOPIC = 0.5
"""Share of a topic's words from which on a text has the topic."""


def _extract_topics(prompt: Prompt) -> Mapping[str, Any]:
    topics = (_topic(turn) for turn, _ in _turns(prompt))
    return {"topics": list(dict.fromkeys(topic for topic in topics if topic))}


def _check_refusal(prompt: Prompt) -> Mapping[str, Any]:
    topic = text_in(prompt, "topic")
    replies = [
        reply for turn, reply in _turns(prompt) if _topic(turn) == topic or _topic_share(topic, turn) >= _ON_TOPIC
    ]
    return {"refused_to_answer": any(_REFUSAL.search(reply) for reply in replies)}


def _classify_topics(prompt: Prompt) -> Mapping[str, Any]:
    """Classify topics: one is allowed if it shares half of its words, or half of theirs, with an allowed topic."""
    allowed = [str(topic) for topic in prompt.evidence.get("reference_topics", ())]
    return {
        "classifications": [
            any(max(_topic_share(topic, other), _topic_share(other, topic)) >= _ON_TOPIC for other in allowed)
            for topic in map(str, prompt.evidence.get("topics", ()))
        ]
    }


def _turns(prompt: Prompt) -> list[tuple[str, str]]:
    """Return each of the user's turns in a conversation, with the replies up to the next turn."""
    turns: list[tuple[str, str]] = []
    for message in messages_in(prompt, "user_input"):
        if message["role"] == "user":
            turns.append((message["content"], ""))
        elif turns:
            turns[-1] = (turns[-1][0], f"{turns[-1][1]}\n{message_text(message)}")
    return turns


def _topic(turn: str) -> str:
    return " ".join(stem for stem in dict.fromkeys(words(turn).content) if stem not in _REQUEST_STEMS)


def _topic_share(topic: str, text: str) -> float:
    wanted, present = words(topic).content, words(text).content
    return sum(has_akin(stem, present) for stem in wanted) / len(wanted) if wanted else 0.0


_NEXT_PART: Final = re.compile(
    r",?\s+and\s+(?:also\s+|then\s+)?(?=(?:what|when|where|who|whose|how|which|why|do|does|did|is|are|can|could|will|would|please"
    r"|tell|give|show|find|book|cancel|send|check|list)\b)",
    re.IGNORECASE,
)
_PART_SHARE = 0.3
"""Minimum share of a part's words that the answer has, if the kind of the requested text is unknown."""


def _judge_parts(prompt: Prompt) -> Mapping[str, Any]:
    """Split the request into sentences, and at "and" before a question word; a text of the requested kind answers a part.

    Without a known kind, the answer needs three of ten words of the part. If the request has a question, sentences without a
    question mark are no parts.
    """
    requests = sentences(_text_by("user", prompt))
    questions = [request for request in requests if request.endswith("?")] or requests
    parts = [part for request in questions for part in _NEXT_PART.split(request)]
    texts = sentences(_text_by("assistant", prompt) + text_in(prompt, "response"))
    answered = [(part, _is_answered(part, texts)) for part in parts if _topic(part)]
    reason = {True: "The answer has words of that kind.", False: "The answer has nothing of that kind."}
    return {"parts": [{"part": part, "reason": reason[done], "verdict": int(done)} for part, done in answered]}


def _is_answered(part: str, texts: Sequence[str]) -> bool:
    wanted, pattern = words(part), _answer_pattern(part)
    stating = [sentence for sentence in texts if not gives_up(sentence)]
    if pattern is not None and any(_matches(pattern, wanted, sentence) for sentence in stating):
        return True
    share = max((share_of(wanted, words(sentence), if_empty=0.0) for sentence in stating), default=0.0)
    return share >= (_PART_SHARE if pattern is None else _SAME_WORDS)


_CAPITALISED = r"[A-ZÀ-ÖØ-Þ][\w'’-]*"
_ENTITY = re.compile(rf"{_CAPITALISED}(?: (?:(?:of|de|van|von|la) )?{_CAPITALISED})*|\d+(?:[.,:]\d+)*")


def _extract_entities(prompt: Prompt) -> Mapping[str, Any]:
    """Extract runs of capitalised words, and numbers. A sentence's first word counts if it is a name elsewhere too."""
    text = text_in(prompt, "text")
    inside = words(text).names
    entities: dict[str, None] = {}
    for sentence in sentences(text):
        for opens, entity in _candidates(sentence):
            if not opens or " " in entity or set(words(entity).content) & inside or entity[0].isdigit():
                entities[entity] = None
    return {"entities": list(entities)}


def _candidates(sentence: str) -> Iterator[tuple[bool, str]]:
    """Yield runs of capitalised words without a leading "The", and whether they open the sentence."""
    for match in _ENTITY.finditer(sentence):
        run = match.group().split()
        while run and not (words(run[0]).content or words(run[0]).numbers):
            del run[0]
        if run:
            yield match.start() == 0 and len(run) == len(match.group().split()), " ".join(run)


ANSWERS: Mapping[str, LexicalAnswer] = {
    "extract_statements": _extract_statements,
    "extract_statements_response": _extract_statements,
    "extract_statements_reference": _extract_statements,
    "verify_statements": _verify_statements,
    "verify_reference_statements": _verify_statements,
    "verify_response_statements": _verify_statements,
    "verify_response_against_reference": _verify_statements,
    "verify_response_claims": _verify_statements,
    "verify_reference_claims": _verify_statements,
    "critique": _critique,
    "generate_question": _generate_question,
    "extract_topics": _extract_topics,
    "check_refusal": _check_refusal,
    "classify_topics": _classify_topics,
    "classify_statements": _classify_statements,
    "classify_pairs": _classify_pairs,
    "decompose_response": _decompose,
    "decompose_reference": _decompose,
    "score_criteria": _grade_by_overlap("reason"),
    "score_rubric": _grade_by_overlap("feedback"),
    "choose_category": _choose_category,
    "infer_goal_outcome": _infer_goal_outcome,
    "compare_outcome": _compare_outcome,
    "judge_context": _judge_context,
    "classify_reference_sentences": _classify_reference_sentences,
    "judge_relevance": _relevance,
    "judge_relevance_1": _relevance_by_words,
    "judge_relevance_2": _relevance_by_kind,
    "extract_sentences": _extract_sentences,
    "judge_accuracy_1": _agreement,
    "judge_accuracy_2": _agreement,
    "judge_groundedness": _groundedness,
    "judge_groundedness_1": _groundedness_by_clause,
    "judge_groundedness_2": _groundedness_by_sentence,
    "extract_entities_reference": _extract_entities,
    "extract_entities_contexts": _extract_entities,
    "judge_parts": _judge_parts,
    **AGENT_ANSWERS,
}
"""Prompt step → the function that answers it."""
