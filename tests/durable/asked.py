"""A spool with blocking calls."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from spanscore.durable.rows import PutResult, RowKey, SpoolRow
from spanscore.durable.spool import SpoolFile


def key(number: int, kind: str = "job") -> RowKey:
    return RowKey(number, number + 1, 0, kind)


class Asked:
    """Each call returns its answer."""

    def __init__(self, path: Path, **options: Any) -> None:
        self.file = SpoolFile(path, **options)

    def put(
        self, number: int, body: bytes = b"body", *, own: bool = False, metrics: str = "", kind: str = "job"
    ) -> PutResult:
        return self.put_result(number, body, own=own, metrics=metrics, kind=kind)[0]

    def put_result(
        self, number: int, body: bytes = b"body", *, own: bool = False, metrics: str = "", kind: str = "job"
    ) -> tuple[PutResult, str | None]:
        return _result_of(
            lambda callback: self.file.put(
                key(number, kind), body, lambda *said: callback(said), own=own, metrics=metrics
            )
        )

    def take(self, most: int = 100, kind: str = "job", *, ended_only: bool = False) -> list[SpoolRow]:
        return _result_of(lambda callback: self.file.take(most, kind, callback, ended_only=ended_only))

    def taken(self, most: int = 100) -> list[int]:
        return [row.key.trace_id for row in self.take(most)]

    def begin(self, *numbers: int) -> None:
        _result_of(lambda callback: self.file.begin(map(key, numbers), lambda: callback(None)))

    def keep(self, number: int, scores: bytes = b"scores") -> bool:
        return _result_of(lambda callback: self.file.keep_scores(key(number), scores, callback))

    def done(self, *numbers: int) -> None:
        self.file.done(map(key, numbers))
        self.begin()  # operations are done in their order

    def mark_sent(self, *numbers: int) -> None:
        self.file.mark_sent(map(key, numbers))
        self.begin()

    def give_back(self, *numbers: int) -> None:
        self.file.give_back(map(key, numbers))
        self.begin()


def _result_of(ask: Callable[[Callable[[Any], None]], None]) -> Any:
    answer: Future[Any] = Future()
    ask(answer.set_result)
    return answer.result(60)
