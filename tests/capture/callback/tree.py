"""A captured run as indented text, and the proof that it left nothing behind."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from textwrap import dedent, indent
from typing import Any

from opentelemetry.trace import SpanKind
from tests.live import Trace, a_line, identity_holds, open_roots

from spanscore.scorer import pipeline_of

_CLIENTS = ("chat", "text_completion", "retrieval")


class Captured:
    """A scorer, its exports, and its counts after everything had ended."""

    def __init__(self, scorer: Any, trace: Trace) -> None:
        self.scorer, self.trace = scorer, trace
        self.outcomes: dict[str, int] = {}
        self.outlived = False  # whether a child may end after its root

    def config(self, **more: Any) -> dict[str, Any]:
        return {"callbacks": [self.scorer.handler], **more}

    @property
    def spans(self) -> list[Any]:
        return [s for s in self.trace.spans if s.instrumentation_scope.name == "spanscore.capture"]

    def span(self, prefix: str) -> Any:
        (found,) = [s for s in self.spans if s.name.startswith(prefix)]
        return found

    def drawn(self) -> str:
        """Return one line per span: its name, how it ended, its error; siblings by start, then by text."""
        return "".join(f"{tree}\n" for tree in self.trees())

    def trees(self) -> list[str]:
        ids = {s.context.span_id for s in self.spans}
        roots = [s for s in self.spans if s.parent is None or s.parent.span_id not in ids]
        return [self._tree(root) for root in sorted(roots, key=lambda s: s.start_time)]

    def _tree(self, span: Any) -> str:
        children = [s for s in self.spans if s.parent is not None and s.parent.span_id == span.context.span_id]
        for child in children:
            assert child.context.trace_id == span.context.trace_id
            assert span.start_time <= child.start_time, f"{child.name} began before {span.name}"
            if span.attributes.get("spanscore.run.end") == "completed" and not self.outlived:
                assert child.end_time <= span.end_time, f"{child.name} ended after {span.name}"
        below = sorted((child.start_time, self._tree(child)) for child in children)
        return "\n".join([_line(span), *(indent(text, "  ") for _, text in below)])

    def clean(self) -> None:
        """Assert that no run is open, held or remembered, and that the ledger adds up."""
        line, handler = pipeline_of(self.scorer), self.scorer.handler
        recorder = handler.receiver
        assert (open_roots(handler), handler.memory.remembered()) == ([], 0)
        assert (recorder.next_due_ns(), recorder.in_flight()) == (None, set())
        assert (line.units.hold.in_flight, len(line.assembler), len(line.hold), line.hold.spans) == ({}, 0, 0, 0)
        assert identity_holds(self.scorer)
        ids = [s.context.span_id for s in self.trace.spans]
        assert len(ids) == len(set(ids))
        for span in self.spans:
            assert span.start_time <= span.end_time
            operation = span.attributes.get("gen_ai.operation.name")
            assert span.kind is (SpanKind.CLIENT if operation in _CLIENTS else SpanKind.INTERNAL)


async def ended(run: Captured, roots: int = 0) -> None:
    """Let the loop end its remaining work (it closes the inner generators of a broken stream later), then flush."""
    for _ in range(1_000):
        if len(open_roots(run.scorer.handler)) <= roots:
            break
        await asyncio.sleep(0)
    await asyncio.to_thread(run.scorer.flush, 10)


def _line(span: Any) -> str:
    words = [span.name, span.attributes.get("spanscore.run.end")]
    if span.status.status_code.name == "ERROR" or "error.type" in span.attributes:
        words.append(f"{span.status.status_code.name}:{span.attributes.get('error.type')}")
    return " ".join(word for word in words if word)


def tree(text: str) -> str:
    """Return a tree as it is written in a test."""
    return dedent(text).strip("\n") + "\n"


@contextmanager
def captured(*metrics: Any, **options: Any) -> Iterator[Captured]:
    """A scorer to run something under; at the end it is flushed and must be clean."""
    with a_line(*metrics, **options) as (scorer, trace):
        run = Captured(scorer, trace)
        yield run
        assert scorer.flush(10)
        status = scorer.status()
        run.outcomes = dict(next(iter(status.outcomes.values()), {}))
        run.clean()
