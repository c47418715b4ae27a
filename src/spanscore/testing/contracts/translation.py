"""SpanNormalizerContract: what every translation promises."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from typing import Any

from spanscore import semconv
from spanscore.core.span import SpanData
from spanscore.protocols import SpanNormalizer
from spanscore.testing.contracts.dialect import ODD

__all__ = ["SpanNormalizerContract"]

_SAME = ("trace_id", "span_id", "parent_id", "start_ns", "end_ns", "scope", "kind", "status", "trace_flags", "resource")


class SpanNormalizerContract:
    """Subclass it in a test and say how your translation is made, and what a span that it reads looks like."""

    def make(self) -> SpanNormalizer:
        """Return a translation."""
        raise NotImplementedError

    def span(self) -> SpanData:
        """Return a span with a question and an answer, with the attributes that its writer gives it."""
        raise NotImplementedError

    def silent(self) -> SpanData:
        """Return the same span as it is written where content is switched off."""
        raise NotImplementedError

    def test_it_is_a_translation(self) -> None:
        """It has ``name``, ``scopes``, ``signatures``, ``accepts`` and ``normalize``."""
        assert isinstance(self.make(), SpanNormalizer)

    def test_it_claims_its_own_by_scope_and_by_attributes(self) -> None:
        """What it reads begins with one of its scopes, has one of its marks, and is claimed."""
        translation, span = self.make(), self.span()
        names = [name.encode() for name in span.attributes]

        assert translation.accepts(span) is True, "it does not claim its own span"
        assert span.scope.startswith(tuple(translation.scopes)), "none of its scopes is the span's"
        assert any(name.startswith(tuple(translation.signatures)) for name in names), "none of its marks is on the span"

    def test_it_claims_nothing_without_its_marks(self) -> None:
        """A span of any other library passes."""
        http = replace(self.span(), scope="opentelemetry.instrumentation.requests", attributes={"http.route": "/"})

        assert self.make().accepts(http) is False, "it claims a span of an HTTP client"

    def test_only_genai_names_are_left(self) -> None:
        """No raw attribute passes, and what quotes stands under names that are known to."""
        translated = self.make().normalize(self.span())
        foreign = [name for name in translated.attributes if not _is_known(name)]

        assert foreign == [], f"{foreign} are no GenAI names"
        assert translated.events == (), "it keeps the span's events"

    def test_nothing_that_quotes_is_left_without_content(self) -> None:
        """What is kept of a unit after its score holds no word of it."""
        translated = self.make().normalize(self.span())
        content = [value for name, value in translated.attributes.items() if semconv.is_content(name)]

        assert content, "it finds no content on its own span"
        assert translated.no_content is None, "it says that there is none"
        assert not any(map(semconv.is_content, translated.without_content().attributes)), "some is left"

    def test_content_that_is_switched_off_is_said(self) -> None:
        """So that the unit has an outcome that says so, and no score of an empty answer."""
        translated = self.make().normalize(self.silent())

        assert translated.no_content is not None, "it does not say so"
        assert translated.no_content.reason, "a reason is to be given"
        assert translated.no_content.hint, "what to do is to be said"
        assert not any(map(semconv.is_content, translated.attributes)), "there is content"

    def test_ids_and_times_stay(self) -> None:
        """It is the same span."""
        span = self.span()
        translated = self.make().normalize(span)

        assert [getattr(translated, name) for name in _SAME] == [getattr(span, name) for name in _SAME]

    def test_a_span_stays_as_it_was(self) -> None:
        """The application's own exporter still has to write it."""
        span = self.span()
        before = deepcopy(dict(span.attributes))

        dict(self.make().normalize(span).attributes)

        assert dict(span.attributes) == before, "translate changed the span's attributes"

    def test_no_payload_makes_it_raise(self) -> None:
        """Whatever an attribute or an event holds, there is a span, and its content can be read."""
        translation = self.make()

        for span in _spoilt(self.span()):
            if translation.accepts(span):
                dict(translation.normalize(span).attributes)


def _is_known(name: str) -> bool:
    return name in semconv.PLAIN_ATTRIBUTES or semconv.is_content(name)


def _spoilt(span: SpanData) -> Iterator[SpanData]:
    """Yield the span with one attribute odd, with all of them odd, and with odd events."""
    for odd in ODD:
        yield from (replace(span, attributes={**span.attributes, name: odd}) for name in span.attributes)
        yield replace(span, attributes=dict.fromkeys(span.attributes, odd))
        events: list[tuple[str, dict[str, Any]]] = [(name, dict.fromkeys(held, odd)) for name, held in span.events]
        yield replace(span, events=events)
