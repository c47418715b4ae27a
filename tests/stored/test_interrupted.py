"""A replay that ends early: its results stay, and the next one continues from there."""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.servers.openai_api import OpenAIServer, judged
from tests.servers.server import poll
from tests.stored.live_runs import SERVICE, LiveRuns, asking, replayed, scored_in
from tests.stored.stores import StoreDouble, served
from typer.testing import CliRunner

from spanscore import ConfigurationError, semconv
from spanscore.cli import _stored_traces as _replay_run
from spanscore.cli.main import app
from spanscore.core.codecs.otlp import json_line
from spanscore.stored import trace_stores
from spanscore.stored.replay import Journal
from spanscore.stored.traces import OtlpFiles, StoredTrace, Unread

INTERRUPTED = 130


@pytest.fixture
def unscored(few: LiveRuns, tmp_path: Path) -> str:
    file = tmp_path / "unscored.jsonl"
    file.write_text("".join(few.lines(scores=False)))
    return str(file)


class Impatient(OtlpFiles):
    """Ctrl-C after 32 of 40 traces: scored units are exported last."""

    def is_time(self) -> bool:
        return True

    def traces(self) -> Iterator[StoredTrace | Unread]:
        for number, trace in enumerate(super().traces()):
            if number == 32:
                poll(self.is_time, deadline_s=60, what="the time to press Ctrl-C")
                raise KeyboardInterrupt
            yield trace


def _different(lines: list[str]) -> Iterator[str]:
    """Yield lines with another text in each trace: equal questions are asked once anyway."""
    numbers: dict[str, int] = {}
    for line in lines:
        (trace_id,) = {match[1] for match in re.finditer(r'"traceId":"(\w+)"', line)}
        yield line.replace("France", f"France{numbers.setdefault(trace_id, len(numbers))}")


def evaluations(file: Path) -> list[Any]:
    return [span for span in Journal.spans(file) if span.scope == semconv.SCOPE]


