"""Ask a judge a question: parse its answer, check it against the requested Pydantic model, and repair it at most once."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, lru_cache
from itertools import islice
from types import MappingProxyType
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError

from spanscore.core.codecs.media import NUMBER
from spanscore.core.log import type_name
from spanscore.core.prompt import Prompt, Reply
from spanscore.core.score import JudgeCall
from spanscore.errors import JudgeError, JudgeUnparseable
from spanscore.judges.effects.cost import budgeted, with_cost
from spanscore.judges.effects.limited import judge_in_force
from spanscore.judges.effects.middleware import reads_images
from spanscore.judges.langchain.errors import judge_error
from spanscore.judges.records import (
    completed_by,
    failed_call,
    is_our_cancellation,
    record,
    recorded_calls,
    transcribe_answer,
    with_names,
)
from spanscore.judges.rendering import as_json, bound_of, fields_of, fit, form
from spanscore.judges.score_context import current_score, suppress_tracing
from spanscore.protocols import Judge

_DEEPEST = 20
"""Deepest nesting of brackets; the form of an answer has three."""
_MOST_VALUES = 1_000
"""Most values of one object; bounds the parsing time of any text."""
_BLANKS = re.compile(r"(?:\s|//[^\n]*|#[^\n]*|/\*(?:[^*]|\*(?!/))*\*/)*+")
"""Blanks and comments."""
_NO_PUNCTUATION_NEXT = r"(?!\s*+[,:}\]])"
_TEXTS: Mapping[str, re.Pattern[str]] = {
    '"': re.compile(r'"((?:[^"\\]|\\.)*+)"', re.DOTALL),
    "'": re.compile(rf"'((?:[^'\\]|\\.|'{_NO_PUNCTUATION_NEXT})*+)'", re.DOTALL),
    "\u201c": re.compile("\u201c((?:[^\u201d\\\\]|\\\\.)*+)\u201d", re.DOTALL),
    "\u2018": re.compile(rf"{chr(0x2018)}((?:[^\u2019\\]|\\.|\u2019{_NO_PUNCTUATION_NEXT})*+)\u2019", re.DOTALL),
}
"""Opening quote → pattern of a quoted text; its group is the text inside the quotes."""
_ESCAPE = re.compile(r'\\(?:u[0-9a-fA-F]{4}|.)|"', re.DOTALL)
_NAME = re.compile(r"[A-Za-z_]\w*")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.])")
_LITERALS: Mapping[str, Any] = {"true": True, "false": False, "null": None, "none": None}


def object_of(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object from its pairs. Duplicate keys are an error: ``dict`` would keep the last of two verdicts.

    Raises:
        ValueError: a key occurs twice.
    """
    unique = dict(pairs)
    if len(unique) < len(pairs):
        raise ValueError("a key appears twice in an object")
    return unique


# strict=False: models write raw line breaks inside strings.
_DECODER = json.JSONDecoder(strict=False, object_pairs_hook=object_of)


def loose_object(text: str, start: int) -> tuple[dict[str, Any], int]:
    """Return the object that begins at ``start`` in nearly valid JSON, and the position behind it.

    Models without an enforced schema write JSON with the faults below. Each of them has one reading; any other fault is an
    error::

        "\\(x^2\\)"              an escape that JSON lacks is a backslash
        {"a": 1,}              a comma before the closing bracket
        {'a': True, “b”: None}   single quotes, curly quotes, Python's words
        {"a": 1 // one         a comment: ``// …``, ``# …``, ``/* … */``
        }

    A single quote ends its text only in front of a comma, a colon, or a closing bracket. A double quote always ends its text:
    a quotation that was not escaped makes the text unreadable, as it does in JSON.

    Raises:
        ValueError: no object begins there, it has several readings, or a key occurs twice in an object.
    """
    cursor = _Cursor(text, start)
    return cursor.read_object(_DEEPEST), cursor.position


