"""A data set is scored: every sample counts, every failure is a value, no answer is paid for twice."""

from __future__ import annotations

import asyncio
import csv
import json
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.judges.models import PlainModel
from tests.live import Failing, Grounded, Slow

from spanscore import evaluate, evaluate_sync
from spanscore.core.sample import HumanMessage, MultiTurnSample, SingleTurnSample
from spanscore.core.score import UNIT_INTERVAL, Outcome
from spanscore.errors import ConfigurationError, JudgeError, SampleError
from spanscore.judges import judge
from spanscore.metrics import AspectCritic, ExactMatch, Faithfulness
from spanscore.stored.evaluation_result import COLUMNS, Result, Row
from spanscore.testing import ScriptedJudge

TRUE = SingleTurnSample(user_input="Where?", response="Rome", retrieved_contexts=["It is in Rome."], reference="Rome")
FALSE = SingleTurnSample(user_input="Where?", response="Oslo", retrieved_contexts=["It is in Rome."], reference="Rome")
SUPPORTED = [
    {"step": "extract_statements", "output": {"statements": ["It is in Rome."]}},
    {
        "step": "verify_statements",
        "output": {"statements": [{"statement": "It is in Rome.", "verdict": 1, "reason": ""}]},
    },
]


def plain_rows(result: Result) -> list[tuple[int, str, str, float | None]]:
    return [(row.line, row.metric, row.outcome.value, row.value) for row in result.rows]


async def test_every_sample_has_a_row_per_metric_in_their_order() -> None:
    result = await evaluate([TRUE, FALSE], [Slow(0.01), ExactMatch()], concurrency=2)

    assert plain_rows(result) == [
        (1, "slow", "scored", 1.0),
        (1, "exact_match", "scored", 1.0),
        (2, "slow", "scored", 0.0),
        (2, "exact_match", "scored", 0.0),
    ]
    assert (result.mean("slow"), result.samples, result.interrupted) == (0.5, 2, False)


async def test_it_can_be_called_within_a_running_loop_and_without_one() -> None:
    assert evaluate_sync([TRUE], ["exact_match"]).mean("exact_match") == 1.0


async def test_rows_are_for_their_owner_alone_as_explanations_quote(tmp_path: Path) -> None:
    class Looking(Grounded):
        """Looks at the file while a run writes it."""

        async def measure(self, sample: Any) -> Any:
            modes.append(mode(out))
            return await super().measure(sample)

    def mode(path: Path) -> int:
        return stat.S_IMODE(path.stat().st_mode)

    modes, out, baseline = list[int](), tmp_path / "scores.csv", tmp_path / "base.jsonl"
    baseline.touch(0o644)

    result = await evaluate([TRUE], [Looking()], out=out)
    result.to_jsonl(baseline)

    assert (modes, mode(out), mode(baseline)) == ([0o600], 0o600, 0o600)


class Frame:
    """As much of pandas's data frame as is read: it iterates its columns."""

    columns = ("answer", "ground_truth")

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def itertuples(self, *, index: bool, name: None) -> Iterator[tuple[Any, ...]]:
        return (tuple(record.values()) for record in RECORDS)

    def to_pandas(self) -> Any: ...


class Table:
    """As much of an Arrow table as is read."""

    def to_pylist(self) -> list[dict[str, str]]:
        return RECORDS


class Polars:
    """As much of a data frame of polars as is read."""

    def iter_rows(self, *, named: bool) -> Iterator[dict[str, str]]:
        return iter(RECORDS)


RECORDS = [{"answer": "Rome", "ground_truth": "Rome"}, {"answer": "Oslo", "ground_truth": "Rome"}]
FRAME, COLUMNS_OF_IT = Frame(), {"answer": ["Rome", "Oslo"], "ground_truth": ["Rome", "Rome"]}


@pytest.mark.parametrize(
    "samples",
    [RECORDS, FRAME, Table(), Polars(), COLUMNS_OF_IT, {"train": FRAME}],
    ids=["records", "pandas", "arrow", "polars", "columns", "one-split"],
)
def test_records_come_from_data_frames_and_tables(samples: Any) -> None:
    result = evaluate_sync(samples, ["exact_match"])

    assert plain_rows(result) == [(1, "exact_match", "scored", 1.0), (2, "exact_match", "scored", 0.0)]


