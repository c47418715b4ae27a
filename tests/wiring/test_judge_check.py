"""Labelled samples that are judged on a schedule: outside sampling, in no mean, no ledger, compared with the first answers."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from tests.core.test_fork import in_child
from tests.judges.models import PlainModel
from tests.live import Grounded, a_line, identity_holds, run_rag
from tests.servers.server import poll

from spanscore import ConfigurationError, OnlineScorer
from spanscore.config import Budget, JudgeCheck, Outputs
from spanscore.core import loop
from spanscore.core.files import ProcessLock
from spanscore.core.sample import Samples, SingleTurnSample
from spanscore.core.score import BINARY
from spanscore.judges import judge
from spanscore.judges.score_context import current_score
from spanscore.metrics import AspectCritic, BaseMetric, Finding
from spanscore.monitoring.judge_check_runs import FirstAnswers
from spanscore.pipeline.evaluation import Evaluation
from spanscore.pipeline.judge_check import JudgeCheckCase, JudgeCheckRuns, build_check_name
from spanscore.scorer import pipeline_of
from spanscore.testing import MemorySink


class Says(BaseMetric):
    """Passes all responses except these; raises for some that it cannot judge."""

    name = "says"
    scale = BINARY
    requires = {"single_turn": ("response",)}  # noqa: RUF012

    def __init__(self, fails: set[str] = frozenset(), away: set[str] = frozenset(), name: str = "says") -> None:  # type: ignore[assignment]
        self.name = name
        self._fails, self._away = set(fails), set(away)
        self._asked: list[str] = []  # a private attribute is no part of the version

    @property
    def asked(self) -> list[str]:
        """The responses so far."""
        return self._asked

    def be_away(self, *responses: str) -> None:
        """Raise for these responses from now on."""
        self._away.update(responses)

    async def measure(self, sample: Any) -> Finding:
        self._asked.append(sample.response)
        if sample.response in self._away:
            raise OSError("away")
        return Finding(value=float(sample.response not in self._fails))


def labelled(folder: Path, count: int = 20, **more: Any) -> JudgeCheck:
    """Labels, every fifth of them a fail."""
    lines = [{"human": n % 5 > 0, "user_input": f"q{n}", "response": f"r{n}"} for n in range(count)]
    file = folder / "labelled.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return JudgeCheck(golden_set=file, **{"metrics": ["says"], **more})


def human_fails(count: int = 20) -> set[str]:
    return {f"r{n}" for n in range(0, count, 5)}


def run(scorer: OnlineScorer) -> None:
    runs = pipeline_of(scorer).judge_check
    assert runs is not None
    loop.submit(runs.run()).result(10)


def points(reader: InMemoryMetricReader) -> dict[tuple[str, str], float]:
    """Name and source → value, of all that is not zero."""
    data = reader.get_metrics_data()
    metrics = [one for rs in data.resource_metrics for scope in rs.scope_metrics for one in scope.metrics]
    found = [(one.name, point) for one in metrics for point in one.data.data_points]
    return {
        (name, str((point.attributes or {}).get("spanscore.evaluation.source", ""))): point.value
        for name, point in found
        if getattr(point, "value", 0)
    }


def test_a_run_is_in_no_count_of_the_population(tmp_path: Path) -> None:
    reader, sink = InMemoryMetricReader(), MemorySink()
    provider = MeterProvider(metric_readers=[reader])
    with a_line(Says(), judge_check=labelled(tmp_path), meter_provider=provider, outputs=Outputs(sinks=[sink])) as (
        scorer,
        trace,
    ):
        run_rag(scorer)
        run(scorer)
        result, status = points(reader), scorer.status()

        assert {
            name: result[name, ""] for name in ("spanscore.eligible", "spanscore.evaluations", "spanscore.scored")
        } == {
            "spanscore.eligible": 1,
            "spanscore.evaluations": 1,
            "spanscore.scored": 1,
        }
        assert {name for name, source in result if source == "judge_check"}.isdisjoint(
            {"spanscore.eligible", "spanscore.evaluations", "spanscore.evaluation.pending"}
        )
        assert result["spanscore.scored", "judge_check"] > 0
        assert identity_holds(scorer)
        assert (status.eligible, len(sink.scores), len(trace.evaluations)) == ({"says": 1}, 1, 1)
        assert (status.means["says"] or [None])[0] == 1.0


def test_a_judge_that_has_changed_between_two_processes_is_seen(tmp_path: Path) -> None:
    judge_check, reader = labelled(tmp_path), InMemoryMetricReader()
    with a_line(Says(human_fails()), judge_check=judge_check) as (scorer, _):
        run(scorer)
        assert scorer.status().judge_check[0].last.p == 1.0  # type: ignore[union-attr]

    with a_line(Says(), judge_check=judge_check, meter_provider=MeterProvider(metric_readers=[reader])) as (scorer, _):
        run_rag(scorer)
        run(scorer)
        result = points(reader)

    assert result["spanscore.judge_check.agreement", "judge_check"] == 0.8
    assert result["spanscore.judge_check.first_agreement", "judge_check"] == 1.0
    assert result["spanscore.judge_check.p", "judge_check"] == pytest.approx(4 * 0.5**4)


def test_another_prompt_is_another_first_run(tmp_path: Path) -> None:
    class Newer(Says):
        base_version = "2"

    judge_check = labelled(tmp_path)
    with a_line(Says(human_fails()), judge_check=judge_check) as (scorer, _):
        run(scorer)
    with a_line(Newer(), judge_check=judge_check) as (scorer, _):
        run(scorer)

        assert scorer.status().judge_check[0].last.p == 1.0  # type: ignore[union-attr]


def test_what_the_judge_does_not_answer_is_missing_and_no_disagreement(tmp_path: Path) -> None:
    says = Says(human_fails())
    with a_line(says, judge_check=labelled(tmp_path)) as (scorer, _):
        run(scorer)
        says.be_away(*(f"r{n}" for n in range(10)))
        run(scorer)
        (state,) = scorer.status().judge_check

    assert state.last is not None
    assert (state.last.answered, state.last.right, state.last.lost, state.last.p) == (10, 10, 0, 1.0)
    assert "10 of 10 labels" in str(state)
    assert "metric_error" in str(state)


def test_a_run_with_too_few_answers_says_so_and_tells_no_number(tmp_path: Path) -> None:
    reader = InMemoryMetricReader()
    says = Says(away={f"r{n}" for n in range(11)})
    provider = MeterProvider(metric_readers=[reader])
    with a_line(says, judge_check=labelled(tmp_path), meter_provider=provider) as (scorer, _):
        run_rag(scorer)
        run(scorer)

        assert "too few answers for a result: 9 of 20" in str(scorer.status())
        assert not [name for name, _ in points(reader) if name.startswith("spanscore.judge_check")]


def test_a_cache_does_not_answer_for_the_judge(tmp_path: Path) -> None:
    model = PlainModel()
    critic = AspectCritic(judge(model, cache="memory"), name="says", definition="Is it polite?")
    with a_line(critic, judge_check=labelled(tmp_path, count=3)) as (scorer, _):
        run(scorer)
        run(scorer)

    assert len(model.seen) == 6


def test_what_it_costs_is_the_budgets_and_makes_no_unit_seem_dearer(tmp_path: Path) -> None:
    reader = InMemoryMetricReader()
    critic = AspectCritic(judge(PlainModel()), name="says", definition="Is it polite?")
    options = {"budget": [Budget(calls=100, per="1h")], "meter_provider": MeterProvider(metric_readers=[reader])}
    with a_line(critic, judge_check=labelled(tmp_path, count=3), **options) as (scorer, _):
        run_rag(scorer)
        run(scorer)
        budget_ledger = pipeline_of(scorer).budget_ledger
        assert budget_ledger is not None

        assert {name: paid.spent.calls for name, paid in budget_ledger.paid().items()} == {
            "says": 1,
            "says judge_check": 3,
        }
        assert scorer.status().budgets[0].spent == 4
        assert points(reader)["spanscore.judge.calls", ""] == 4


def test_a_redactor_sees_what_a_judge_does_and_the_filter_is_for_live_units(tmp_path: Path) -> None:
    says = Says()
    options = {"redactor": lambda text: text.replace("r", "*"), "sample_filter": lambda _: False}
    with a_line(says, judge_check=labelled(tmp_path, count=3), **options) as (scorer, _):
        run(scorer)

    assert sorted(says.asked) == ["*0", "*1", "*2"]


def test_of_several_metrics_those_that_ask_a_judge_are_watched(tmp_path: Path) -> None:
    critic = AspectCritic(judge(PlainModel()), name="polite", definition="Is it polite?")
    with a_line(critic, Grounded(), judge_check=labelled(tmp_path, metrics=())) as (scorer, _):
        assert [state.metric for state in scorer.status().judge_check] == ["polite"]
        assert "polite judge check: no run yet" in str(scorer.status())


def test_a_fallbacks_answer_says_nothing_of_the_judge(tmp_path: Path) -> None:
    class FellBack(Says):
        async def measure(self, sample: Any) -> Finding:
            current_score().source = "fallback"
            return await super().measure(sample)

    with a_line(FellBack(), judge_check=labelled(tmp_path)) as (scorer, _):
        run(scorer)
        (state,) = scorer.status().judge_check

    assert state.last is not None
    assert state.last.answered == 0
    assert not (tmp_path / "labelled.baseline.json").exists()


def test_a_scorer_that_is_shut_down_tells_of_no_next_run(tmp_path: Path) -> None:
    with a_line(Says(), judge_check=labelled(tmp_path)) as (scorer, _):
        run_rag(scorer)
        poll(lambda: "next in" in str(scorer.status().judge_check[0]), deadline_s=10, what="the schedule")
        scorer.shutdown(5)

        poll(lambda: "next in" not in str(scorer.status().judge_check[0]), deadline_s=10, what="the end of it")


def test_of_a_file_with_labels_of_several_names_those_of_one_are_taken(tmp_path: Path) -> None:
    file, says = tmp_path / "labelled.jsonl", Says()
    lines = [{"human": True, "name": name, "response": name} for name in ("polite", "user_feedback")]
    file.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")

    with a_line(says, judge_check=JudgeCheck(golden_set=file, metrics=["says"], name="polite")) as (scorer, _):
        run(scorer)

    assert says.asked == ["polite"]
    with pytest.raises(ConfigurationError, match="choose one: polite, user_feedback"):
        OnlineScorer([says], judge_check=JudgeCheck(golden_set=file, metrics=["says"]))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_child_is_as_new_and_its_parent_has_the_runs(tmp_path: Path) -> None:
    with a_line(Says(), judge_check=labelled(tmp_path)) as (scorer, _):
        run(scorer)
        runs = pipeline_of(scorer).judge_check
        assert runs is not None
        assert runs.lock.take()

        assert in_child(lambda: f"{scorer.status().judge_check[0].last} {runs.lock.take()}") == "None False"
        assert scorer.status().judge_check[0].last is not None


@pytest.mark.parametrize(
    ("metrics", "text", "words"),
    [
        (["sais"], '{"human": true, "response": "r"}', r"judge_check\.metrics names 'sais'.*it has says"),
        ([], '{"human": true, "response": "r"}', "no metric with a quality uses a judge"),
        (["says"], '{"human": true, "key": "order-1"}', "labels without samples"),
        (["says"], '{"human": "meh", "response": "r"}', "line 1, says: .*good"),
        (["says"], '{"humen": true, "response": "r"}', "did you mean 'human'"),
    ],
)
def test_what_cannot_be_watched_is_refused(tmp_path: Path, metrics: list[str], text: str, words: str) -> None:
    file = tmp_path / "labelled.jsonl"
    file.write_text(text, encoding="utf-8")

    with pytest.raises(ConfigurationError, match=words):
        OnlineScorer([Says()], judge_check=JudgeCheck(golden_set=file, metrics=metrics))


@pytest.mark.parametrize(
    ("every", "message"),
    [
        ("30s", r"must be 60 or more \(given: '30s'\)"),
        ("31d", r"must be 2,592,000 or less \(given: '31d'\)"),
        (0, r"must be greater than 0 \(given: 0\)"),
        ("soon", "'soon' is no duration; write for example 30s, 500ms, 5m, 1h or a number of seconds"),
    ],
)
def test_a_schedule_that_makes_no_sense_is_refused(every: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"judge_check\.every: {message}"):
        JudgeCheck(golden_set="labelled.jsonl", every=every)


class Clock:
    """A clock that sleeping moves; after the given number of sleeps, no sleep ends."""

    def __init__(self, sleeps: int) -> None:
        self.now_s, self.slept = 0.0, list[float]()
        self._sleeps = sleeps

    async def sleep(self, seconds: float) -> None:
        if len(self.slept) == self._sleeps:
            await asyncio.Event().wait()
        self.slept.append(seconds)
        self.now_s += seconds


def runs_of(says: Says, clock: Clock, folder: Path, cases: int = 2, **more: Any) -> JudgeCheckRuns:
    metrics: Mapping[str, Any] = {"says": says}

    async def prepare(sample: Any) -> Samples:
        return Samples.of(sample)

    return JudgeCheckRuns(
        metrics,
        [JudgeCheckCase(f"{n:032x}", SingleTurnSample(response=f"r{n}"), True) for n in range(1, cases + 1)],
        every_s=3_600,
        first=FirstAnswers(folder / "baseline.json"),
        lock=ProcessLock(folder / "baseline.json.lock"),
        evaluation=Evaluation({build_check_name("says"): says}),
        prepare=prepare,
        record=lambda _: None,
        sleep=clock.sleep,
        uniform=lambda low, high: (low + high) / 2,
        clock=lambda: clock.now_s,
        **more,
    )


def test_the_first_run_is_within_a_minute_and_the_others_on_schedule(tmp_path: Path) -> None:
    says, clock = Says(), Clock(sleeps=3)
    runs = runs_of(says, clock, tmp_path)
    runs.start()
    runs.start()
    poll(lambda: len(says.asked) == 6, deadline_s=10, what="three runs")
    runs.stop()

    assert clock.slept == [35, 3_600, 3_600]


def test_stopping_does_not_wait_for_a_judge_that_hangs(tmp_path: Path) -> None:
    begun = []

    class Hangs(Says):
        async def measure(self, sample: Any) -> Finding:
            begun.append(sample)
            await asyncio.Event().wait()
            raise AssertionError

    runs = runs_of(Hangs(), Clock(sleeps=1), tmp_path, cases=5)
    runs.start()
    poll(lambda: len(begun) == 2, deadline_s=10, what="two samples at once")
    runs.stop()

    assert runs.states()[0].last is None


def test_of_processes_that_share_a_baseline_one_runs_and_another_when_it_has_ended(tmp_path: Path) -> None:
    says, lock = [Says(), Says(), Says()], ProcessLock(tmp_path / "baseline.json.lock")
    running, standing_by, later = (runs_of(one, Clock(sleeps=1), tmp_path) for one in says)
    running.start()
    poll(lambda: len(says[0].asked) == 2, deadline_s=10, what="the first run")
    standing_by.start()
    poll(lambda: standing_by.states()[0].stands_by, deadline_s=10, what="the second process")
    running.stop()
    poll(lock.take, deadline_s=10, what="the end of the first process")
    lock.release()
    later.start()
    poll(lambda: len(says[2].asked) == 2, deadline_s=10, what="the third process")

    assert says[1].asked == []
    assert "another process of this machine" in str(standing_by.states()[0])
    standing_by.stop()
    later.stop()


def test_services_that_share_labels_and_not_their_judge_have_runs_of_their_own(tmp_path: Path) -> None:
    judge_check = JudgeCheck(golden_set=tmp_path / "labels.jsonl")
    mini, worker, large = (ProcessLock(judge_check.lock_path([f"1/{judge}/1"])) for judge in ("mini", "mini", "large"))

    assert (mini.take(), worker.take(), large.take()) == (True, False, True)

    mini.release()
    large.release()