class _Cursor:
    """A parser of nearly valid JSON. Its position moves behind each part that it reads; faults raise ValueError."""

    def __init__(self, text: str, position: int) -> None:
        self._text = text
        self._values = 0
        self.position = position

    def read_object(self, depth: int) -> dict[str, Any]:
        """Read an object."""
        return object_of(self._read_list("{", "}", self._read_pair, depth))

    def _read_pair(self, depth: int) -> tuple[str, Any]:
        if self._peek() not in _TEXTS:
            raise ValueError("a key without quotes")
        key = self._read_text()
        self._expect(":")
        return key, self._read_value(depth)

    def _read_value(self, depth: int) -> Any:
        character = self._peek()
        self._values += 1
        if self._values > _MOST_VALUES:
            raise ValueError("too many values")
        if character in _TEXTS:
            return self._read_text()
        if character == "{":
            return self.read_object(depth)
        if character == "[":
            return self._read_list("[", "]", self._read_value, depth)
        if character.isalpha():
            word = self._match(_NAME).lower()
            if word not in _LITERALS:
                raise ValueError("a word without quotes")
            return _LITERALS[word]
        return json.loads(self._match(_NUMBER))

    def _read_list(self, begin: str, end: str, read: Callable[[int], Any], depth: int) -> list[Any]:
        if not depth:
            raise ValueError("too deep")
        self._expect(begin)
        parts = []
        while self._peek() != end:
            parts.append(read(depth - 1))
            if self._peek() != end:
                self._expect(",")
        self._expect(end)
        return parts

    def _peek(self) -> str:
        """Skip blanks and comments, and return the next character without reading it; empty at the end."""
        blanks = _BLANKS.match(self._text, self.position)
        self.position = blanks.end() if blanks else self.position
        return self._text[self.position : self.position + 1]

    def _expect(self, character: str) -> None:
        if self._peek() != character:
            raise ValueError(f"no {character}")
        self.position += 1

    def _match(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self._text, self.position)
        if match is None:
            raise ValueError("not JSON")
        self.position = match.end()
        return match[match.lastindex or 0]

    def _read_text(self) -> str:
        body = self._match(_TEXTS[self._text[self.position]])
        text: str = _DECODER.decode(f'"{_ESCAPE.sub(_repair_escape, body)}"')
        return text


def _repair_escape(match: re.Match[str]) -> str:
    """Return an escape, or a bare double quote, as valid JSON. ``\\f`` in ``\\frac`` is LaTeX, and no form feed."""
    escape = match[0]
    if escape == '"':
        return '\\"'
    following = match.string[match.end() : match.end() + 1]
    if len(escape) > 2 or escape[1] in '"\\/nrt' or (escape[1] in "bf" and not following.isalpha()):  # noqa: PLR2004  (\uXXXX)
        return escape
    return escape[1] if escape[1] in "'\u2018\u2019\u201c\u201d" else f"\\{escape}"


def validate_answer(value: Any, output: type[BaseModel]) -> BaseModel | None:
    """Return an object as an ``output``; None if it is invalid, or if two of its keys differ only in case."""
    if not isinstance(value, Mapping) or not _has_valid_keys(value, output):
        return None
    try:
        return output.model_validate(value)
    except ValidationError:
        pass
    try:
        return output.model_validate(_rename_keys(value, _names(output)))
    except (ValueError, RecursionError):  # pydantic's is a ValueError, and so is a key that appears twice
        return None


def _has_valid_keys(value: Mapping[str, Any], output: type[BaseModel]) -> bool:
    """Whether an object's keys differ in more than case, and at least one is a field of ``output``."""
    names = _names(output)
    if not names or all(names.get(key) == key for key in value):  # fast path: most keys need no folding
        return True
    folded = {_fold_name(key) for key in value}
    return len(folded) == len(value) and not names.keys().isdisjoint(folded)


def _fold_name(name: str) -> str:
    """Return a name without case, blanks, hyphens and underscores: ``"End state"`` is ``end_state``."""
    return "".join(character for character in name.casefold() if character.isalnum())


def _rename_keys(value: Any, names: Mapping[str, str]) -> Any:
    """Return a value whose objects have their keys renamed to the model's field names."""
    if isinstance(value, list):
        return [_rename_keys(part, names) for part in value]
    if not isinstance(value, Mapping):
        return value
    return object_of([(names.get(_fold_name(key), key), _rename_keys(part, names)) for key, part in value.items()])


@lru_cache(maxsize=256)
def _names(output: type[BaseModel]) -> Mapping[str, str]:
    return {_fold_name(name): name for name, _ in fields_of(output)}


