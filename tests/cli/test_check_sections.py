"""``spanscore check`` of sections of a configuration: the effect of each, and the reasons against it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from spanscore import OnlineScorer
from spanscore.cli.main import app


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOOK", HOOK)
    for name in (
        "PHOENIX_BASE_URL",
        "LANGFUSE_BASE_URL",
        "LANGFUSE_HOST",
        "LANGFUSE_PUBLIC_KEY",
        "LANGFUSE_SECRET_KEY",
    ):
        monkeypatch.delenv(name, raising=False)


def checked(text: str, *options: str) -> Any:
    """Check a configuration."""
    Path("spanscore.yaml").write_text(text)
    return CliRunner().invoke(app("check"), ["check", "spanscore.yaml", *options], env={"COLUMNS": "300"})


def test_a_metric_that_lacks_its_library_here_keeps_none_of_the_others_from_the_plan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "rapidfuzz", None)

    metrics = "metrics: [non_llm_string_similarity, {faithfulness: {name: loyal}}]"
    result = checked(metrics, "--requests-per-day", "1000")

    assert (result.exit_code, "spanscore[text]" in result.output, "loyal" in result.output) == (0, True, True)


# --- collect: the content of the file, its place and form, and reasons against writing it ----------------------------


def check_collect(collect: str, more: str = "") -> Any:
    return checked(f"metrics: [exact_match]\ncollect: {collect}\n{more}")


CASES = "{when: [exact_match<0.5, exact_match=fail], out: cases.jsonl, max_bytes: 5MB}"


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (
            "",
            "unchanged, because there is no redactor; readable by its owner alone; with the file before (.1) up to 5 MB",
        ),
        ("redactor: tests.cli.test_collect:without_ferries", "as the redactor returns it; readable by its owner alone"),
        (
            "spool: {path: a.db, score_here: false}",
            "the process that scores the units writes the cases, not this process",
        ),
    ],
)
def test_that_content_goes_to_a_file_is_reported_and_no_file_is_made(tmp_path: Path, more: str, expected: str) -> None:
    done = check_collect(CASES, more)

    assert (done.exit_code, expected in done.stdout) == (0, True), done.output
    assert not (tmp_path / "cases.jsonl").exists()
    if "score_here" not in more:
        place = f"content is written to {tmp_path / 'cases.jsonl'}, for units with exact_match<0.5 or exact_match=fail"
        assert place in done.stdout


def test_a_file_that_others_can_read_is_announced_to_become_its_owners_alone(tmp_path: Path) -> None:
    (tmp_path / "cases.jsonl").touch()
    (tmp_path / "cases.jsonl").chmod(0o644)

    assert "(mode 0644): writing the first case restricts it to its owner (0600)" in check_collect(CASES).stdout
    assert (tmp_path / "cases.jsonl").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(
    ("collect", "code", "expected"),
    [
        (
            "{when: [exact_mach<1], out: a.jsonl}",
            2,
            "exact_mach, which is not a metric here: did you mean 'exact_match'",
        ),
        ("{when: [exact_match], out: a.jsonl}", 1, "'exact_match' is no condition; write for example"),
        ("{when: [], out: a.jsonl}", 1, "collect.when"),
        ("{when: [exact_match<1], out: .}", 2, "exists, and is not a file"),
        ("{when: [exact_match<1], out: no/a.jsonl}", 0, "there is no folder"),
        ("{when: [exact_match<1], out: a.jsonl, max_bytes: 1kB}", 2, "collect.max_bytes"),
    ],
)
def test_what_keeps_cases_from_their_file_is_reported(tmp_path: Path, collect: str, code: int, expected: str) -> None:
    done = check_collect(collect)

    said = f"{done.output} {done.exception}"
    assert (done.exit_code, expected in said) == (code, True), said  # 1: an error of the command line, with exit code 2


@pytest.mark.parametrize(
    ("redactor", "expected"),
    [
        ("tests.cli.test_collect:without_fairies", "did you mean 'without_ferries'?"),
        ("no_such_pkg:redact", "finds no module 'no_such_pkg'"),
        ("redact", "Your own is written 'my_pkg.privacy:redact'"),
        ("tests.cli.test_collect:Path.home", "has no Path.home"),
        ("{tests.config.test_arrival:Unusual: {instaed: x}}", "has no parameter 'instaed': did you mean 'instead'?"),
    ],
)
def test_a_redactor_that_is_none_is_wrong(tmp_path: Path, redactor: str, expected: str) -> None:
    done = check_collect("null", f"redactor: {redactor}")

    assert (done.exit_code, expected in done.output) == (2, True), done.output


def test_check_names_the_file_of_spans_and_whether_content_is_in_it(tmp_path: Path) -> None:
    config = tmp_path / "spanscore.yaml"
    config.write_text(f"metrics: [exact_match]\noutputs: {{spans_to: {tmp_path / 'spans.jsonl'}}}\n")
    without = CliRunner().invoke(app("check"), ["check", str(config)], env={"COLUMNS": "300"})
    config.write_text(config.read_text() + "capture: {content: true}\n")
    with_content = CliRunner().invoke(app("check"), ["check", str(config)], env={"COLUMNS": "300"})
    config.write_text("metrics: [exact_match]\noutputs: {spans_to: nowhere/spans.jsonl}\n")
    missing = CliRunner().invoke(app("check"), ["check", str(config)], env={"COLUMNS": "300"})

    assert "spans.jsonl, without content; with the file before (.1) up to 100 MB" in without.output
    assert "spans.jsonl, with prompts and answers" in with_content.output
    assert "nowhere; outputs.spans_to needs it" in missing.output


# --- spool: its effects, and obstacles to writing it ------------------------------------------------------------------


def check_spool(spool: str, more: str = "") -> Any:
    return checked(f"metrics: [exact_match]\nspool: {spool}\n{more}")


@pytest.mark.parametrize(
    ("spool", "expected"),
    [
        ("{path: a.db}", "spool: a.db, up to 1 GB and 7 d; scored in this process, or in any process that shares it"),
        (
            "{path: a.db, score_here: false, max_bytes: 5MB}",
            "spool: a.db, up to 5 MB and 7 d; scored by spanscore worker",
        ),
        ("{path: a.db, sync: normal}", "its content survives kill -9, not a power failure"),
    ],
)
def test_what_a_spool_does_is_reported_and_no_file_is_made(tmp_path: Path, spool: str, expected: str) -> None:
    result = check_spool(spool)

    assert (result.exit_code, expected in result.stdout) == (0, True), result.output
    assert not (tmp_path / "a.db").exists()


@pytest.mark.parametrize(
    ("spool", "more", "wrong"),
    [
        ("{path: a.db}", "limits: {job_queue: {memory: {capacity: 4}}}", "spool and limits.job_queue are both given"),
        (
            "{path: a.db, score_here: false}",
            "sampling: {feedback: {rate: 0.5}}",
            "sampling.feedback is not possible with",
        ),
    ],
)
def test_what_cannot_stand_beside_a_spool_is_wrong(tmp_path: Path, spool: str, more: str, wrong: str) -> None:
    result = check_spool(spool, more)

    assert result.exit_code == 2
    assert wrong in result.output


def test_a_folder_in_the_place_of_the_spool_is_refused(tmp_path: Path) -> None:
    result = check_spool(f"{{path: {tmp_path}}}")

    assert result.exit_code == 2
    assert f"spool.path: {tmp_path} exists, and is not a file" in " ".join(result.output.split())


def test_a_folder_that_is_not_here_may_be_where_the_scorer_runs(tmp_path: Path) -> None:
    result = check_spool("{path: nowhere/a.db}")

    assert result.exit_code == 0
    assert f"there is no folder {tmp_path}/nowhere; spool.path needs it" in result.output


# --- sinks that send messages: their destinations, and why they cannot send ------------------------------------------

HOOK = "https://hooks.example/services/T0/B0"
OF_UNITS = "sink webhook: messages for units with exact_match=fail, at most 5 an hour,"


def check_sinks(sinks: str, *options: str) -> Any:
    return checked(f"metrics: [exact_match]\noutputs: {{sinks: [{sinks}]}}\n", *options)


@pytest.mark.parametrize(
    ("sinks", "line"),
    [
        ("phoenix", "sink phoenix: messages go to http://localhost:6006 without content"),
        (
            '{webhook: {url: "${HOOK}", when: [exact_match=fail], per_hour: 5, content: true}}',
            f"{OF_UNITS} go to https://hooks.example with content",
        ),
        (
            '{langfuse: {url: "http://127.0.0.1:3000", public_key: pk, secret_key: "${HOOK}"}}',
            "sink langfuse: messages go to http://127.0.0.1:3000 without content",
        ),
    ],
)
def test_the_destination_of_messages_is_shown_without_its_path(sinks: str, line: str) -> None:
    done = check_sinks(sinks)

    assert (done.exit_code, line in done.stdout) == (0, True), done.output
    assert "/services" not in done.output


@pytest.mark.parametrize(
    ("sinks", "message"),
    [
        ("{webhook: {when: [exact_match<1]}}", "webhook.url: is required"),
        ("{webhook: {url: hooks, when: [exact_match<1]}}", "webhook.url: 'hooks' is no address of the web"),
        ('{webhook: {url: "${HOOK}", when: [exact<1]}}', "webhook.when names exact, which is not a metric here"),
        ('{webhook: {url: "${NO_HOOK}", when: [exact_match<1]}}', "NO_HOOK is not set in the environment"),
        ("{phoenix: {adress: x}}", "phoenix.adress: no such setting"),
        ("{phoenix: {api_key: abc}}", "phoenix.api_key: do not write a key into the file; write ${NAME}"),
    ],
)
def test_a_wrong_parameter_is_refused(sinks: str, message: str) -> None:
    done = check_sinks(sinks)

    assert (done.exit_code, message in done.output) == (2, True), done.output


def test_a_missing_key_is_not_ready_here() -> None:
    unready, ready = check_sinks("langfuse", "--ready"), check_sinks("langfuse")

    assert "langfuse has no public_key; set the variable LANGFUSE_PUBLIC_KEY" in ready.output
    assert (ready.exit_code, unready.exit_code != 0) == (0, True)


# --- units.also: the entries, and why they cannot be used -------------------------------------------------------------

ENTRY = "{kind: tool, name: search, rate: 0.5, metrics: [exact_match]}"


def check_entry(entry: str) -> Any:
    return checked(f"metrics: [exact_match]\nunits: {{also: [{entry}]}}\n")


def test_each_entry_has_a_line() -> None:
    done = check_entry(ENTRY)

    assert done.exit_code == 0
    assert (
        "units.also: each tool search below a recorded root is a unit of its own: exact_match, rate 0.5" in done.stdout
    )


def test_an_alert_counts_inner_units() -> None:
    entry = "{kind: tool, rate: 0.5, alerts: {exact_match: {baseline: 0.9, min_drop: 0.2}}}"
    lines = check_entry(entry).stdout.splitlines()

    at = next(number for number, line in enumerate(lines) if line.startswith("alert on exact_match (tool): "))
    assert "a drop of 0.2 or more below 0.9; at its rate of 0.5, a window" in lines[at]
    assert lines[at + 1] == "  before it may alert: 30 scores, 60 inner units"
    assert "spanscore baseline" not in "".join(lines[at : at + 4])


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (
            "{kind: tool, metrics: [], alerts: {exact_match: {threshold: 0.5}}}",
            "units.also has alerts on 'exact_match' for tool, but the entry's metrics lack it: none",
        ),
        (
            "{kind: tool, alerts: {exact_match: {evaluator_version: '1/none/1', threshold: 0.5}}}",
            "units.also (tool): alerts.exact_match.evaluator_version: '1/none/1' is of no configured metric",
        ),
        ("{kind: tool, metrics: [exact_mach]}", "units.also names 'exact_mach' for tool"),
    ],
)
def test_a_wrong_entry_is_an_error(entry: str, message: str) -> None:
    done = check_entry(entry)

    assert done.exit_code == 2
    assert message in done.output


# --- metrics that score whole conversations ---------------------------------------------------------------------------

REMOTE_SCORING = "remote_scoring: {endpoint: 'http://127.0.0.1:4318', token_file: /dev/null}"
TALKS = "metrics: [exact_match, {agent_goal_accuracy: {per: session}}]\n"


def check_sessions(text: str) -> tuple[int, str]:
    result = checked(text)
    return result.exit_code, " ".join(result.output.split())


@pytest.mark.parametrize(
    ("replicas", "presumes"),
    [("one", "this one process"), ("sticky", "reach the same process"), ("any", "any process may have any turn")],
)
def test_it_tells_what_is_presumed_of_replicas_wherever_a_session_metric_is(replicas: str, presumes: str) -> None:
    code, output = check_sessions(f"{TALKS}sessions: {{replicas: {replicas}}}")

    assert code == 0
    assert f"sessions.replicas: {replicas} presumes that" in output
    assert presumes in output
    assert "of sessions" in output


def test_without_a_session_metric_it_says_nothing_of_them() -> None:
    assert "sessions" not in check_sessions("metrics: [exact_match]\nsessions: {idle_timeout: 1m}")[1]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("metrics: [{exact_match: {per: session}}]", "scores no conversation"),
        (
            "metrics: [{agent_goal_accuracy: {per: turn}}]",
            "metrics.agent_goal_accuracy.per is 'turn'; allowed are unit",
        ),
        (
            "metrics: [{agent_goal_accuracy: {per: session, shadow: 'openai:m'}}]",
            "second judges are asked only about units",
        ),
        (f"{TALKS}sessions: {{replicas: many}}", "sessions.replicas"),
        (f"{TALKS}sessions: {{idle_timeout: 0}}", "sessions.idle_timeout"),
        (f"{TALKS}{REMOTE_SCORING}", "sessions.metrics cannot be combined with remote_scoring"),
    ],
)
def test_what_cannot_be_is_refused_with_its_key_by_check_and_at_the_start(
    tmp_path: Path, text: str, fault: str
) -> None:
    code, output = check_sessions(text)

    assert (code, fault in output) == (2, True), output
    with pytest.raises(Exception, match=fault[:20]):
        OnlineScorer.from_config(tmp_path / "spanscore.yaml").shutdown(0)


def test_a_file_makes_session_metrics_with_rates_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "spanscore.yaml").write_text(
        f"{TALKS}judge: {{model: lexical}}\nsampling: {{rate: 1, rates: {{agent_goal_accuracy: 0.25}}}}"
    )
    with OnlineScorer.from_config(tmp_path / "spanscore.yaml") as scorer:
        status = scorer.status()

    assert list(status.eligible) == ["exact_match", "agent_goal_accuracy"]
    assert status.rates["agent_goal_accuracy"] == (0.25, 0.25)
    assert status.sessions is not None
