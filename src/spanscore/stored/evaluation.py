"""``evaluate()`` scores a data set with the parts of live scoring; failures become rows without a value."""

from __future__ import annotations

import asyncio
import inspect
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from types import CellType, CodeType, FunctionType
from typing import Any, Final, TypeAlias

from spanscore.core import loop
from spanscore.core.codecs.stored_sample import KNOWN, content_hash
from spanscore.core.job import Decision, Job
from spanscore.core.printable import did_you_mean
from spanscore.core.sample import Sample, Samples
from spanscore.core.span import Unit, UnitKey
from spanscore.errors import ConfigurationError
from spanscore.judges.batches.run import BatchRun
from spanscore.judges.effects.budget_ledger import BudgetLedger
from spanscore.judges.effects.cache import MemoryAnswers, answers_kept
from spanscore.judges.effects.middleware import unwrapped
from spanscore.judges.jury import Jury
from spanscore.judges.langchain.models import account_of_model
from spanscore.judges.lexical.judge import is_offline
from spanscore.metrics.catalog.registry import by_name, create, offline_notes
from spanscore.metrics.kit.base import parameter_to_json
from spanscore.pipeline.evaluation import Evaluation
from spanscore.pipeline.jobs import Hooks
from spanscore.protocols import Metric, Redactor
from spanscore.stored.dataset import BadRecord, ReadRecord, none_is_a_sample, read_record, read_samples, records_of
from spanscore.stored.evaluation_result import Result, Row, RowFile, row_key

_ASKED: Final = ("ask", "embed", "ainvoke", "aembed_documents")
"""Methods of judges, embedders and models that send a request to a model."""
_PARAMETERS: Final = ("temperature", "top_p", "seed")
"""Attributes that are hashed for a judge or model without ``drawing``."""


def hash_setup(metric: Metric) -> str:
    """Return a hash of a metric's setup that is not in its evaluator version (``Row.made_by``).

    This is the address and parameters of its judge, and the user's own code. A later run reuses only rows with an equal hash. A
    changed address or comment does not change the evaluator version, and so not the means of live traffic.

    Returns:
        16 hex digits; empty for a built-in metric without a judge.
    """
    fields = [*vars(metric).values()] if hasattr(metric, "__dict__") else []
    members = fields + [value for kind in type(metric).__mro__ for value in vars(kind).values()]
    functions = (getattr(value, "__func__", getattr(value, "fget", None)) or value for value in members)
    own = (
        function
        for function in functions
        if isinstance(function, FunctionType) and not f"{function.__module__}.".startswith("spanscore.")
    )
    parts = [*filter(None, map(_judge_setup, fields)), *map(_describe_function, own)]
    if not parts:
        return ""
    text = json.dumps(parts, sort_keys=True, default=str)
    return blake2b(text.encode("utf-8", "replace"), digest_size=8).hexdigest()


def _judge_setup(value: Any) -> Any:
    """Return address and parameters of a judge, embedder or model; None for other values, and for the offline judge.

    A jury has those of each member.
    """
    if isinstance(value, Jury):
        return [*map(_judge_setup, value.members)]
    judge = getattr(value, "asked", value)  # embeddings have a judge that requests them
    if isinstance(value, type) or is_offline(judge) or not any(callable(getattr(judge, name, None)) for name in _ASKED):
        return None
    inner = unwrapped(judge)
    account = getattr(inner, "account", None) or account_of_model(inner)
    parameters = {name: getattr(inner, name, None) for name in _PARAMETERS}
    return [type(inner).__qualname__, account.address, _plain_value(getattr(inner, "drawing", parameters))]


def _describe_function(function: FunctionType) -> Any:
    """Return a function's text, or its code if there is no text, with the values of its closure."""
    inner = inspect.unwrap(function)
    try:
        text: Any = inspect.getsource(inner)
    except (OSError, TypeError):
        text = _describe_code(inner.__code__)
    return [text, _plain_value(inner.__defaults__), [*map(_read_cell, inner.__closure__ or ())]]


def _read_cell(cell: CellType) -> Any:
    try:
        return _plain_value(cell.cell_contents)
    except ValueError:  # empty
        return None


def _describe_code(code: CodeType) -> Any:
    constants = [_describe_code(value) if isinstance(value, CodeType) else repr(value) for value in code.co_consts]
    return [code.co_code.hex(), [*code.co_names], constants]


def _plain_value(value: Any) -> Any:
    try:
        return parameter_to_json(value)
    except Exception:  # noqa: BLE001  (a user's object may raise anything when it is read)
        return type(value).__qualname__


Progress: TypeAlias = Callable[[int, int | None], None]
"""Callback after each sample, with the samples done and their number (None = unknown); must not block."""
Source: TypeAlias = Iterable[Any] | str | Path
CONCURRENCY = 32
TIMEOUT_S = 60.0
MOST_AT_ONCE = 10_000
"""Maximum number of concurrent samples, because each has a task, which is made at the start."""
_ALWAYS = Decision(take=True, probability=1.0, threshold=0, rule="data set")
_COLUMNS_NAMED = 8
_LAST_ROWS_S = 5.0
"""Time for an interrupted run to write its rows, in s."""


