"""``worker``: a configuration → a process that scores what a spool and a topic hold, until a signal ends it."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from typing import Final

from spanscore import semconv
from spanscore.config.kinds import duration
from spanscore.config.messages import refuse_problems
from spanscore.config.reading import read_settings
from spanscore.config.tree import Configuration
from spanscore.errors import ConfigurationError, SourceUnavailable
from spanscore.scorer import OnlineScorer
from spanscore.service.lifetime import Say, Signals, counted, open_pages, scores_told, spare_collections, starting
from spanscore.service.worker_plan import StreamSource, problems, spool_of
from spanscore.wiring.spool import spool_of as file_of

__all__ = ["checked", "environment_of", "wait_for_disk", "worker"]

_LOOK_AGAIN_S: Final = 0.5


def worker(config: Path, *, wait_s: float, say: Say, rekey: str = "") -> None:
    """Score until SIGTERM or SIGINT, then drain; a second one ends the process at once. The main thread.

    Args:
        config: the configuration's file.
        wait_s: how long at most it is waited for what is to be read from, at the start.
        say: tells the operator a line.
        rekey: topic to which the topic of the configuration is written, keyed by conversation; empty = it is scored.

    Raises:
        SourceUnavailable: broker or disk are not there.
        ConfigurationError: something else is wrong, before anything is read; the message says what to do.
    """
    settings = checked(config, rekey=rekey)
    if (spool := None if rekey else spool_of(settings)) is not None:
        wait_for_disk(Path(spool.path).expanduser().parent, wait_s)
    scorer = starting(config, spool=spool)
    try:
        _work(scorer, settings, rekey, wait_s, say)
    finally:
        scorer.shutdown(0.0)  # of one that was drained it does nothing


def checked(config: Path, processes: int = 1, rekey: str = "") -> Configuration:
    """Return what a configuration says for so many processes, and for a topic to which they write.

    Raises:
        ConfigurationError: something in it is wrong, or missing here.
    """
    settings = read_settings(config).settings
    refuse_problems(config, problems(settings, 1 if rekey else processes))
    if rekey and (settings.kafka is None or settings.kafka.topic == rekey):
        raise ConfigurationError(f"{config}: --rekey {rekey} needs another topic, which is read (kafka.topic)")
    return settings


def environment_of(place: int, processes: int, settings: Configuration) -> Iterator[tuple[str, str]]:
    """Yield what one process of several is told by its environment: no two can serve one page, or spend one budget.

    Args:
        place: of the process among all, from 0 on: the first has the port of the file.
        processes: how many share the work.
        settings: of the file.
    """
    page = settings.serve_metrics
    if page is not None and page.port:
        yield f"{semconv.SETTINGS_ENV_PREFIX}SERVE_METRICS", json.dumps({"port": page.port + place, "host": page.host})
    if settings.kafka is None:  # else its share is that of the partitions it has
        yield (
            f"{semconv.SETTINGS_ENV_PREFIX}JUDGE__REPLICA_SHARE",
            str(settings.judge.model_dump()["replica_share"] / processes),
        )


def wait_for_disk(
    folder: Path, wait_s: float, *, clock: Callable[[], float] = monotonic, pause: Callable[[float], None] = sleep
) -> None:
    """Return when a spool can be in a folder: a volume may be mounted later than its process starts. Blocks.

    Raises:
        SourceUnavailable: it could not be for as long as that.
    """
    until = clock() + wait_s
    while not os.access(folder, os.W_OK | os.X_OK):
        if clock() >= until:
            why = "may not be written to" if folder.is_dir() else "is not there"
            raise SourceUnavailable(f"spool.path: the folder {folder} {why}, {duration(wait_s)} after the start")
        pause(_LOOK_AGAIN_S)


def _work(scorer: OnlineScorer, settings: Configuration, rekey: str, wait_s: float, say: Say) -> None:
    sources = [*_sources(scorer, settings, rekey)]
    for source in sources:
        source.start(wait_s)
    scorer.start_workers()
    with asyncio.Runner() as runner:
        until = runner.run(_until_signal(scorer, sources, settings, say))
    scorer.shutdown(max(0.0, until - monotonic()))
    for source in sources:
        source.commit()
    for line in counted(scorer.status()):
        say(line)


async def _until_signal(
    scorer: OnlineScorer, sources: Sequence[StreamSource], settings: Configuration, say: Say
) -> float:
    """Read until a signal says otherwise; return when the drain is to be over, on the steady clock."""
    signals = Signals()
    spare_collections()
    told = [*_reading(settings, sources), *_evaluator_versions(scorer)]
    open_pages(scorer, signals, partial(_unready, scorer, sources), told)
    for line in (*told, *scores_told(scorer)):
        say(line)
    until = await signals.first(settings.worker.drain, say, nothing="nothing more is read")
    for source in sources:
        source.pause()
    return until


def _sources(scorer: OnlineScorer, settings: Configuration, rekey: str) -> Iterator[StreamSource]:
    if settings.kafka is not None:
        from spanscore.service.kafka_source import KafkaSource

        yield KafkaSource(scorer, settings, rekey)


def _unready(scorer: OnlineScorer, sources: Iterable[StreamSource]) -> str:
    """Return why not all is read here that should be; empty where it is."""
    return "; ".join(filter(None, [_spool_fault(scorer), *(source.unready() for source in sources)]))


def _spool_fault(scorer: OnlineScorer) -> str:
    """Return what keeps the spool from being used; that a damaged one was moved aside, once, does not."""
    spool = file_of(scorer._line.queue)  # what feeds a scorer is a part of it
    return "" if spool is None or spool.room(0) is None else spool.state().fault or ""


def _reading(settings: Configuration, sources: Iterable[StreamSource]) -> Iterator[str]:
    if (spool := spool_of(settings)) is not None:
        yield f"spool: {spool.path}"
    for source in sources:
        yield from source.told()


def _evaluator_versions(scorer: OnlineScorer) -> Iterator[str]:
    """Yield which scores are made here: where two workers say otherwise, they are not of one configuration."""
    evaluator_versions = scorer.status().evaluator_version
    yield f"evaluator version: {', '.join(f'{metric} {one}' for metric, one in evaluator_versions.items())}"