_MARK = re.compile(r"\{|<(/?)think(?:ing)?(?:\s[^<>]{0,100})?>", re.IGNORECASE)
_THOUGHT_ENDS = re.compile(r"</think(?:ing)?>", re.IGNORECASE)
_LABELLED = re.compile(r"[\s*_`]*([A-Za-z]\w*)[\s*_`]*[:=][\s*_`]*([^\n]*?)[\s*_`.]*")
"""A line with a name and a value: "Rating: 4", "**Verdict:** 1"."""
_BRACKET_OR_STRING = re.compile(r'\\.|"[^"\\]*(?:\\.?[^"\\]*)*(?:"|\Z)|[{}]', re.DOTALL)
"""An unterminated string extends to the end of the text: a new search from each of its quotes would take quadratic time."""
_ESCAPED = re.compile(r"\\+u([0-9a-fA-F]{4})")
_MAX_PIECES = 50
"""Objects, thoughts and stray brackets of one answer. Together with ``_MAX_TOKENS`` it bounds the parsing time of any text."""
_MAX_TOKENS = 2_000
"""Brackets and strings examined in the search for one closing bracket."""
_SENTENCE_BLANKS = 3
"""Minimum number of blanks in a text that counts as a sentence: two authors hardly write the same sentence by chance."""


class _Piece(NamedTuple):
    """The text from an opening bracket to its closing bracket.

    Attributes:
        text: the text, both brackets included.
        value: the parsed object; None if the text is not a JSON object.
        forms: the texts, without spaces and quotes (``_squeeze_text``), by which a quotation of it is found in the evidence.
            The first is its own text, which identifies it.
        is_wrapped: whether it is the only value of another object.
    """

    text: str
    value: Any
    forms: tuple[str, ...] = ()
    is_wrapped: bool = False


class _ParsedAnswer(NamedTuple):
    """A parsed answer.

    Attributes:
        text: the text behind the last thought.
        pieces: the objects in ``text``.
        prose: ``text`` without these objects.
        rivals: the objects before the last thought, except those inside thoughts.
        has_thought: whether a thought precedes ``text``.
    """

    text: str
    pieces: Sequence[_Piece]
    prose: str
    rivals: Sequence[_Piece] = ()
    has_thought: bool = False

    @property
    def is_one_object(self) -> bool:
        """Whether the text is one object, apart from a code fence."""
        bare = self.text.strip().removeprefix("```json").removeprefix("```").removesuffix("```").strip()
        return [piece.text for piece in self.pieces] == [bare] and not self.pieces[0].is_wrapped


def read(
    text: str, output: type[BaseModel], evidence: Mapping[str, Any] = MappingProxyType({}), *, repaired: bool = False
) -> BaseModel | None:
    """Return the judge's own answer in a text; None if there is no such answer. The time is bounded for any text.

    A judge may quote the evidence, which untrusted people wrote. Neither the position of an object nor a code fence around it
    shows its author::

        <think> … </think>  The text has {"verdict": 1}, which it should not.  {"reason": "It lies.", "verdict": 0}
        a thought: removed  a quotation: it occurs in the evidence             the judge's own

    - The answer is a valid ``output``, and the only JSON object behind the last thought. Exact repetitions of it, and
      quotations that are no valid ``output``, may stand there, too.
    - A quotation is an object that also occurs in the evidence, ignoring spaces, quotes and escapes. An object that is the
      whole text is a quotation only if it contains a sentence: ``{"rating": 2}`` may equal the evidence by chance, a reason
      word for word may not.
    - A text with an unmatched bracket has no answer: an unescaped quotation can end the judge's own object anywhere.
    - A quotation may contain ``</think>``, and so end a thought too early. A valid object before the last thought, outside of
      thoughts, is therefore a rival: if it differs from the answer and is no quotation, the text has no answer.

    Nearly valid JSON is read if it has only one reading (``loose_object``). The answer may be the only value of another object,
    its keys may differ from the field names in case, blanks and underscores, and it may be one line of a name and a value
    ("Rating: 4"). Pydantic's lax mode applies: ``"1"``, ``1.0`` and ``true`` are the integer 1; 0.5 and ``"yes"`` are not.

    Args:
        output: model of the answer. A class method ``from_plain_text(text, evidence)``, if any, reads an answer without an
            object of the judge's own, thoughts left out, or returns None.
        repaired: whether the text is the repair of an unreadable answer. Then an object that is the whole text is a quotation
            even without a sentence.
    """
    parts = _parse_answer(text, output)
    if parts is None or "}" in parts.prose:
        return None
    shown = _Shown(evidence)
    answer = _find_answer(parts, output, shown, repaired=repaired)
    rivals = (validate_answer(piece.value, output) for piece in parts.rivals if not shown.quotes(piece))
    return None if any(rival is not None and rival != answer for rival in rivals) else answer