def test_ctrl_c_keeps_what_there_is_and_the_next_run_pays_for_nothing_twice(
    config: Path, unscored: str, few: LiveRuns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "out" / "scores.jsonl"
    with monkeypatch.context() as patched:
        patched.setattr(trace_stores, "store_of", lambda source, **_: Impatient(Path(source)))
        done = CliRunner().invoke(app("replay"), ["replay", str(config), unscored, "--out", str(file.parent), "--json"])
    first = len(evaluations(file))

    replay = replayed(config, unscored, "--resume", str(file))

    assert (done.exit_code, json.loads(done.stdout)["interrupted"]) == (INTERRUPTED, True)
    assert f"To continue: --resume {file}" in " ".join(done.stderr.split())
    assert first > 0
    assert (sum(replay["skipped"].values()), sum(replay["taken"].values())) == (first, len(few.scored) - first)
    assert Counter(span.span_id for span in evaluations(file)).most_common(1)[0][1] == 1
    assert scored_in(Journal.spans(file)) == few.scored


def test_answers_that_were_paid_for_are_not_asked_for_again(
    few: LiveRuns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The judge hangs after ten answers; its answers on unfinished units are kept."""
    source, file = tmp_path / "different.jsonl", tmp_path / "out" / "scores.jsonl"
    source.write_text("".join(_different(few.lines(scores=False))))
    go_on, answered = threading.Event(), list[Any]()

    def hesitating(request: Any) -> Any:
        if len(answered) >= 10 and not go_on.wait(30):
            return 500, {}
        answered.append(json.dumps(request["messages"]))
        return judged(request)

    with OpenAIServer(hesitating) as server:
        config = asking(tmp_path, server.url, monkeypatch)
        with monkeypatch.context() as patched:
            patched.setattr(trace_stores, "store_of", lambda source, **_: Impatient(Path(source)))
            patched.setattr(_replay_run, "END_S", 0.5)
            patched.setattr(Impatient, "is_time", lambda _: len(answered) >= 10)
            CliRunner().invoke(app("replay"), ["replay", str(config), str(source), "--out", str(file.parent)])
        kept = file.with_name("scores.jsonl.answers")
        mode = kept.stat().st_mode & 0o777
        first, _ = answered[:10], go_on.set()
        replay = replayed(config, str(source), "--resume", str(file))

    assert (mode, kept.exists()) == (0o600, False)
    assert len(first) == 10
    assert not {*first} & {*answered[10:]}
    assert sum(replay["taken"].values()) > 0


def test_a_line_that_a_killed_process_left_half_written_is_scored_again(
    config: Path, unscored: str, few: LiveRuns, tmp_path: Path
) -> None:
    file = tmp_path / "out" / "scores.jsonl"
    replayed(config, unscored, "--out", str(file.parent))
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) * 2 // 3])

    replayed(config, unscored, "--resume", str(file))

    assert scored_in(Journal.spans(file)) == few.scored


FAULTS: dict[str, list[Any]] = {
    "answers 500": [500, 500, 500],
    "is gone": [404],
    "sends half": ["half"] * 3,
    "is overloaded": [(429, 0)] * 3,
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_trace_that_the_store_does_not_give_is_named_and_scored_by_the_next_run(
    fault: str, config: Path, few: LiveRuns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spanscore.stored.trace_stores.WAIT_S", 0.0)
    lost = f"{next(iter(few.scored))[0]:032x}"
    lines = few.lines(scores=False)
    whole = next(number for number, line in enumerate(lines, 1) if number >= 20 and '"parentSpanId"' not in line)
    store = StoreDouble([line for line in lines if lost in line] + lines[:whole])
    file = tmp_path / "out" / "scores.jsonl"
    with served(store) as url:
        source = f"jaeger:{url}?service={SERVICE}"
        store.faults[f"/api/v3/traces/{lost}"] = [*FAULTS[fault]]
        first = replayed(config, source, "--out", str(file.parent))
        second = replayed(config, source, "--resume", str(file))

    assert [one["name"] for one in first["unread_first"]] == [f"trace {lost}"]
    assert (first["traces"], second["traces"]) == (len(store.traces) - 1, len(store.traces))
    assert second["unread"] == 0
    assert {f"{key[0]:032x}" for key in scored_in(Journal.spans(file))} <= store.traces.keys()
    assert sum(second["taken"].values()) == sum(key[0] == int(lost, 16) for key in few.scored)


def test_a_file_that_is_none_of_ours_is_refused(config: Path, unscored: str, tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("my notes\n")

    done = CliRunner().invoke(app("replay"), ["replay", str(config), unscored, "--resume", str(file)])

    assert str(done.exception).startswith(f"{file}: line 1 is not an OTLP trace request")
    assert file.read_text() == "my notes\n"


def test_a_file_to_go_on_with_that_is_not_there_is_reported_before_anything_is_scored_anew(
    config: Path, unscored: str, tmp_path: Path
) -> None:
    file = tmp_path / "mistyped.jsonl"
    command = ["replay", str(config), unscored, "--limit", "1", "--resume", str(file)]

    first = CliRunner().invoke(app("replay"), command, catch_exceptions=False)
    second = CliRunner().invoke(app("replay"), command, catch_exceptions=False)

    assert f"--resume {file} does not exist: starting from the beginning" in first.stderr
    assert "starting from the beginning" not in second.stderr


def test_what_is_read_back_is_what_was_written(tmp_path: Path) -> None:
    file = tmp_path / "scores.jsonl"
    file.write_text(json_line([]) + '{"resourceSpans":[')

    Journal(file).close()

    assert file.read_text() == json_line([])


def test_what_is_no_half_line_of_ours_is_never_cut_off(config: Path, unscored: str, tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("my notes, without an end of line")

    done = CliRunner().invoke(app("replay"), ["replay", str(config), unscored, "--resume", str(file)])

    assert "is not a file of a replay" in str(done.exception)
    assert file.read_text() == "my notes, without an end of line"


def test_a_last_line_that_lacks_only_its_end_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "scores.jsonl"
    file.write_text(json_line([]) + json_line([]).rstrip("\n"))

    Journal(file).close()

    assert file.read_text() == json_line([]) * 2


def test_a_file_that_is_gone_on_with_is_its_owners_alone_from_then_on(tmp_path: Path) -> None:
    file = tmp_path / "scores.jsonl"
    file.touch(0o644)

    Journal(file).close()

    assert file.stat().st_mode & 0o777 == 0o600


def test_a_refused_file_is_free_for_the_next_replay(tmp_path: Path) -> None:
    file = tmp_path / "scores.jsonl"
    file.write_text("my notes, without an end of line")

    for _ in range(2):
        with pytest.raises(ConfigurationError, match="is not a file of a replay"):
            Journal(file)


def test_two_replays_do_not_write_one_file(tmp_path: Path) -> None:
    file = tmp_path / "scores.jsonl"
    first = Journal(file)

    with pytest.raises(ConfigurationError, match="another replay"):
        Journal(file)

    first.close()
    Journal(file).close()