def test_a_data_set_of_several_splits_is_refused_by_their_names() -> None:
    with pytest.raises(ConfigurationError, match="these are 2 data sets: train, test; give one of them"):
        evaluate_sync({"train": FRAME, "test": FRAME}, ["exact_match"])


def test_columns_that_nobody_reads_are_named_once() -> None:
    record = {"id": 1, "anwser": "Rome", "answer": "Rome", "ground_truth": "Rome", "latency\n": 3, "scores": {}}

    result = evaluate_sync([record, {**record, "b": 2}], ["exact_match"])

    assert result.notes == [r"Columns not read: 'anwser' (did you mean 'answer'?), 'latency\n', 'b'."]


async def test_a_failure_is_a_row_and_in_no_mean() -> None:
    judge = ScriptedJudge(SUPPORTED)  # for one sample; none for the other

    result = await evaluate([TRUE, FALSE], [Faithfulness(judge)], concurrency=1)

    assert plain_rows(result) == [(1, "faithfulness", "scored", 1.0), (2, "faithfulness", "judge_error", None)]
    assert result.rows[1].error_type == "script_ended"
    summary = result.summary("faithfulness")
    assert (summary.mean, summary.scored, summary.failed) == (1.0, 1, 1)


async def test_a_metric_that_hangs_is_a_timeout_and_holds_up_nothing() -> None:
    result = await evaluate([TRUE], [Slow(60.0), ExactMatch()], timeout=0.05)

    assert [row.outcome for row in result.rows] == [Outcome.TIMEOUT, Outcome.SCORED]


async def test_a_metric_gets_the_kind_of_sample_it_is_for() -> None:
    talk = MultiTurnSample(user_input=[HumanMessage(content="Hello")])

    result = await evaluate([talk], ["exact_match"])

    assert result.rows[0].outcome is Outcome.MISSING_FIELD


async def test_what_is_no_sample_is_named_and_not_fatal() -> None:
    result = await evaluate([{"answer": 7}, TRUE], ["exact_match"])

    assert plain_rows(result) == [(2, "exact_match", "scored", 1.0)]
    assert [str(bad) for bad in result.bad] == ["line 1: response: Input should be a valid string, not int"]


async def test_nothing_but_bad_records_is_an_error() -> None:
    with pytest.raises(SampleError, match="none of 2 records is a sample:\n  line 1: response"):
        await evaluate([{"answer": 7}, {"answer": 8}], ["exact_match"])


async def test_no_more_samples_are_asked_for_than_are_being_scored() -> None:
    asked, most, done = 0, 0, 0

    def many() -> Iterator[SingleTurnSample]:
        nonlocal asked, most
        for _ in range(200):
            asked += 1
            most = max(most, asked - done)
            yield TRUE

    def progress(so_far: int, total: int | None) -> None:
        nonlocal done
        done = so_far

    result = await evaluate(many(), [Slow(0.0)], concurrency=5, progress=progress)

    assert (len(result.rows), done) == (200, 200)
    assert most <= 5


async def test_a_file_is_a_data_set(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"question": "Q", "answer": "A", "ground_truth": "A"}\n', encoding="utf-8")

    assert (await evaluate(file, ["exact_match"])).mean("exact_match") == 1.0


@pytest.mark.parametrize("name", ["scores.jsonl", "scores.csv"])
async def test_what_was_paid_for_is_taken_over(tmp_path: Path, name: str) -> None:
    out, judge = tmp_path / name, ScriptedJudge(SUPPORTED)
    first = await evaluate([TRUE], [Faithfulness(judge)], out=out)

    again = await evaluate([FALSE, TRUE], [Faithfulness(judge), ExactMatch()], out=out, concurrency=1)

    assert again.taken_over == 1
    assert len([call for call in judge.calls if call.evidence.get("answer") == "Rome"]) == 1
    assert again.rows[2] == replace(first.rows[0], line=2)
    assert plain_rows(again)[2:] == [(2, "faithfulness", "scored", 1.0), (2, "exact_match", "scored", 1.0)]


