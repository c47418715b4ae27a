"""Files of samples: lines, JSON, CSV. An unreadable record is named by its line."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from spanscore.core.sample import Sample, SingleTurnSample
from spanscore.errors import ConfigurationError
from spanscore.stored.dataset import BadRecord, read_samples

ONE, TWO = SingleTurnSample(user_input="1?", response="a"), SingleTurnSample(user_input="2?", response="b\nb")
RECORDS = [{"question": "1?", "answer": "a"}, {"question": "2?", "answer": "b\nb"}]
LINES = "".join(json.dumps(record) + "\n" for record in RECORDS)
FILES = {
    "a.jsonl": LINES,
    "b.ndjson": LINES,
    "c.json": json.dumps(RECORDS),
    "d.json": json.dumps(RECORDS, indent=2),
    "e.json": json.dumps({"samples": RECORDS}),
    "f.json": json.dumps({"question": ["1?", "2?"], "answer": ["a", "b\nb"]}),
    "lines_called.json": LINES,
    "g.csv": 'question,answer\r\n1?,a\r\n2?,"b\nb"\r\n',
    "excel.csv": '\ufeffquestion,answer\n1?,a\n2?,"b\nb"\n',
    "semicolons.csv": 'question;answer;contexts\n1?;a;\n2?;"b\nb";\n',
    "tabs.tsv": 'question\tanswer\n1?\ta\n2?\t"b\nb"\n',
    "spaces.csv": ' Question, Answer\n1?,a\n2?,"b\nb"\n',
    "split.json": json.dumps(
        {"columns": ["question", "answer"], "index": [0, 1], "data": [["1?", "a"], ["2?", "b\nb"]]}
    ),
    "columns.json": json.dumps({"question": {"0": "1?", "1": "2?"}, "answer": {"0": "a", "1": "b\nb"}}),
    "index.json": json.dumps({"0": RECORDS[0], "1": RECORDS[1]}),
    "no_ending": "\n" + LINES,
    "no_ending_either": json.dumps(RECORDS, indent=1),
}


def written(folder: Path, name: str, text: str) -> Path:
    file = folder / name
    file.write_bytes(text.encode())
    return file


def samples(source: str | Path) -> list[Sample | BadRecord]:
    return [read.sample for read in read_samples(source)]


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_read_by_its_form(tmp_path: Path, name: str) -> None:
    assert samples(written(tmp_path, name, FILES[name])) == [ONE, TWO]


@pytest.mark.parametrize("text", [LINES, FILES["d.json"], FILES["g.csv"], f"\ufeff{LINES}", FILES["excel.csv"]])
def test_standard_input_is_read_by_its_first_character(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))

    assert samples("-") == [ONE, TWO]


def test_a_pipe_is_read_from_its_beginning() -> None:
    reading, writing = os.pipe()
    os.write(writing, LINES.encode())
    os.close(writing)

    read = [record.sample for record in read_samples(f"/dev/fd/{reading}")]
    os.close(reading)

    assert read == [ONE, TWO]


def test_utf_16_is_read_by_its_mark(tmp_path: Path) -> None:
    (tmp_path / "unicode.txt").write_bytes(FILES["tabs.tsv"].encode("utf-16"))

    assert samples(tmp_path / "unicode.txt") == [ONE, TWO]


def test_parquet_needs_pyarrow_or_is_read_by_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(tmp_path, "a.parquet", "PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(ConfigurationError, match="pip install pyarrow"):
        samples(file)

    monkeypatch.setitem(sys.modules, "pyarrow.parquet", parquet_of(RECORDS))
    assert samples(file) == [ONE, TWO]

    monkeypatch.setitem(sys.modules, "pyarrow.parquet", parquet_of(None))
    with pytest.raises(ConfigurationError, match=r"a\.parquet is not valid parquet: magic bytes not found"):
        samples(file)


def parquet_of(records: Any) -> ModuleType:
    """A stand-in for pyarrow's module, with a file of these records; None: not a Parquet file."""

    class ParquetFile:
        def __init__(self, path: Path) -> None:
            if records is None:
                raise ValueError("magic bytes\nnot found")

        def __enter__(self) -> Any:
            return self

        def __exit__(self, *_: object) -> None: ...

        def iter_batches(self) -> list[Any]:
            return [SimpleNamespace(to_pylist=lambda: records)]

    made = ModuleType("pyarrow.parquet")
    vars(made)["ParquetFile"] = ParquetFile
    return made


def test_a_bad_line_is_named_and_passed_over(tmp_path: Path) -> None:
    file = written(tmp_path, "a.jsonl", '{"question": "1?", "answer": "a"}\n\n{"question": SECRET\n[]\n{"answer": 3}\n')

    found = samples(file)

    assert found[0] == ONE
    assert [bad.line for bad in found[1:] if isinstance(bad, BadRecord)] == [3, 4, 5]
    assert "SECRET" not in str(found)


def test_a_csv_row_is_named_by_the_line_it_begins_on(tmp_path: Path) -> None:
    file = written(tmp_path, "a.csv", "question,contexts\n\"1\n?\",['C']\n2?,['C\n3?,['C']\n")

    lines = [(read.line, isinstance(read.sample, BadRecord)) for read in read_samples(file)]

    assert lines == [(2, False), (4, True), (5, False)]


def test_blank_lines_of_a_csv_are_no_rows_and_count_as_lines(tmp_path: Path) -> None:
    file = written(tmp_path, "a.csv", "\n \nquestion\n1?\n\n\n2?\n")

    assert [read.line for read in read_samples(file)] == [4, 7]
    assert len(samples(file)) == 2


WITH_IDS = {
    "a.jsonl": '{"id": "q-1", "question": "1?"}\n{"id": 7, "question": "2?"}\n{"id": {}, "question": "3?"}\n',
    "a.csv": "id,question\nq-1,1?\n7,2?\n,3?\n",
    "a.json": '{"id": ["q-1", 7, null], "question": ["1?", "2?", "3?"]}',
}


@pytest.mark.parametrize("name", WITH_IDS)
def test_a_record_keeps_its_own_id(tmp_path: Path, name: str) -> None:
    found = [read.id for read in read_samples(written(tmp_path, name, WITH_IDS[name]))]

    assert found[:3] == ["q-1", "7" if name == "a.csv" else 7, None]


def test_a_cell_may_be_long(tmp_path: Path) -> None:
    (found,) = samples(written(tmp_path, "a.csv", f"question,answer\n1?,{'x' * 200_000}\n"))

    assert isinstance(found, SingleTurnSample)
    assert len(found.response or "") == 200_000


WRONG: dict[str, tuple[str, str]] = {
    "a.csv": ("id,text\n1,x\n", "names no field of a sample"),
    "b.json": ('[{"question": ', "is not valid JSON"),
    "c.json": ('{"question": ["1?"], "answer": []}', "question 1, answer 0"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_file_that_is_none_is_refused_as_a_whole(tmp_path: Path, name: str) -> None:
    text, words = WRONG[name]

    with pytest.raises(ConfigurationError, match=words):
        samples(written(tmp_path, name, text))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"nowhere\.jsonl cannot be read: No such file"):
        samples(tmp_path / "nowhere.jsonl")


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(b"\xff\xfa\x00")

    with pytest.raises(ConfigurationError, match="is not UTF-8"):
        samples(file)


def test_an_empty_file_holds_nothing(tmp_path: Path) -> None:
    found: list[Any] = samples(written(tmp_path, "a.jsonl", "\n"))

    assert found == []