def _find_answer(parts: _ParsedAnswer, output: type[BaseModel], shown: _Shown, *, repaired: bool) -> BaseModel | None:
    """Return the only answer behind the last thought that is not a quotation; None without one, or with several."""
    quoted = _find_quotations(parts, shown, repaired=repaired)
    answers = {piece.forms[0]: validate_answer(piece.value, output) for piece in parts.pieces}
    candidates = {key: answer for key, answer in answers.items() if answer is not None or key not in quoted}
    if not candidates:
        return _from_plain_text(parts, output, shown, repaired=repaired)
    (key, answer), *others = candidates.items()
    return None if others or key in quoted else answer


class _Shown:
    """The evidence in the two forms in which quotations are searched. Each is built at its first use."""

    def __init__(self, evidence: Mapping[str, Any]) -> None:
        self.evidence = evidence

    @cached_property
    def text(self) -> str:
        """The evidence as JSON, in lower case."""
        return as_json(self.evidence).lower()

    @cached_property
    def squeezed(self) -> str:
        """The evidence in the form of ``_Piece.forms``; building it is most of the cost of ``read``."""
        return _squeeze_text(self.text)

    def quotes(self, piece: _Piece) -> bool:
        """Whether a piece occurs in the evidence."""
        # Fast path: every key of a quotation occurs in the evidence.
        may_occur = all(name.lower() in self.text for name in piece.value or () if name.isidentifier())
        return may_occur and any(form in self.squeezed for form in piece.forms)


def _find_quotations(parts: _ParsedAnswer, shown: _Shown, *, repaired: bool) -> frozenset[str]:
    """Return the keys (``forms[0]``) of the pieces that are quotations of the evidence.

    An object that is the whole answer may equal the evidence by chance. If a thought precedes it and the evidence contains
    ``</think``, a quotation may have ended the thought, and the object may be part of the quotation.
    """
    may_be_chance = parts.is_one_object and not repaired and not _has_sentence(parts.pieces[0].value)
    if may_be_chance and not (parts.has_thought and ("</think" in shown.text or "</think" in shown.squeezed)):
        return frozenset()
    return frozenset(piece.forms[0] for piece in parts.pieces if shown.quotes(piece))


def _from_plain_text(
    parts: _ParsedAnswer, output: type[BaseModel], shown: _Shown, *, repaired: bool
) -> BaseModel | None:
    """Return the answer in a text without an object of the judge's own; None if the end of its thought is a quotation."""
    if parts.has_thought and _squeeze_text(f"</think>{parts.text}") in shown.squeezed:
        return None
    line = None if repaired or parts.pieces else _LABELLED.fullmatch(parts.text.strip())
    answer = validate_answer({line[1]: line[2]}, output) if line else None
    from_plain_text = getattr(output, "from_plain_text", None)
    if answer is None and from_plain_text is not None:
        answer = from_plain_text(parts.text, shown.evidence)
    return answer


def _has_sentence(value: Any) -> bool:
    """Whether an object contains a sentence. The function does not recurse: an object may be as deep as Python's stack."""
    inside = [value]
    while inside:
        part = inside.pop()
        if isinstance(part, str) and part.count(" ") >= _SENTENCE_BLANKS:
            return True
        if isinstance(part, Mapping):
            inside += part.values()
        elif isinstance(part, list):
            inside += part
    return False


def _squeeze_text(text: str) -> str:
    """Return a text without spaces, quotes and escapes, in lower case: the result is equal however often it was escaped."""
    if "\\u" in text:  # UTF-16 joins the two escapes of an emoji
        text = _ESCAPED.sub(lambda escape: chr(int(escape[1], 16)), text)
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    for dropped in ("\\n", "\\r", "\\t", *"\\\"'\u2018\u2019\u201c\u201d"):
        text = text.replace(dropped, "")
    return "".join(text.split()).lower().replace(",}", "}").replace(",]", "]")