@pytest.mark.parametrize("name", ["scores.jsonl", "scores.csv"])
async def test_a_row_has_the_id_of_its_record_also_when_it_is_taken_over(tmp_path: Path, name: str) -> None:
    out, record = tmp_path / name, {"response": "Rome", "reference": "Rome"}

    first = await evaluate([{"id": "q-1", **record}], ["exact_match"], out=out)
    again = await evaluate([{"id": "q-2", **record}, record], ["exact_match"], out=out)

    assert [row.id for row in first.rows] == ["q-1"]
    assert [(row.line, row.id) for row in again.rows] == [(1, "q-2"), (2, None)]
    assert again.taken_over == 1
    assert "q-2" in out.read_text()


async def test_a_failure_is_tried_again(tmp_path: Path) -> None:
    out = tmp_path / "scores.jsonl"
    await evaluate([TRUE], [Failing(JudgeError("gone"), "m")], out=out)

    again = await evaluate([TRUE], [Grounded("m")], out=out)

    assert plain_rows(again) == [(1, "m", "scored", 1.0)]
    assert len(out.read_text().splitlines()) == 1


async def test_equal_samples_have_a_row_each_also_when_taken_over(tmp_path: Path) -> None:
    out = tmp_path / "scores.jsonl"
    await evaluate([TRUE, TRUE], [Grounded()], out=out)

    again = await evaluate([TRUE, TRUE, TRUE], [metric := Grounded()], out=out)

    assert (again.taken_over, len(metric.seen), len({row.key for row in again.rows})) == (2, 1, 3)


async def test_rows_of_others_stay_in_the_file_and_out_of_the_result(tmp_path: Path) -> None:
    out = tmp_path / "scores.jsonl"
    await evaluate([TRUE], [Grounded("one")], out=out)

    result = await evaluate([TRUE], [Grounded("two")], out=out)

    assert [row.metric for row in result.rows] == ["two"]
    assert [json.loads(line)["metric"] for line in out.read_text().splitlines()] == ["two", "one"]


@pytest.mark.parametrize("name", ["scores.jsonl", "scores.csv"])
async def test_a_row_that_was_cut_off_is_paid_for_again(tmp_path: Path, name: str) -> None:
    out = tmp_path / name
    await evaluate([TRUE, FALSE], [Grounded()], out=out)
    out.write_bytes(out.read_bytes()[:-8])

    again = await evaluate([TRUE, FALSE], [Grounded()], out=out)

    assert (again.taken_over, plain_rows(again)) == (
        1,
        [(1, "grounded", "scored", 1.0), (2, "grounded", "scored", 0.0)],
    )


async def test_a_file_of_somebody_elses_is_not_touched(tmp_path: Path) -> None:
    out = tmp_path / "notes.csv"
    out.write_text("a,b\n1,2\n3,4\n")

    with pytest.raises(ConfigurationError, match="holds other lines than rows that spanscore has written"):
        await evaluate([TRUE], [Grounded()], out=out)

    assert out.read_text() == "a,b\n1,2\n3,4\n"


async def test_cancelled_the_rows_until_then_are_in_the_file(tmp_path: Path) -> None:
    out = tmp_path / "scores.jsonl"
    first = asyncio.Event()
    here = asyncio.get_running_loop()

    def progress(done: int, total: int | None) -> None:
        here.call_soon_threadsafe(first.set)

    samples = [TRUE, SingleTurnSample(response="slow", retrieved_contexts=[])]
    metrics = [SlowOn("slow")]
    task = asyncio.ensure_future(evaluate(samples, metrics, out=out, progress=progress))
    await asyncio.wait_for(first.wait(), 10)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(out.read_text().splitlines()) == 1


async def test_cancelled_the_scores_of_a_sample_that_was_half_done_are_in_the_file(tmp_path: Path) -> None:
    out = tmp_path / "scores.jsonl"
    half_done = SingleTurnSample(response="slow", reference="slow", retrieved_contexts=[])

    task = asyncio.ensure_future(evaluate([half_done], [SlowOn("slow"), ExactMatch()], out=out))
    while not (out.exists() and out.read_text()):  # noqa: ASYNC110  (a file has no event)
        await asyncio.sleep(0.01)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert [json.loads(line)["metric"] for line in out.read_text().splitlines()] == ["exact_match"]


