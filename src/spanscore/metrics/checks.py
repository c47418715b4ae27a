"""Checks without a judge: patterns, JSON, length, time, tokens, language, personal data, citations, refusals."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from spanscore.core.sample import SingleTurnSample, TokenUsage
from spanscore.core.score import BINARY, Scale
from spanscore.errors import ConfigurationError
from spanscore.metrics.kit.base import LANGUAGES, Finding
from spanscore.metrics.kit.judged import NamedMetric, refuse_unknown
from spanscore.metrics.kit.language_py3langid import detectable_languages, language_of
from spanscore.metrics.kit.schema_jsonschema_referencing import schema_check
from spanscore.metrics.kit.sentences_pysbd import segmenter

LengthUnit = Literal["characters", "words", "sentences"]
TokenCount = Literal["total", "input", "output"]
_LENGTH_PARTS: Final[Mapping[str, Callable[[str], Sequence[str]]]] = {"characters": str, "words": str.split}
_ABSENT_IS_GOOD: Final = Scale(kind="binary", direction="lower", pass_at=1.0)
"""1 if the response has the unwanted content; only 0 passes."""


class _ResponseCheck(NamedMetric):
    """A check of the response alone, computed in a pool thread."""

    requires: Mapping[str, tuple[str, ...]] = {"single_turn": ("response",)}
    scale = BINARY
    cpu_bound = True


class Regex(_ResponseCheck):
    """Does the response contain a pattern, and is another pattern absent?

    Formula: 1 if ``must`` matches somewhere in the response and ``must_not`` matches nowhere, else 0. Range {0, 1}, higher is
    better.

    Fields: ``response``. Judge calls: none.

    Blind spot: a pattern matches characters, not meaning. Some patterns, such as ``(a+)+$``, need exponential time on some
    texts and stop the whole process meanwhile. Avoid nested repetitions.

    Source: our own, on Python's ``re``. Deviations: none.

    Args:
        name: name of the metric in its scores.
        must: pattern that must match; None = no such pattern.
        must_not: pattern that must not match; None = no such pattern.
        ignore_case: whether upper and lower case are equal.
        pass_at: lowest quality that passes; None: 1.

    Raises:
        ConfigurationError: neither pattern is given, or one is not a regular expression.
    """

    def __init__(
        self,
        *,
        name: str = "regex",
        must: str | None = None,
        must_not: str | None = None,
        ignore_case: bool = False,
        pass_at: float | None = None,
    ) -> None:
        super().__init__(name=name, pass_at=pass_at)
        if must is None and must_not is None:
            raise ConfigurationError(f"{name}: no pattern is given; give must, must_not or both")
        self.must, self.must_not, self.ignore_case = must, must_not, ignore_case
        flags = re.IGNORECASE if ignore_case else 0
        self._must = None if must is None else _compile_pattern(name, "must", must, flags)
        self._must_not = None if must_not is None else _compile_pattern(name, "must_not", must_not, flags)

    async def measure(self, sample: SingleTurnSample) -> Finding:
        """Search for both patterns."""
        text = sample.response or ""
        if self._must is not None and self._must.search(text) is None:
            return Finding(value=0.0, explanation="the pattern of must was not found")
        if self._must_not is not None and self._must_not.search(text) is not None:
            return Finding(value=0.0, explanation="the pattern of must_not was found")
        return Finding(value=1.0)


class JsonValid(_ResponseCheck):
    """Is the response JSON?

    Formula: 1 if the whole response is one JSON text by RFC 8259, else 0. Range {0, 1}, higher is better.

    Fields: ``response``. Judge calls: none.

    Blind spot: the metric does not check the content: ``null`` and ``"I cannot help"`` are JSON texts. ``json_schema`` also
    checks the structure.

    Source: RFC 8259, read by Python's ``json``. Deviations: NaN and Infinity, which Python reads, are not
    JSON; a text that is nested too deeply for Python counts as not JSON.

    Args:
        name: name of the metric in its scores.
        fenced: whether a Markdown code fence around the JSON text is allowed.
        pass_at: lowest quality that passes; None: 1.
    """

    def __init__(self, *, name: str = "json_valid", fenced: bool = False, pass_at: float | None = None) -> None:
        super().__init__(name=name, pass_at=pass_at)
        self.fenced = fenced

    async def measure(self, sample: SingleTurnSample) -> Finding:
        """Parse the response."""
        _, fault = _read_json(sample.response or "", fenced=self.fenced)
        return Finding(value=float(fault is None), explanation=fault)


class JsonSchema(_ResponseCheck):
    """Is the response JSON of the given schema?

    Formula: 1 if the response is one JSON text that the schema accepts, else 0. Range {0, 1}, higher is better. The explanation
    names the place of the first fault.

    Fields: ``response``. Judge calls: none.

    Blind spot: the metric does not check whether a value of the right type is correct. ``format`` is not checked. References to
    other files or hosts are not followed.

    Source: JSON Schema (draft by ``$schema``, else 2020-12), checked by jsonschema. Deviations: none.

    Args:
        schema: the schema, or the path of a JSON file that holds it.
        name: name of the metric in its scores.
        fenced: whether a Markdown code fence around the JSON text is allowed.
        pass_at: lowest quality that passes; None: 1.

    Raises:
        ConfigurationError: the file cannot be read, or the schema is not a JSON Schema.
        MissingExtraError: jsonschema is not installed (extra ``checks``).
    """

    def __init__(
        self,
        schema: Mapping[str, Any] | str | Path,
        *,
        name: str = "json_schema",
        fenced: bool = False,
        pass_at: float | None = None,
    ) -> None:
        super().__init__(name=name, pass_at=pass_at)
        self.schema = _schema_of(name, schema)
        self.fenced = fenced
        self._fault_in = schema_check(name, self.schema)

    async def measure(self, sample: SingleTurnSample) -> Finding:
        """Parse the response and check it against the schema."""
        value, fault = _read_json(sample.response or "", fenced=self.fenced)
        fault = self._fault_in(value) if fault is None else fault
        return Finding(value=float(fault is None), explanation=fault)


class Length(_ResponseCheck):
    """Does the response have an allowed length?

    Formula: 1 if ``min`` ≤ length ≤ ``max``, else 0. Range {0, 1}, higher is better. Characters are Unicode code points; words
    are separated by white space; sentences are cut by the rules of each line's script (pysbd).

    Fields: ``response``. Judge calls: none.

    Blind spot: scripts without blanks, such as Chinese, have one word a line: count characters or sentences there.

    Source: our own; sentences by pysbd. Deviations: none.

    Args:
        name: name of the metric in its scores.
        min: smallest allowed length; None = no lower limit.
        max: largest allowed length; None = no upper limit.
        unit: ``"characters"``, ``"words"`` or ``"sentences"``.
        pass_at: lowest quality that passes; None: 1.

    Raises:
        ConfigurationError: no limit is given, ``min`` is above ``max`` or below 0, or the unit is unknown.
        MissingExtraError: sentences are counted and pysbd is not installed (extra ``text``).
    """

    def __init__(
        self,
        *,
        name: str = "length",
        min: int | None = None,
        max: int | None = None,
        unit: LengthUnit = "words",
        pass_at: float | None = None,
    ) -> None:
        refuse_unknown(name, "unit", unit, LengthUnit)
        super().__init__(name=name, pass_at=pass_at)
        if (min is None and max is None) or (min or 0) < 0 or (max is not None and max < (min or 0)):
            raise ConfigurationError(f"{name}: min is {min} and max is {max}; give one of them, or 0 <= min <= max")
        self.min, self.max, self.unit = min, max, unit
        self._parts: Callable[[str], Sequence[str]] = segmenter() if unit == "sentences" else _LENGTH_PARTS[unit]

    async def measure(self, sample: SingleTurnSample) -> Finding:
        """Count the characters, words or sentences, and compare with the limits."""
        count = len(self._parts(sample.response or ""))
        fits = (self.min or 0) <= count and (self.max is None or count <= self.max)
        return Finding(value=float(fits), explanation=f"{count} {self.unit}")


class Latency(NamedMetric):
    """Was the answer fast enough?

    Formula: 1 if ``duration_s`` ≤ ``max_s``, else 0. Range {0, 1}, higher is better. The duration of a live unit is that of its
    root span: end − start.

    Fields: ``duration_s``. Judge calls: none.

    Blind spot: a streamed answer counts until its end, and the first token may have come long before. Waiting outside of the
    unit, such as in a queue, is not seen.

    Source: our own. Deviations: none.

    Args:
        max_s: largest allowed duration, in seconds.
        name: name of the metric in its scores.
        pass_at: lowest quality that passes; None: 1.

    Raises:
        ConfigurationError: ``max_s`` is not above 0.
    """

    requires: Mapping[str, tuple[str, ...]] = {"single_turn": ("duration_s",)}
    scale = BINARY

    def __init__(self, max_s: float, *, name: str = "latency", pass_at: float | None = None) -> None:
        super().__init__(name=name, pass_at=pass_at)
        self.max_s = _above_zero(name, "max_s", max_s)

    async def measure(self, sample: SingleTurnSample) -> Finding:
        """Compare the duration with the limit."""
        duration_s = float(sample.duration_s or 0.0)
        return Finding(value=float(duration_s <= self.max_s), explanation=f"{duration_s:.3g} s")


class Tokens(NamedMetric):
    """Did the application's models use few enough tokens?

    Formula: 1 if the tokens of the unit ≤ ``max``, else 0. Range {0, 1}, higher is better. The tokens of a live unit are the
    sum over its calls of models. A call inside another call is counted once, and a failed call without usage is ignored. If no
    call has usage, the root's own sum is used. The metric has no value if the requested count is unknown.

    Fields: ``usage``. Judge calls: none.

    Blind spot: embeddings are not counted; neither are models whose spans carry no usage, which leaves the unit without the
    field.

    Source: our own; counts as the provider reports them (``gen_ai.usage.*``). Deviations: none.

    Args:
        max: largest allowed number of tokens.
        name: name of the metric in its scores.
        count: ``"total"``, ``"input"`` or ``"output"``.
        pass_at: lowest quality that passes; None: 1.

    Raises:
        ConfigurationError: ``max`` is not above 0, or ``count`` is unknown.
    """

    requires: Mapping[str, tuple[str, ...]] = {"single_turn": ("usage",)}
    scale = BINARY

    def __init__(
        self, max: int, *, name: str = "tokens", count: TokenCount = "total", pass_at: float | None = None
    ) -> None:
        refuse_unknown(name, "count", count, TokenCount)
        super().__init__(name=name, pass_at=pass_at)
        self.max = _above_zero(name, "max", max)
        self.count = count

    async def measure(self, sample: SingleTurnSample) -> Finding:
        """Add the token counts, and compare the sum with the limit."""
        usage = sample.usage or TokenUsage()
        by_kind = {"input": usage.input_tokens, "output": usage.output_tokens}
        counts = [*by_kind.values()] if self.count == "total" else [by_kind[self.count]]
        if None in counts:
            return Finding(value=None, reason=f"usage does not hold the {self.count} tokens")
        total = sum(tokens for tokens in counts if tokens is not None)
        return Finding(value=float(total <= self.max), explanation=f"{total} tokens")


class LanguageIs(_ResponseCheck):
    """Is the response written in the given language?

    Formula: 1 if the most likely of 97 languages is the given one, else 0. Range {0, 1}, higher is better. Undefined if the
    text has fewer than ten letters.

    Fields: ``response``. Judge calls: none.

    Blind spot: the metric confuses languages that share words and letters. Bosnian, Croatian and Serbian count as one language,
    so do Indonesian and Malay, and Bokmål and Nynorsk. In a text of two languages the longer part decides. Names, code and
    tables mislead. Variants of one language, such as simplified and traditional Chinese, are that language.

    Source: Lui and Baldwin, "langid.py: An Off-the-shelf Language Identification Tool" (2012), computed by py3langid.
    Deviations: languages that it confuses are joined, and short texts are undefined.

    Args:
        language: two letters of ISO 639-1 (``"de"``), or the English name of a common language (``"german"``).
        name: name of the metric in its scores.
        pass_at: lowest quality that passes; None: 1.

    Raises:
        ConfigurationError: py3langid does not have the language.
        MissingExtraError: py3langid is not installed (extra ``checks``).
    """

    def __init__(self, language: str, *, name: str = "language_is", pass_at: float | None = None) -> None:
        super().__init__(name=name, pass_at=pass_at)
        codes = {english.casefold(): code for code, english in LANGUAGES.items()}
        key = str(language).strip().casefold()
        self.language = codes.get(key, key)
        allowed = detectable_languages()
        if self.language not in allowed:
            raise ConfigurationError(
                f"{name}: language is {language!r}; allowed are English names ('german') and {', '.join(sorted(allowed))}"
            )
        self._accepted = next((alike for alike in _ALIKE if self.language in alike), {self.language})

    async def measure(self, sample: SingleTurnSample) -> Finding:
        """Find the most likely language."""
        text = sample.response or ""
        if sum(map(str.isalpha, text)) < _FEW_LETTERS:
            return Finding(value=None, reason=f"the response has fewer than {_FEW_LETTERS} letters")
        code = language_of(text)
        return Finding(value=float(code in self._accepted), explanation=f"most likely {LANGUAGES.get(code, code)}")


_FEW_LETTERS: Final = 10
"""Number of letters below which a language is not detected."""
_ALIKE: Final = ({"bs", "hr", "sr"}, {"id", "ms"}, {"nb", "nn", "no"})
"""Languages that py3langid confuses, and that count as one language."""


class ContainsPII(_ResponseCheck):
    """Does the response contain personal data?

    Formula: 1 if a mail address, a telephone number, a card number or an IBAN is found, else 0. Range {0, 1}, lower is better.
    Card numbers must satisfy the Luhn check, IBANs their check digits modulo 97. The explanation has the counts by kind and
    never the data.

    Fields: ``response``. Judge calls: none.

    Blind spot: the metric does not find names, postal addresses and other personal data without a pattern. Telephone numbers
    are recognised if they are international (+, 00), North American, or begin with 0 and are written in groups. Other numbers
    of that form are counted as telephone numbers.

    Source: our own patterns; ISO/IEC 7812-1 (Luhn), ISO 13616 (IBAN). Deviations: the length by country is not checked.

    Args:
        name: name of the metric in its scores.
        kinds: kinds of data: ``"mail"``, ``"phone"``, ``"card"``, ``"iban"``; None: all.
        pass_at: lowest quality that passes; None: 1.

    Raises:
        ConfigurationError: a kind is unknown, or the list is empty.
    """

    scale = _ABSENT_IS_GOOD

    def __init__(
        self, *, name: str = "contains_pii", kinds: Sequence[str] | None = None, pass_at: float | None = None
    ) -> None:
        super().__init__(name=name, pass_at=pass_at)
        self.kinds = sorted({kinds} if isinstance(kinds, str) else set(_PII if kinds is None else kinds))
        if not self.kinds or set(self.kinds) - _PII.keys():
            raise ConfigurationError(f"{name}: kinds is {kinds!r}; allowed are {', '.join(_PII)}")

    async def measure(self, sample: SingleTurnSample) -> Finding:
        """Search for each kind."""
        text = sample.response or ""
        counts = ((kind, _count_pii(kind, text)) for kind in self.kinds)
        listed = ", ".join(f"{kind}: {count}" for kind, count in counts if count)
        return Finding(value=float(bool(listed)), explanation=listed or None)


class CitationPresent(_ResponseCheck):
    """Does the response cite a source?

    Formula: 1 if it has at least ``min`` citations, else 0. Range {0, 1}, higher is better. Citations are numbers in brackets
    (``[1]``, ``[2, 3]``, ``[^1]``, ``【4†source】``), named sources in brackets (``[source: handbook]``, ``(Source: …)``) and
    addresses (``https://…``).

    Fields: ``response``. Judge calls: none.

    Blind spot: the metric does not check whether the source exists, and whether it supports the sentence; ``faithfulness``
    judges the support. An index in program code, such as ``x[1]``, is counted as a citation.

    Source: our own patterns. Deviations: none.

    Args:
        name: name of the metric in its scores.
        pattern: regular expression of one citation, in place of ours.
        min: smallest number of citations.
        pass_at: lowest quality that passes; None: 1.

    Raises:
        ConfigurationError: the pattern is not a regular expression, or ``min`` is not above 0.
    """

    def __init__(
        self,
        *,
        name: str = "citation_present",
        pattern: str | None = None,
        min: int = 1,
        pass_at: float | None = None,
    ) -> None:
        super().__init__(name=name, pass_at=pass_at)
        self.pattern = _CITATION if pattern is None else pattern
        self.min = _above_zero(name, "min", min)
        self._citation = _compile_pattern(name, "pattern", self.pattern, re.IGNORECASE)

    async def measure(self, sample: SingleTurnSample) -> Finding:
        """Count citations."""
        count = sum(1 for _ in self._citation.finditer(sample.response or ""))
        return Finding(value=float(count >= self.min), explanation=f"{count} citations")


class RefusalWords(_ResponseCheck):
    """Does the response contain words of a refusal?

    Formula: 1 if one of the phrases is found, else 0. Range {0, 1}, lower is better. Case and the form of apostrophes do not
    count.

    Fields: ``response``. Judge calls: none.

    Blind spot: the metric does not find refusals in other words, and counts answers that quote a refusal. Our phrases are
    English, German, French and Spanish. The aspect ``refusal`` of ``aspect_critic`` asks a judge.

    Source: our own phrases. Deviations: none.

    Args:
        name: name of the metric in its scores.
        words: phrases, in place of ours.
        pass_at: lowest quality that passes; None: 1.

    Raises:
        ConfigurationError: there is no phrase, or one is empty.
    """

    scale = _ABSENT_IS_GOOD

    def __init__(
        self, *, name: str = "refusal_words", words: Sequence[str] | None = None, pass_at: float | None = None
    ) -> None:
        super().__init__(name=name, pass_at=pass_at)
        self.words = [words] if isinstance(words, str) else list(_REFUSALS if words is None else words)
        self._phrases = [_fold_case(phrase) for phrase in self.words]
        if not all(self._phrases) or not self._phrases:
            raise ConfigurationError(f"{name}: words is {words!r}; give at least one phrase, and no empty one")

    async def measure(self, sample: SingleTurnSample) -> Finding:
        """Search for each phrase."""
        text = _fold_case(sample.response or "")
        phrase = next((phrase for phrase in self._phrases if phrase in text), None)
        return Finding(value=float(phrase is not None), explanation=phrase)


_CITATION: Final = r"\[\^?\d{1,3}(?:\s*[,;–-]\s*\d{1,3})*\]|【[^】]{1,80}】|[\[(](?:source|quelle|fuente)s?\s*:[^\])]{1,200}[\])]|https?://[^\s)>\]]+"
_REFUSALS: Final = (
    *("i can't help", "i cannot help", "i can't assist", "i cannot assist", "i'm unable to", "i am unable to"),
    *("i can't provide", "i cannot provide", "i won't be able to", "i'm not able to", "i am not able to"),
    *("i must decline", "against my guidelines", "as an ai language model"),
    *("dabei kann ich nicht helfen", "ich kann ihnen dabei nicht", "ich kann dir dabei nicht", "das darf ich nicht"),
    *("je ne peux pas vous aider", "je ne suis pas en mesure", "no puedo ayudar", "no puedo proporcionar"),
)


def _fold_case(text: str) -> str:
    return " ".join(text.casefold().replace("\u2019", "'").split())


def _is_card(number: str) -> bool:
    """Return whether a number has 13 to 19 digits and satisfies the Luhn check of payment cards."""
    digits = [int(digit) for digit in number if digit.isdecimal()]
    doubled = [sum(divmod(2 * digit, 10)) for digit in digits[-2::-2]]
    return 13 <= len(digits) <= 19 and len(set(digits)) > 1 and (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0  # noqa: PLR2004


def _is_iban(number: str) -> bool:
    """Return whether the check digits of an IBAN are correct: with A = 10 to Z = 35, the number modulo 97 is 1."""
    plain = number.replace(" ", "").upper()
    return 15 <= len(plain) <= 34 and int("".join(str(int(sign, 36)) for sign in plain[4:] + plain[:4])) % 97 == 1  # noqa: PLR2004


def _is_phone(number: str) -> bool:
    """Return whether a candidate has 8 to 15 digits and contains no date."""
    digits = sum(map(str.isdecimal, number))
    return 8 <= digits <= 15 and _DATE.search(number) is None  # noqa: PLR2004


_DATE: Final = re.compile(r"(?<!\d)(?:\d{1,2}[./-]\d{1,2}[./-]\d{2,4}|\d{4}[./-]\d{1,2}[./-]\d{1,2})(?!\d)", re.ASCII)
_PII: Final[Mapping[str, tuple[re.Pattern[str], Callable[[str], bool]]]] = {
    "mail": (re.compile(r"[\w.+-]{1,64}@(?:[\w-]{1,63}\.){1,8}[^\W\d_]{2,24}\b"), bool),
    "phone": (
        re.compile(
            r"(?<![\w.,/-])(?:(?:\+|(?<!\d )00)[1-9](?:[ ()./-]{0,2}\d){7,13}"  # international
            r"|\(?[2-9]\d{2}\)?[ .-]\d{3}[ .-]\d{4}"  # North America
            r"|(?<!\d )\(?0\d{1,4}\)?[ /-]{1,2}\d{2,4}(?:[ -]?\d{2,4}){1,3})(?![\w-])",  # national, in groups
            re.ASCII,
        ),
        _is_phone,
    ),
    "card": (re.compile(r"(?<![\w.,-])(?<!\d )\d(?:[ -]?\d){12,18}(?! ?\d|[\w-])", re.ASCII), _is_card),
    "iban": (
        re.compile(r"(?<!\w)[A-Za-z]{2}\d{2}(?: ?[A-Za-z0-9]{4}){2,7}(?: ?[A-Za-z0-9]{1,3})?(?!\w)", re.ASCII),
        _is_iban,
    ),
}
"""Kind → a pattern that finds candidates, and the check that each must satisfy."""


def _count_pii(kind: str, text: str) -> int:
    pattern, check = _PII[kind]
    return sum(map(check, pattern.findall(text)))


def _schema_of(metric: str, schema: Any) -> Mapping[str, Any]:
    if isinstance(schema, Mapping):
        return dict(schema)
    try:
        read = json.loads(Path(schema).read_text("utf-8"))
    except (OSError, TypeError, ValueError) as error:
        raise ConfigurationError(f"{metric}: schema cannot be read as a JSON file: {error}") from error
    if not isinstance(read, Mapping):
        raise ConfigurationError(f"{metric}: the file of schema holds {type(read).__name__}, not an object")
    return read


_FENCED: Final = re.compile(r"\s*```(?:json)?[ \t]*\n(.*?)\n?```\s*", re.DOTALL | re.IGNORECASE)


def _read_json(text: str, *, fenced: bool) -> tuple[Any, str | None]:
    """Return the value of a JSON text, and its fault, None without a fault."""
    inner = _FENCED.fullmatch(text) if fenced else None
    try:
        return json.loads(inner[1] if inner else text, parse_constant=_refuse_constant), None
    except RecursionError:
        return None, "not JSON: nested too deeply"
    except ValueError as error:
        return None, f"not JSON: {error}"


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON value")


def _compile_pattern(metric: str, parameter: str, pattern: str, flags: int) -> re.Pattern[str]:
    try:
        return re.compile(pattern, flags)
    except (re.error, TypeError) as error:
        raise ConfigurationError(f"{metric}: {parameter} is not a regular expression: {error}") from error


def _above_zero(metric: str, parameter: str, value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise ConfigurationError(f"{metric}: {parameter} is {value!r}; it must be a number above 0")
    return value
