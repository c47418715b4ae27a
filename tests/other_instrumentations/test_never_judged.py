"""The evaluator never evaluates itself, whoever else traces the process: the real instrumentations, in a process each.

The exports of an application with a scorer are compared with those without one. An ordinary call proves that an instrumentation
sees the judge's model at all.
"""

import json
import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

pytestmark = pytest.mark.flaky(reruns=2)  # whole processes, on a machine that others may use too

DISTRIBUTIONS = {
    "openinference": "openinference-instrumentation-langchain",
    "openllmetry": "opentelemetry-instrumentation-langchain",
    "openai": "opentelemetry-instrumentation-openai",
}
SCOPES = {
    "openinference": "openinference.instrumentation.langchain",
    "openllmetry": "opentelemetry.instrumentation.langchain",
    "openai": "opentelemetry.instrumentation.openai.v1",
}
NAMES = {
    "openinference": "OpenInference (openinference.instrumentation.langchain)",
    "openllmetry": "OpenLLMetry (opentelemetry.instrumentation.langchain)",
}
EVERYBODY = ("openinference", "openllmetry", "openai", "langsmith")
ALL_SCORED = {name: {"scored": 5} for name in ("faithfulness", "harmless", "own")}


@pytest.fixture(scope="module", params=[*EVERYBODY, " ".join(EVERYBODY)])
def traced(request):
    """The names of the tracers, and the application's report."""
    names = request.param.split()
    return names, run(*names)


def test_no_evaluation_is_exported_by_anyone(traced):
    _, report = traced

    assert report["judge_calls"] > 0
    assert report["judge_spans"] == {}
    assert not [run for run in report["langsmith"] if "judge-model" in run or "spanscore judge" in run]


def test_each_of_them_does_trace_an_ordinary_call_of_that_model(traced):
    names, report = traced
    # OpenLLMetry's LangChain instrumentation switches its OpenAI one off inside its own runs.
    seeing = [name for name in names if name in SCOPES and not (name == "openai" and "openllmetry" in names)]

    assert report["control"] == {SCOPES[name]: 1 for name in seeing}
    assert len(report["langsmith_control"]) == ("langsmith" in names)


def test_no_evaluation_is_evaluated_and_each_run_is_one_unit(traced):
    _, report = traced

    assert report["flushed"]
    assert (report["units"], report["outcomes"]) == (report["runs"], ALL_SCORED)
    assert report["judge_calls"] == report["judge_calls_expected"]
    assert report["application_calls"] == report["runs"]
    assert [root["spanscore.score.faithfulness"] for root in report["roots"]] == [1.0] * report["runs"]


def test_what_the_neighbour_exports_is_what_it_exports_without_us(traced):
    names, report = traced

    assert report["beside"] == report["alone"]
    assert bool(report["alone"]) == bool(SCOPES.keys() & names)
    assert bool(report["langsmith"]) == ("langsmith" in names)


def test_a_second_instrumentation_is_said_once_and_stands_in_the_status(traced):
    names, report = traced
    expected = sorted(NAMES[name] for name in names if name in NAMES)

    assert sorted(report["neighbours"]) == expected
    assert sorted(line.split(" also ")[0] for line in report["said"]) == expected


def test_with_capture_off_the_neighbour_alone_traces():
    report = run("openinference", "no-capture")

    assert (report["units"], report["outcomes"]) == (0, {name: {} for name in ALL_SCORED})
    assert (report["beside"], report["roots"], report["said"]) == (report["alone"], [], [])
    assert report["judge_calls"] == report["judge_calls_expected"]
    assert report["judge_spans"] == {}


def run(*names):
    """Run the application; without the instrumentation skipped with a reason, a failure in CI."""
    for missing in [
        DISTRIBUTIONS[name] for name in names if name in DISTRIBUTIONS and not installed(DISTRIBUTIONS[name])
    ]:
        absent = pytest.fail if os.environ.get("CI") else pytest.skip
        absent(f"{missing} is not installed: pip install -e '.[dev]'")
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("OTEL_", "OPENAI_", "LANGSMITH_", "LANGCHAIN_"))}
    done = subprocess.run(
        [sys.executable, "-m", "tests.other_instrumentations.application", *names],
        cwd=Path(__file__).parents[2],
        env=clean,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def installed(distribution):
    try:
        return bool(version(distribution))
    except PackageNotFoundError:
        return False