async def test_rows_are_written_as_lines_and_as_cells(tmp_path: Path) -> None:
    result = await evaluate([TRUE, {"response": 'a "quoted",\nline \ud83d', "retrieved_contexts": []}], [Grounded()])

    result.to_jsonl(tmp_path / "a.jsonl")
    result.to_csv(tmp_path / "a.csv")

    lines = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert [tuple(line) for line in lines] == [COLUMNS] * 2
    with (tmp_path / "a.csv").open(newline="", encoding="utf-8") as stream:
        cells = list(csv.DictReader(stream))
    assert cells[1]["explanation"] == 'looked for a "quoted",\nline ?'
    assert [line["value"] for line in lines] == [float(cell["value"]) for cell in cells] == [1.0, 0.0]


async def test_a_result_prints_as_a_table_that_tells_what_a_mean_hides() -> None:
    result = await evaluate([TRUE, {"response": "x"}, {"answer": 7}], [Grounded(), Failing(None)])

    text = str(result)

    for words in (
        "grounded",
        "1.000",
        "100 %",
        "missing_field ×1",
        "no_value",
        "nothing to verify",
        "Not read, line 3",
    ):
        assert words in text
    assert max(map(len, text.splitlines())) <= 110


@pytest.mark.parametrize(
    ("metrics", "settings", "words"),
    [
        ([], {}, "at least one metric"),
        ([ExactMatch(), ExactMatch()], {}, "two metrics are called 'exact_match'"),
        (["faithfulness"], {}, "faithfulness needs a judge"),
        ([object()], {}, "is no metric"),
        ([ExactMatch()], {"concurrency": 0}, "concurrency is 0"),
        ([ExactMatch()], {"timeout": 0}, "timeout is 0"),
        ([ExactMatch()], {"out": "scores.txt"}, r"written as \.jsonl or \.csv"),
    ],
)
async def test_what_cannot_be_is_said_before_anything_is_paid(metrics: Any, settings: Any, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        await evaluate([TRUE], metrics, **settings)


async def test_a_mean_of_something_else_is_a_key_error() -> None:
    with pytest.raises(KeyError, match="exact_match"):
        (await evaluate([TRUE], ["exact_match"])).mean("faithfulness")


class SlowOn(Grounded):
    """Waits for ever on one response."""

    def __init__(self, response: str) -> None:
        super().__init__("slow_on")
        self._response = response

    async def measure(self, sample: Any) -> Any:
        if sample.response == self._response:
            await asyncio.Event().wait()
        return await super().measure(sample)


async def test_a_model_is_asked_equal_questions_once_and_the_rows_say_which_were_not_asked() -> None:
    model = PlainModel()

    result = await evaluate([TRUE] * 3, [AspectCritic(model, definition="Is it polite?")])

    assert [(row.judge_calls, row.cached_calls, row.input_tokens) for row in result.rows] == [
        (1, 0, 30),
        (1, 1, 0),
        (1, 1, 0),
    ]
    assert len(model.seen) == 1
    assert "3 judge calls, 2 of them answered before: 30 tokens sent" in str(result)


async def test_what_one_run_was_answered_another_run_asks() -> None:
    model = PlainModel()

    for _ in range(2):
        await evaluate([TRUE], [AspectCritic(model, definition="Is it polite?")])

    assert len(model.seen) == 2


def test_every_question_is_asked_where_no_answer_is_to_be_kept() -> None:
    model = PlainModel()

    critic = AspectCritic(judge(model, cache="memory"), definition="Is it polite?")
    result = evaluate_sync([TRUE] * 3, [critic], cache=False)

    assert ([row.cached_calls for row in result.rows], len(model.seen)) == ([0, 0, 0], 3)


def test_what_a_fallback_judged_is_in_no_mean_and_is_asked_again() -> None:
    def row(value: float, source: str | None) -> Row:
        return Row(line=1, key="k", metric="m", version="1", outcome=Outcome.SCORED, value=value, source=source)

    rows = [row(1.0, None), row(0.0, "fallback"), row(0.0, "fallback")]
    result = Result(rows=rows, samples=3, scales={"m": UNIT_INTERVAL})

    summary = result.summary("m")
    assert (summary.mean, summary.scored, summary.rows, summary.fallback) == (1.0, 1, 1, 2)
    assert "m: 2 rows judged by a fallback, in no mean." in str(result)
    assert [one.settled for one in rows] == [True, False, False]