async def evaluate(
    samples: Source,
    metrics: Sequence[Metric | str],
    *,
    concurrency: int = CONCURRENCY,
    timeout: float = TIMEOUT_S,  # noqa: ASYNC109  (of each score, not of this call)
    progress: Progress | None = None,
    out: str | Path | None = None,
    cache: bool = True,
) -> Result:
    """Score stored samples and return the rows with their means.

    Failures are rows with an outcome and without a value, and are in no mean. A record that is not a sample is counted and
    listed in ``Result.bad``.

    Args:
        samples: samples; records with the field names of ragas, today's (``user_input`` …) or the former (``question`` …); a
            data set of ragas or Hugging Face; a data frame; or the path of a file of records (JSON lines, JSON, CSV, parquet).
            It is read one record at a time.
        metrics: metrics with different names; a text is the name of a built-in metric without a judge.
        concurrency: concurrent samples; all metrics of a sample run concurrently. Judges keep to their own limits.
        timeout: seconds for one metric on one sample.
        progress: called after each sample with (done, total or None).
        out: a ``.jsonl`` or ``.csv`` file to which rows are written during the run. Rows already there are reused without
            paying again, except failures, if sample, metric version and judge (address and parameters) are equal. Your own
            function or class is compared by its text.
        cache: whether equal questions to a chat model are sent once in this call. False sends each one, even to a judge with
            a cache, to show how much its answers vary.

    Raises:
        ConfigurationError: no metrics, two metrics of one name, or a file that cannot be read or written.
        SampleError: there are records, but no sample.
    """
    scoring = Scoring(metrics, concurrency=concurrency, timeout=timeout, progress=progress, out=out, cache=cache)
    await loop.await_on_loop(scoring.run(samples))
    return scoring.result()


def evaluate_sync(
    samples: Source,
    metrics: Sequence[Metric | str],
    *,
    concurrency: int = CONCURRENCY,
    timeout: float = TIMEOUT_S,
    progress: Progress | None = None,
    out: str | Path | None = None,
    cache: bool = True,
) -> Result:
    """Run ``evaluate``, blocking, even inside a running loop (Jupyter). After an interrupt, ``out`` has the scores so far."""
    scoring = Scoring(metrics, concurrency=concurrency, timeout=timeout, progress=progress, out=out, cache=cache)
    scoring.block(samples)
    return scoring.result()


