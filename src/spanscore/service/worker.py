"""Runs ``worker``: scores the units of a spool and a topic by a configuration, and drains after a signal."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final

from spanscore import semconv
from spanscore.config.messages import refuse_problems
from spanscore.config.reading import read_settings
from spanscore.config.tree import Configuration
from spanscore.core.printable import format_duration
from spanscore.errors import ConfigurationError, SourceUnavailable
from spanscore.scorer import OnlineScorer, pipeline_of
from spanscore.service.lifetime import (
    PrintLine,
    Signals,
    describe_endpoints,
    describe_outcomes,
    open_pages,
    spare_collections,
    start_scorer,
)
from spanscore.service.worker_plan import problems, spool_of
from spanscore.wiring.durable import spool_of as spool_file_of

if TYPE_CHECKING:
    from spanscore.service.kafka_source import KafkaSource

_LOOK_AGAIN_S: Final = 0.5


def worker(config: Path, *, wait_s: float, print_line: PrintLine, rekey: str = "") -> None:
    """Score until SIGTERM or SIGINT, then drain; a second signal ends the process immediately. Call on the main thread.

    Args:
        config: the configuration file.
        wait_s: longest wait at the start for the broker or the disk, in s.
        print_line: prints a line for the operator.
        rekey: topic to which the configured topic is copied, keyed by conversation; empty = the topic is scored.

    Raises:
        SourceUnavailable: the broker or the disk is not available.
        ConfigurationError: something else is wrong, before any unit is read; the message has the remedy.
    """
    settings = checked(config, rekey=rekey)
    if (spool := None if rekey else spool_of(settings)) is not None:
        wait_for_disk(Path(spool.path).expanduser().parent, wait_s)
    scorer = start_scorer(config, spool=spool)
    try:
        _work(scorer, settings, rekey, wait_s, print_line)
    finally:
        scorer.shutdown(0.0)  # has no effect after a drain


def checked(config: Path, processes: int = 1, rekey: str = "") -> Configuration:
    """Return the configuration of a file, after its check for this number of processes and for ``rekey`` as in ``worker``.

    Raises:
        ConfigurationError: the configuration is invalid, or a part of this environment is missing.
    """
    settings = read_settings(config).settings
    refuse_problems(config, problems(settings, 1 if rekey else processes))
    if rekey and (settings.kafka is None or settings.kafka.topic == rekey):
        raise ConfigurationError(f"{config}: --rekey {rekey} needs another topic, which is read (kafka.topic)")
    return settings


def environment_of(place: int, processes: int, settings: Configuration) -> Iterator[tuple[str, str]]:
    """Yield the environment variables of one of several processes: the port of its metrics page, and its share of the budgets.

    ``place`` is the number of the process, from 0 on; process 0 has the port of the file.
    """
    page = settings.serve_metrics
    if page is not None and page.port:
        yield f"{semconv.SETTINGS_ENV_PREFIX}SERVE_METRICS", json.dumps({"port": page.port + place, "host": page.host})
    if settings.kafka is None:  # with Kafka, the share follows from the partitions that a process has
        yield (
            f"{semconv.SETTINGS_ENV_PREFIX}JUDGE__REPLICA_SHARE",
            str(settings.judge.model_dump()["replica_share"] / processes),
        )


def wait_for_disk(
    folder: Path, wait_s: float, *, clock: Callable[[], float] = monotonic, pause: Callable[[float], None] = sleep
) -> None:
    """Wait until a folder can be written, because a volume may be mounted after the start of its process. Blocks.

    Raises:
        SourceUnavailable: the folder could not be written within ``wait_s``.
    """
    until = clock() + wait_s
    while not os.access(folder, os.W_OK | os.X_OK):
        if clock() >= until:
            why = "may not be written to" if folder.is_dir() else "is not there"
            raise SourceUnavailable(f"spool.path: the folder {folder} {why}, {format_duration(wait_s)} after the start")
        pause(_LOOK_AGAIN_S)


def _work(scorer: OnlineScorer, settings: Configuration, rekey: str, wait_s: float, print_line: PrintLine) -> None:
    source = None
    if settings.kafka is not None:
        from spanscore.service.kafka_source import KafkaSource

        source = KafkaSource(scorer, settings, rekey)
        source.start(wait_s)
    scorer.start_workers()
    with asyncio.Runner() as runner:
        until = runner.run(_read_until_signal(scorer, source, settings, print_line))
    scorer.shutdown(max(0.0, until - monotonic()))
    if source is not None:
        source.commit()
    for line in describe_outcomes(scorer.status()):
        print_line(line)


async def _read_until_signal(
    scorer: OnlineScorer, source: KafkaSource | None, settings: Configuration, print_line: PrintLine
) -> float:
    """Read until a signal requests a drain; return the end of the drain, on the steady clock."""

    def unready() -> str:
        """Return why a source is not read; empty if all are read. A damaged spool file that was replaced is no reason."""
        spool = spool_file_of(pipeline_of(scorer).queue)
        spool_fault = None if spool is None or spool.room(0) is None else spool.state().fault
        return "; ".join(filter(None, [spool_fault, "" if source is None else source.unready()]))

    signals = Signals()
    signals.reload_on_hangup(scorer, print_line)
    spare_collections()
    lines = [] if (spool := spool_of(settings)) is None else [f"spool: {spool.path}"]
    lines += [] if source is None else source.describe_topic()
    versions = scorer.status().evaluator_version  # workers of one configuration have equal versions
    lines += [f"evaluator version: {', '.join(f'{metric} {version}' for metric, version in versions.items())}"]
    open_pages(scorer, signals, unready, lines)
    for line in (*lines, *describe_endpoints(scorer)):
        print_line(line)
    until = await signals.wait_for_drain(settings.worker.drain, print_line, stopped="nothing more is read")
    if source is not None:
        source.pause()
    return until
