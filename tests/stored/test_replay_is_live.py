"""Replay = live: the same units are taken, with the same probabilities, and their scores have the same ids and values."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.stored.live_runs import SERVICE, UNITS, LiveRuns, replayed, scored_in
from tests.stored.stores import StoreDouble, served

from spanscore.scorer import pipeline_of
from spanscore.stored.replay import Journal, replay_scorer


@contextmanager
def as_file(lines: list[str], folder: Path) -> Iterator[str]:
    file = folder / "spans.jsonl"
    file.write_text("".join(lines))
    yield str(file)


@contextmanager
def as_tempo(lines: list[str], folder: Path) -> Iterator[str]:
    with served(StoreDouble(lines)) as url:
        yield f'tempo:{url}?q={{ resource.service.name = "{SERVICE}" && true }}'


@contextmanager
def as_tempo_before_2_7(lines: list[str], folder: Path) -> Iterator[str]:
    with served(StoreDouble(lines, otlp=False)) as url:
        yield f"tempo:{url}?q={{}}"


@contextmanager
def as_jaeger(lines: list[str], folder: Path) -> Iterator[str]:
    with served(StoreDouble(lines)) as url:
        yield f"jaeger:{url}?service={SERVICE}"


STORES = {"file": as_file, "tempo": as_tempo, "tempo before 2.7": as_tempo_before_2_7, "jaeger": as_jaeger}


@pytest.mark.parametrize("store", STORES)
def test_what_was_scored_live_is_found_again_to_the_last_digit(
    store: str, config: Path, live: LiveRuns, tmp_path: Path
) -> None:
    out = tmp_path / "out"

    with STORES[store](live.lines(scores=False), tmp_path) as source:
        replay = replayed(config, source, "--out", str(out))

    assert (replay["units"], replay["unread"], replay["decisions"]["recorded"]) == (UNITS, 0, 0)
    assert scored_in(Journal.spans(out / "scores.jsonl")) == live.scored


def test_all_rules_had_their_part_in_that(live: LiveRuns) -> None:
    rules = {scored["spanscore.sampling.rule"] for scored in live.scored.values()}

    assert rules == {"base", "gold", "slow", "failed", "inside"}
    assert 0.3 * UNITS < len(live.scored) / 2 < 0.8 * UNITS


@pytest.mark.parametrize("store", STORES)
def test_what_the_store_has_scores_of_is_not_scored_again(
    store: str, config: Path, live: LiveRuns, tmp_path: Path
) -> None:
    with STORES[store](live.lines(scores=True), tmp_path) as source:
        replay = replayed(config, source, "--out", str(tmp_path / "out"))

    assert sum(replay["skipped"].values()) == len(live.scored)
    assert (replay["outcomes"], replay["judge_calls"], replay["taken"]) == ({}, 0, {})


@pytest.mark.parametrize(("emits", "names"), [(True, ["PhoenixSink"]), (False, [])])
def test_a_replay_sends_no_messages_about_past_units(tmp_path: Path, emits: bool, names: list[str]) -> None:
    webhook = "{webhook: {url: 'http://127.0.0.1:9/in', when: [exact_match<1]}}"
    config = tmp_path / "spanscore.yaml"
    config.write_text(f"metrics: [exact_match]\noutputs: {{sinks: [phoenix, {webhook}]}}\n")

    replay = replay_scorer(config, emits=emits)
    sinks = pipeline_of(replay.scorer).users_sinks
    replay.scorer.shutdown()

    assert [type(sink).__name__ for sink in sinks] == names