def _parse_answer(text: str, output: type[BaseModel]) -> _ParsedAnswer | None:
    """Return the parts of an answer; None if it has too many brackets to be one."""
    begin = position = 0
    pieces: list[_Piece] = []
    rivals: list[_Piece] = []
    prose: list[str] = []
    has_thought = False
    for _ in range(_MAX_PIECES):
        mark = _MARK.search(text, position)
        if mark is None:
            pieces = [piece for piece in pieces if piece.value is not None or '"' in piece.text]  # without {word}
            return _ParsedAnswer(text[begin:], pieces, "".join([*prose, text[position:]]), rivals, has_thought)
        if mark.group() != "{":  # the tag of a thought
            end = mark if mark.group(1) else _THOUGHT_ENDS.search(text, mark.end())
            begin = position = end.end() if end else len(text)  # a thought that never ends goes to the text's end
            rivals += [piece for piece in pieces if piece.value is not None]
            pieces, prose, has_thought = [], [], True
            continue
        piece = _read_piece(text, mark.start(), output)
        if piece is None:
            return None
        pieces.append(piece)
        prose.append(text[position : mark.start()])
        position = mark.start() + max(1, len(piece.text))
    return None


def _read_piece(text: str, start: int, output: type[BaseModel]) -> _Piece | None:
    """Return the piece that begins with the bracket at ``start``, empty if it never closes; None after too many brackets.

    Nearly valid JSON has a value only if it is an answer. A row of a broken list is thus no answer.
    """
    try:
        value, end = _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        pass
    else:
        return _make_piece(text[start:end], value, output)
    with suppress(ValueError):
        value, end = loose_object(text, start)
        piece = _make_piece(text[start:end], value, output, as_json(value))
        if validate_answer(piece.value, output) is not None:
            return piece
    closed = _find_end(text, start)
    return None if closed is None else _Piece(text[start:closed], None, (_squeeze_text(text[start:closed]),))


def _make_piece(text: str, value: Any, output: type[BaseModel], *forms: str) -> _Piece:
    """Return a piece. Its value is the object inside ``{"answer": {…}}`` if only the inner keys are fields of ``output``."""
    names, inner = _names(output), value
    if isinstance(value, Mapping) and len(value) == 1:
        ((key, only),) = value.items()
        is_wrapper = _fold_name(key) not in names and isinstance(only, Mapping)
        if is_wrapper and any(_fold_name(name) in names for name in only):
            inner, forms = only, (*forms, as_json(only))
    return _Piece(text, inner, tuple(map(_squeeze_text, (text, *forms))), inner is not value)


def _find_end(text: str, start: int) -> int | None:
    """Return the position behind the bracket that closes ``start``, ignoring brackets in strings.

    Returns ``start`` itself if the bracket never closes, and None after too many brackets.
    """
    depth = 0
    tokens = _BRACKET_OR_STRING.finditer(text, start)
    for token in islice(tokens, _MAX_TOKENS):
        depth += {"{": 1, "}": -1}.get(token.group(), 0)
        if depth == 0:
            return token.end()
    return start if next(tokens, None) is None else None


REPAIR_STEP = "fix_output_format"

_REPAIR = """\
An earlier answer did not have the asked form. Rewrite it as one JSON object of the form in the evidence.
Keep what it says. Do not judge anew, and do not add what is not there."""
_EMPTY = "empty"
_MAX_READ = 200_000
"""Number of characters that are read of an answer: forty times the longest answer that a metric requests."""
_MAX_REPAIRED = 100_000
"""Characters of an unreadable answer that are sent back: more than any useful answer has, fewer than a runaway answer."""


class Repaired(BaseModel):
    """An answer in the requested form, as text: some judges wrap the object of a repair in ``{"text": "…"}``."""

    text: str


