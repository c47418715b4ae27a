"""The file of a run's batches: the state that another run needs, one line at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from spanscore.errors import ConfigurationError
from spanscore.judges.batches.run import BatchFile, SentBatch, read_batches


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "scores.jsonl.batches"


def test_open_batches_are_read_back_with_their_numbers(path: Path) -> None:
    file = BatchFile(path)
    first, second = (file.add(SentBatch("openai", [question])) for question in "ab")
    file.name(second, "batch_7")
    file.end(first)
    file.close()

    assert read_batches(path) == {2: SentBatch("openai", ["b"], "batch_7")}


def test_a_file_without_open_batches_is_removed(path: Path) -> None:
    file = BatchFile(path)
    file.end(file.add(SentBatch("openai", ["a"])))

    file.close()

    assert not path.exists()


def test_a_line_that_a_killed_process_has_not_finished_is_cut_off(path: Path) -> None:
    first = BatchFile(path)
    first.add(SentBatch("openai", ["a"]))
    first.close()
    with path.open("a") as file:
        file.write('{"batch": 1, "id": "ba')

    second = BatchFile(path)
    second.name(1, "batch_7")
    second.close()

    assert read_batches(path) == {1: SentBatch("openai", ["a"], "batch_7")}


def test_two_runs_do_not_share_a_file(path: Path) -> None:
    first = BatchFile(path)

    with pytest.raises(ConfigurationError, match=r"another run has .* open: wait for it"):
        BatchFile(path)

    first.close()
    BatchFile(path).close()


def test_another_file_is_refused_and_stays(path: Path) -> None:
    path.write_text("my notes\n")

    with pytest.raises(ConfigurationError, match="is no file of a run with --batch"):
        BatchFile(path)

    assert path.read_text() == "my notes\n"


def test_only_its_owner_reads_it(path: Path) -> None:
    file = BatchFile(path)

    assert path.stat().st_mode & 0o777 == 0o600
    file.close()
