"""Batch file: the open batches of a run on disk, so that a later run can continue with them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spanscore.core.files import ProcessLock
from spanscore.errors import ConfigurationError, writing


@dataclass(slots=True)
class SentBatch:
    """A batch that is being sent or was sent.

    Attributes:
        account: provider, address and model of the judge, without a key.
        questions: ids of its questions.
        id: the provider's id; empty until the provider has returned it.
    """

    account: str
    questions: Sequence[str]
    id: str = ""


class BatchFile:
    """A JSONL file with one line per event: before a batch is sent, when the provider returns its id, and when it ends.

    Use it from one thread. The file has hashes of questions, and neither questions nor answers. Answers can be fetched from the
    provider for at least 29 days.

    Args:
        path: path of the file; created if it is missing, readable by its owner alone, locked against other processes.

    Attributes:
        batches: number → batch, for all batches that have not ended.

    Raises:
        ConfigurationError: the file cannot be written, another run has it open, or it is not a batch file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = ProcessLock(path)
        with writing(path):
            if not self._lock.take():
                raise ConfigurationError(f"another run has {path} open: wait for it, or end it with Ctrl-C")
            path.touch(0o600)
            path.chmod(0o600)  # the file may have existed, readable by other users
            self.batches = read_batches(path)
            os.truncate(path, path.read_bytes().rfind(b"\n") + 1)  # a line that a killed process has not finished
        self._next = max(self.batches, default=0) + 1

    def add(self, batch: SentBatch) -> int:
        """Write the line of a batch before it is sent; return its number."""
        number, self._next = self._next, self._next + 1
        self.batches[number] = batch
        self._append_line({"batch": number, "account": batch.account, "questions": batch.questions})
        return number

    def name(self, number: int, batch_id: str) -> None:
        """Write the provider's id of a batch."""
        self.batches[number].id = batch_id
        self._append_line({"batch": number, "id": batch_id})

    def end(self, number: int) -> None:
        """Remove a batch that has ended."""
        del self.batches[number]
        self._append_line({"batch": number, "over": True})

    def close(self) -> None:
        """Unlock the file; without a batch it is removed."""
        if not self.batches:
            self.path.unlink(missing_ok=True)
        self._lock.release()

    def _append_line(self, line: dict[str, Any]) -> None:
        with writing(self.path), self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def read_batches(path: Path) -> dict[int, SentBatch]:
    """Return number → batch, for the batches of a file that have not ended; empty without a file.

    Raises:
        ConfigurationError: the file cannot be read, or is not a batch file.
    """
    batches: dict[int, SentBatch] = {}
    try:
        for line in _read_lines(path):
            number = line["batch"]
            if "questions" in line:
                batches[number] = SentBatch(line["account"], line["questions"])
            elif "id" in line:
                batches[number].id = line["id"]
            else:
                del batches[number]
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigurationError(f"{path} is no file of a run with --batch: name another --out, or move it") from error
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror or error}") from error
    return batches


def _read_lines(path: Path) -> Iterator[Any]:
    """Yield the lines, without a last line that a killed process has not finished."""
    with suppress(FileNotFoundError), path.open(encoding="utf-8") as file:
        yield from (json.loads(line) for line in file if line.endswith("\n"))