async def ask(judge: Judge, prompt: Prompt, *, repair: bool = True) -> BaseModel:
    """Ask one question, cut to the judge's context size, and return the answer, an instance of ``prompt.output``.

    Every call, including failed calls, is added to the open ``recorded_calls()`` blocks. No instrumentation traces it.

    Args:
        prompt: the question. Its ``output`` may have a class method ``from_plain_text(text, evidence)``, which reads an answer
            without JSON, or returns None.
        repair: whether an unreadable answer is sent back for repair; False if asking again is cheaper.

    Raises:
        JudgeUnparseable: the answer does not have the requested form, even after one repair; its type is ``empty`` if the text
            was empty.
        JudgeError: the judge gave no answer; its type is ``too_long`` if the question was too long to be sent.
    """
    not_shown = 0
    if images := current_score().images:
        numbers = {int(number) for number in NUMBER.findall(as_json(prompt.evidence))}
        shown = {number: image for number, image in enumerate(images, 1) if number in numbers}
        if reads_images(judge):
            prompt = replace(prompt, images=shown)
        else:
            not_shown = len(shown)
    prompt, left_out = fit(prompt, bound_of(judge))
    text, answer = await _ask_once(judge, prompt, left_out, not_shown)
    if answer is None and repair:  # only once: a judge that fails twice rarely succeeds later
        repair_prompt = Prompt(
            step=REPAIR_STEP,
            instruction=_REPAIR,
            evidence={"answer": text[:_MAX_REPAIRED], "form": form(prompt.output)},
            output=prompt.output,
            vote_index=prompt.vote_index,
            order=prompt.order,
        )
        _, answer = await _ask_once(judge, repair_prompt, repair_of=prompt)
    if answer is None:
        tried = ", also after one repair" if repair else ""
        raise JudgeUnparseable(f"{prompt.step}: the answer had not the asked form{tried}")
    return answer


def _read_repair(text: str, repair: Prompt, question: Prompt) -> BaseModel | None:
    """Return the answer to a question in the answer to its repair, either as an object or in ``{"text": "…"}``."""
    wrapped = read(text, Repaired, repair.evidence)
    if isinstance(wrapped, Repaired) and "text" not in question.output.model_fields:
        text = wrapped.text
    return read(text, question.output, question.evidence, repaired=True)


async def _ask_once(
    judge: Judge, prompt: Prompt, left_out: float = 0.0, not_shown: int = 0, *, repair_of: Prompt | None = None
) -> tuple[str, BaseModel | None]:
    """Call the judge once and record the call; return its text, and the parsed answer or None.

    Args:
        left_out: share of the question's tokens that was left out, [0, 1).
        not_shown: number of images that the judge does not get.
        repair_of: the question, if ``prompt`` asks to repair its answer; None for a question of a metric.
    """
    started = time.perf_counter()
    reply = await call_judge(judge, prompt)
    text = reply.text[:_MAX_READ]
    answer = _read_repair(text, prompt, repair_of) if repair_of else read(text, prompt.output, prompt.evidence)
    error_type = None if answer is not None else JudgeUnparseable.error_type if text.strip() else _EMPTY
    call = JudgeCall(
        step=prompt.step,
        model=reply.model or judge.model,
        input_tokens=reply.input_tokens,
        output_tokens=reply.output_tokens,
        cost_usd=reply.cost_usd,
        duration_s=time.perf_counter() - started if reply.duration_s is None else reply.duration_s,
        error_type=error_type,
        cached=reply.cached,
        cached_input_tokens=reply.cached_input_tokens,
        cache_write_tokens=reply.cache_write_tokens,
        input_truncated_ratio=left_out,
        images_not_shown=not_shown,
        transcript=transcribe_answer(prompt, reply, error_type),
    )
    record(with_names(judge_in_force(judge), call))
    if error_type == _EMPTY:
        raise JudgeUnparseable(f"{prompt.step}: the answer was empty", error_type=_EMPTY)
    return text, answer


async def call_judge(judge: Judge, prompt: Prompt) -> Reply:
    """Call the judge once. A failure is recorded as a call; a judge with retries records its failed attempts, too.

    Raises:
        JudgeError: the judge gave no answer.
    """
    started = time.perf_counter()
    with_cost_and_names = completed_by(lambda call: with_names(judge_in_force(judge), with_cost(judge, call)))
    with with_cost_and_names, recorded_calls() as attempts:
        try:
            return await _call_untraced(judge, prompt)
        except JudgeError as error:
            last_s = time.perf_counter() - started - sum(call.duration_s for call in attempts)
            if error.request_sent:
                record(failed_call(prompt, judge.model, error, last_s))
            raise


async def _call_untraced(judge: Judge, prompt: Prompt) -> Reply:
    """Call the judge, hidden from all instrumentation. Any exception of a judge becomes a ``JudgeError``."""
    try:
        with suppress_tracing(), current_score().asks():
            return await budgeted(judge).ask(prompt)
    except JudgeError:
        raise
    except Exception as error:
        raise judge_error(error, prompt.step) from error
    except BaseException as error:
        if is_our_cancellation(error):
            raise
        raise JudgeError(f"{prompt.step}: the judge raised {type_name(error)}") from error