class Scoring:
    """One run over a data set, with the parts of live scoring but without sampling. ``result()`` may be called at any time.

    A worker reads the next sample when it is free, so only the rows are kept in memory, however long the data set is.

    Args:
        metrics: as in ``evaluate``, like ``concurrency``, ``timeout``, ``progress``, ``out`` and ``cache``.
        fresh: whether rows in ``out`` are scored again.
        redactor: applied to every text before a judge gets it; if it fails, the sample's scores end as ``redaction_error``.
        budget_ledger: budgets that pay the judges; after they are spent, scores end as ``budget_exhausted``. None = no budget.
        batch: run that sends the judges' questions in batches; None = each question is sent at once.

    Attributes:
        left_in_file: number of rows of other samples, metrics or versions that ``out`` keeps; set at the end of the run.
    """

    def __init__(
        self,
        metrics: Sequence[Metric | str],
        *,
        concurrency: int = CONCURRENCY,
        timeout: float = TIMEOUT_S,
        progress: Progress | None = None,
        out: str | Path | None = None,
        fresh: bool = False,
        cache: bool = True,
        redactor: Redactor | None = None,
        budget_ledger: BudgetLedger | None = None,
        batch: BatchRun | None = None,
    ) -> None:
        if not 1 <= concurrency <= MOST_AT_ONCE:
            raise ConfigurationError(f"concurrency is {concurrency}; it must be 1 to {MOST_AT_ONCE:,}")
        if timeout <= 0:
            raise ConfigurationError(f"timeout is {timeout}; it must be a positive number of seconds")
        created = [create(metric) if isinstance(metric, str) else metric for metric in metrics]
        if not created:
            raise ConfigurationError("give at least one metric: evaluate(samples, [Faithfulness(llm)])")
        self._metrics = by_name(created)
        self._made_by = {name: hash_setup(metric) for name, metric in self._metrics.items()}
        self._evaluation = Evaluation(self._metrics, timeout_s=timeout, budget_ledger=budget_ledger)
        self._hooks = Hooks(redactor)
        self._concurrency = concurrency
        self._progress = progress
        self._file = None if out is None else RowFile(out, fresh=fresh)
        self._answers = MemoryAnswers() if cache else None
        self._batch = batch
        self._seen: Counter[bytes] = Counter()
        self._rows: dict[int, dict[str, Row]] = {}
        self._done = 0
        self._bad: list[BadRecord] = []
        self._unread: dict[Any, None] = {}
        self._reused_rows = 0
        self._is_complete = False
        self._finished = threading.Event()
        self._total: int | None = None
        self.left_in_file = 0

    async def run(self, samples: Source) -> None:
        """Score all samples. On spanscore's loop."""
        self._total = len(samples) if isinstance(samples, Sequence) and not isinstance(samples, str) else None
        records = _Records(samples)
        if self._batch is not None:
            await self._batch.begin()
        with answers_kept(self._answers):
            workers = [asyncio.ensure_future(self._work(records)) for _ in range(self._concurrency)]
        try:
            await asyncio.gather(*workers)
            self._is_complete = True
        finally:
            for worker in workers:
                worker.cancel()
            if self._batch is not None:
                await self._batch.close(whole=self._is_complete)
            if self._file is not None:
                self.left_in_file = self._file.close(self.result().rows)
            self._finished.set()
        if self._bad and not self._rows:
            raise none_is_a_sample(self._bad)

    def block(self, samples: Source) -> None:
        """Score all samples, blocking. An exception in the caller's thread (Ctrl-C) also stops open questions."""
        future = loop.submit(self.run(samples))
        try:
            future.result()
        except BaseException:
            future.cancel()
            self._finished.wait(_LAST_ROWS_S)
            raise

    def result(self) -> Result:
        """Return the rows so far."""
        by_sample = [rows for _, rows in sorted(self._rows.items()) if rows]
        return Result(
            rows=[rows[name] for rows in by_sample for name in self._metrics if name in rows],
            samples=len(by_sample),
            bad=sorted(self._bad, key=lambda bad: bad.line),
            taken_over=self._reused_rows,
            interrupted=not self._is_complete,
            scales={name: metric.scale for name, metric in self._metrics.items()},
            notes=[*offline_notes(self._metrics.values()), *_name_unread([*self._unread])],
        )

    async def _work(self, records: _Records) -> None:
        while (record := await records.next()) is not None:
            place, read = record
            if self._batch is not None:
                await self._batch.room()
            self._unread |= dict.fromkeys(read.unread)
            if isinstance(read.sample, BadRecord):
                self._bad.append(read.sample)
            else:
                await self._score(read, read.sample, self._rows.setdefault(place, {}))
                self._done += 1
            if self._progress is not None:
                self._progress(self._done + len(self._bad), self._total)
            await asyncio.sleep(0)  # without this, a data set with only reused rows would block the loop

    async def _score(self, read: ReadRecord, sample: Sample, rows: dict[str, Row]) -> None:
        """Score a sample. Each row is added when it is ready, so that an interruption does not lose rows that are paid."""
        content = content_hash(sample)
        digest = bytes.fromhex(content)
        occurrence = self._seen[digest]  # number of earlier equal samples
        self._seen[digest] += 1
        keys = {
            name: row_key(content, occurrence, name, metric.evaluator_version) for name, metric in self._metrics.items()
        }
        for name, key in keys.items():
            if self._file is not None and (row := self._file.find_settled(key, self._made_by[name])) is not None:
                rows[name] = replace(row, line=read.line, id=read.id)
        self._reused_rows += len(rows)
        wanted = [name for name in keys if name not in rows]
        samples = Samples.of(sample)
        if wanted and self._hooks.redactor is not None:
            samples = await asyncio.to_thread(self._hooks.apply, samples)  # a redactor must not delay judges
        unit = Unit(UnitKey(int(content, 16), occurrence + 1), ())  # from the content, so that score ids are stable
        async with aclosing(self._evaluation.each(Job(unit, samples, dict.fromkeys(wanted, _ALWAYS)))) as scores:
            async for score in scores:
                name = score.metric
                row = Row.of(score, line=read.line, key=keys[name], own_id=read.id, made_by=self._made_by[name])
                if self._file is not None:
                    self._file.add(row)
                rows[name] = row


def _name_unread(columns: Sequence[Any]) -> Iterator[str]:
    """Yield a line on columns without a field; columns with a name close to that of a field come first."""
    hints = {name: did_you_mean(str(name), KNOWN) for name in columns}
    named = [f"{name!r}{hint and f' ({hint})'}" for name, hint in sorted(hints.items(), key=lambda pair: not pair[1])]
    more = f" and {len(named) - _COLUMNS_NAMED} more" if len(named) > _COLUMNS_NAMED else ""
    if named:
        yield f"Columns not read: {', '.join(named[:_COLUMNS_NAMED])}{more}."


class _Records:
    """Samples with their place and line, given one by one to several workers.

    Standard input is read on a thread, because on the loop it would delay the judges' answers.
    """

    def __init__(self, samples: Source) -> None:
        self._records = enumerate(_records(samples))
        self._may_block = isinstance(samples, str | Path) and str(samples) == "-"
        self._lock = asyncio.Lock()

    async def next(self) -> tuple[int, ReadRecord] | None:
        """Return the next record with its place; None at the end."""
        if self._may_block:
            async with self._lock:
                return await asyncio.to_thread(next, self._records, None)
        return next(self._records, None)


def _records(samples: Source) -> Iterator[ReadRecord]:
    if isinstance(samples, str | Path):
        yield from read_samples(samples)
        return
    yield from (read_record(place, record) for place, record in enumerate(records_of(samples), 1))
