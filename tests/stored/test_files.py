"""Files: traces that are spread over them are complete, in bounded memory; unreadable parts are named and skipped."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest
from tests.core.codecs.requests import make_span, sent

from spanscore import ConfigurationError
from spanscore.core.codecs.otlp import request_line
from spanscore.stored import traces as gathering
from spanscore.stored.traces import OtlpFiles, StoredTrace, Unread

TRACES, SPANS = 40, 5


def lines_of(traces: int, spans: int) -> list[str]:
    """Return a line per span, in an order that mixes all traces."""
    lines = [
        request_line(
            sent(make_span(trace_id=bytes([trace + 1] * 16), span_id=bytes([span + 1] * 8)).SerializeToString())
        )
        for span in range(spans)
        for trace in range(traces)
    ]
    Random(7).shuffle(lines)
    return lines


def sizes(found: Sequence[StoredTrace | Unread]) -> dict[int, int]:
    """Return trace → its spans."""
    return {one.trace_id[0]: len(one.spans) for one in found if isinstance(one, StoredTrace)}


WHOLE = {trace + 1: SPANS for trace in range(TRACES)}


def test_a_trace_that_is_spread_over_rotated_files_is_whole(tmp_path: Path) -> None:
    lines = lines_of(TRACES, SPANS)
    (tmp_path / "traces-2026-07-01T00-00-00.000.jsonl").write_text("".join(lines[:90]))
    (tmp_path / "traces.json").write_text("".join(lines[90:150]))
    with gzip.open(tmp_path / "traces-2026-07-02T00-00-00.000.jsonl.gz", "wt") as file:
        file.writelines(lines[150:])
    (tmp_path / "notes.txt").write_text("not one of them")

    found = list(OtlpFiles(tmp_path).traces())

    assert sizes(found) == WHOLE
    assert len(found) == TRACES


def test_what_is_too_much_for_the_memory_waits_on_the_disk_for_its_owner_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, folder = tmp_path / "spans.jsonl", tmp_path / "temporary"
    folder.mkdir()
    file.write_text("".join(lines_of(TRACES, SPANS)))
    monkeypatch.setattr(gathering, "TemporaryDirectory", lambda prefix: _Within(folder))

    reading = OtlpFiles(file, most_bytes=10_000).traces()
    found = [next(reading)]
    held = len([*folder.iterdir()])
    found += reading

    assert sizes(found) == WHOLE
    assert held > 1
    assert not folder.exists()


def test_the_disk_is_cleaned_when_the_reader_gives_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, folder = tmp_path / "spans.jsonl", tmp_path / "temporary"
    folder.mkdir()
    file.write_text("".join(lines_of(TRACES, SPANS)))
    monkeypatch.setattr(gathering, "TemporaryDirectory", lambda prefix: _Within(folder))
    reading = OtlpFiles(file, most_bytes=10_000).traces()
    next(reading)

    reading.close()  # type: ignore[attr-defined]  # a generator

    assert not folder.exists()


def test_a_line_that_is_no_request_is_named_and_quotes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "spans.jsonl"
    file.write_text("".join(["not secret json\n", *lines_of(2, 1), '{"resourceSpans": [{"sec']))

    found = list(OtlpFiles(file).traces())

    assert sizes(found) == {1: 1, 2: 1}
    unread = [one for one in found if isinstance(one, Unread)]
    assert [one.name for one in unread] == ["spans.jsonl line 1", "spans.jsonl line 4"]
    assert "sec" not in str([one.because for one in unread])


def test_half_a_compressed_file_gives_what_it_has(tmp_path: Path) -> None:
    file = tmp_path / "spans.jsonl.gz"
    whole = gzip.compress("".join(lines_of(TRACES, SPANS)).encode(), 1)
    file.write_bytes(whole[: len(whole) // 2])

    found = list(OtlpFiles(file).traces())

    assert 0 < len(sizes(found)) <= TRACES
    (unread,) = (one for one in found if isinstance(one, Unread))
    assert unread.because == "the compressed file is damaged or incomplete"


@pytest.mark.parametrize("name", ["missing.jsonl", "."])
def test_a_source_that_is_not_there_is_reported(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"is not a file or folder|holds no file"):
        OtlpFiles(tmp_path / name)


class _Within:
    """A temporary folder that a test can look into."""

    def __init__(self, folder: Path) -> None:
        self.name, self._folder = str(folder), folder

    def cleanup(self) -> None:
        for file in self._folder.iterdir():
            file.unlink()
        self._folder.rmdir()
