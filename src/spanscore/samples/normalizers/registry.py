"""Translates a span of any instrumentation into GenAI names, and registers all normalizers in their order.

A new normalizer is a file here, and a line in ``TRANSLATIONS``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from spanscore import semconv
from spanscore.core.plugins import Entry, Registry
from spanscore.core.span import CUT, Attributes, SpanData
from spanscore.protocols import SpanNormalizer
from spanscore.samples.normalizers.genai import with_body

_PACKAGE: Final = "spanscore.samples.normalizers"
TRANSLATIONS: Final = Registry(
    kind="translation",
    protocol=SpanNormalizer,
    example="my_pkg.translations:MyNormalizer",
    built_in={
        "genai": f"{_PACKAGE}.genai:GenAINormalizer",
        "openinference": f"{_PACKAGE}.openinference:OpenInference",
        "openllmetry": f"{_PACKAGE}.openllmetry:OpenLLMetry",
        "vercel_ai": f"{_PACKAGE}.vercel_ai:VercelAI",
        "pydantic_ai": f"{_PACKAGE}.pydantic_ai:PydanticAI",
        "google_adk": f"{_PACKAGE}.google_adk:GoogleADK",
        "langfuse": f"{_PACKAGE}.langfuse:Langfuse",
        "mlflow": f"{_PACKAGE}.mlflow:MLflow",
        "mastra": f"{_PACKAGE}.mastra:Mastra",
        "genkit": f"{_PACKAGE}.genkit:Genkit",
        "logfire": f"{_PACKAGE}.logfire:Logfire",
    },
)
"""Normalizers in the order in which they are asked: the first that claims a span and finds content translates it."""


class NormalizerCounts(NamedTuple):
    """The counts of spans that one normalizer translated, without steps.

    Attributes:
        without_content: number of spans without content.
        hint: advice for the latest span without content; empty without such a span.
        cut: number of spans with content that an attribute limit cut.
    """

    spans: int
    without_content: int
    hint: str = ""
    cut: int = 0


class SpanNormalizers:
    """Translates spans by the first normalizer that finds content on them. Owned by one thread, except ``names_scope``.

    Attributes:
        marks: byte strings in a received span that some normalizer may read.

    Args:
        own: normalizers of the user, which are asked before the built-in normalizers.
        tools: whether spans keep the definitions of tools; False if no metric reads them.

    Raises:
        ConfigurationError: an item of ``own`` is not a normalizer, or cannot be created.
    """

    def __init__(self, own: Sequence[SpanNormalizer | Entry] = (), *, tools: bool = True) -> None:
        self.keeps_tools = tools
        self._translations: Sequence[SpanNormalizer] = TRANSLATIONS.each([*own, *TRANSLATIONS.built_in])
        self.marks = tuple(dict.fromkeys(mark for translation in self._translations for mark in translation.signatures))
        self._scopes = frozenset(scope for translation in self._translations for scope in translation.scopes)
        self._prefixes = _prefixes(self._scopes)
        self._counts: dict[str, NormalizerCounts] = {}

    def names_scope(self, scope: str) -> bool:
        """Return whether a normalizer names an instrumentation scope. Pure, so results may be cached by scope."""
        return scope in self._scopes or scope.startswith(self._prefixes)

    def normalizer_of_scope(self, scope: str) -> str | None:
        """Return the name of the first normalizer that names an instrumentation scope; None if no normalizer names it."""
        for translation in self._translations:
            if scope in translation.scopes or scope.startswith(_prefixes(translation.scopes)):
                return translation.name
        return None

    def translate(self, span: SpanData) -> SpanData | None:
        """Return the span in GenAI names, and count it; None if no normalizer claims it, or an evaluator wrote it.

        A span whose operation is in `semconv.NOT_READ_OPERATIONS` keeps only its operation.
        """
        if span.scope in semconv.EVALUATOR_SCOPES:  # an evaluation is never evaluated
            return None
        pair = self._translate_span(span)
        if pair is None:
            return None
        translation, translated = pair
        operation = translated.operation
        if str(operation) in semconv.NOT_READ_OPERATIONS:
            return replace(span, attributes={semconv.OPERATION_NAME: operation}, events=())
        if operation not in (semconv.EXECUTE_TASK, semconv.VECTOR_DB):
            self._count(translation.name, translated)
        attributes = translated.attributes
        if self.keeps_tools or not isinstance(attributes, Attributes):
            return translated
        kept = attributes.without_tools()
        return translated if kept is attributes else replace(translated, attributes=kept)

    def normalizer_of(self, span: SpanData) -> str | None:
        """Return the name of the normalizer that ``translate`` uses for a span; None if no normalizer claims it."""
        translated = self._translate_span(span)
        return None if translated is None else translated[0].name

    def _translate_span(self, span: SpanData) -> tuple[SpanNormalizer, SpanData] | None:
        """Return the first normalizer that finds content, or the last that claims the span, with its result."""
        pair: tuple[SpanNormalizer, SpanData] | None = None
        for translation in self._translations:
            if translation.accepts(span):
                translated = translation.normalize(span)
                if translated.no_content is None:
                    return translation, translated
                pair = translation, translated
        return None if pair is None else (pair[0], with_body(pair[1], span.events))

    def _count(self, name: str, span: SpanData) -> None:
        counts = self._counts.get(name, NormalizerCounts(0, 0))
        no_content = None if span.no_content is CUT else span.no_content
        self._counts[name] = NormalizerCounts(
            counts.spans + 1,
            counts.without_content + (no_content is not None),
            counts.hint if no_content is None else no_content.hint,
            counts.cut + bool(span.attributes.get(semconv.CONTENT_CUT)),
        )

    def counted(self) -> Mapping[str, NormalizerCounts]:
        """Return the counts of each normalizer that read a span. Thread-safe."""
        return self._counts.copy()

    def notes(self) -> list[str]:
        """Return the notes for ``status()`` on missing and cut content, with advice. Thread-safe."""
        counted = self.counted().items()
        missing = [
            f"no span of {name} has content ({counts.spans:,} read): {counts.hint}"
            for name, counts in counted
            if counts.without_content == counts.spans
        ]
        cut = [
            f"content of {counts.cut:,} of {counts.spans:,} spans of {name} was {CUT.reason}: {CUT.hint}"
            for name, counts in counted
            if counts.cut
        ]
        return missing + cut


def _prefixes(scopes: Iterable[str]) -> tuple[str, ...]:
    return tuple(scope if scope[-1] in ".-" else f"{scope}." for scope in scopes)
