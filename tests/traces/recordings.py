"""Reads recordings: OTLP-JSON → translated spans → units → samples."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from spanscore.core.codecs.otlp import read_spans
from spanscore.core.sample import MultiTurnSample, Samples, SingleTurnSample
from spanscore.core.span import SpanData, Unit, UnitKey
from spanscore.pipeline.assembly import split
from spanscore.samples.genai import GenAIExtractor
from spanscore.samples.normalizers.registry import SpanNormalizers

Pair = tuple[SingleTurnSample | None, MultiTurnSample | None]
RECORDED = Path(__file__).with_name("recorded")


@dataclass(frozen=True)
class Recording:
    """One file: which program ran, and under which instrumentation, with its version."""

    path: Path

    @property
    def program(self) -> str:
        return self.path.name.partition(".")[0]

    @property
    def writer(self) -> str:
        return self.path.name.removesuffix(".jsonl").partition(".")[2]

    @property
    def instrumentation(self) -> str:
        """The writer without its version."""
        return self.writer.rpartition("-")[0]

    def __str__(self) -> str:
        return f"{self.writer} {self.program}"

    def units(self) -> list[Unit]:
        """Return the traces of the file as units, translated, in the order in which they began."""
        with self.path.open(encoding="utf-8") as lines:
            spans = sorted(read_spans(lines), key=attrgetter("trace_id", "start_ns"))
        translator = SpanNormalizers()
        traces = groupby(spans, key=attrgetter("trace_id"))
        return [unit for _, trace in traces for unit in _units(translator, list(trace))]

    def scopes(self) -> set[str]:
        """Return the instrumentation scopes of its spans."""
        with self.path.open(encoding="utf-8") as lines:
            return {span.scope for span in read_spans(lines)}

    def expected(self) -> list[Pair]:
        """Return the required samples of each unit: those of our own capture of the program."""
        written = json.loads(self.path.with_name(f"{self.program}.samples.json").read_text(encoding="utf-8"))
        return [
            (single and SingleTurnSample.model_validate(single), multi and MultiTurnSample.model_validate(multi))
            for single, multi in written
        ]

    def samples(self) -> list[Samples]:
        """Return the samples of each unit."""
        return [GenAIExtractor().extract(unit) for unit in self.units()]


def _units(translator: SpanNormalizers, spans: Sequence[SpanData]) -> list[Unit]:
    """Return the units of a trace; a span that no translation claims has no attributes in them, as the processor has it."""
    translated = [translator.translate(span) for span in spans]
    read = [there or replace(span, attributes={}, events=()) for there, span in zip(translated, spans, strict=True)]
    [root] = [span for span in read if span.parent_id is None]
    return split(Unit(UnitKey(root.trace_id, root.span_id), tuple(read)))


def differences(given: Pair, expected: Pair) -> set[str]:
    """Return the differences of samples: the fields of the single-turn ones, and changes in the conversations."""
    fields = SingleTurnSample.model_fields
    found = {name for name in fields if getattr(given[0], name, None) != getattr(expected[0], name, None)}
    return found | _in_conversations(given[1], expected[1])


def _in_conversations(given: MultiTurnSample | None, expected: MultiTurnSample | None) -> set[str]:
    if given is None or expected is None:
        return set() if given is expected else {"no conversation" if given is None else "a conversation besides"}
    if given.pretty() != expected.pretty():
        return {"conversation"}
    return set() if given == expected else {"metadata of the conversation"}


RECORDINGS: Sequence[Recording] = [Recording(path) for path in sorted(RECORDED.glob("*.jsonl"))]
