"""A file of cases: its owner's alone, whole lines, never larger than it may be, whoever else writes to it."""

from __future__ import annotations

import errno
import logging
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from spanscore.core.files import LineFile

MANY = 1_000_000


def line(number: int, size: int = 100) -> bytes:
    return f"{number:06d} ".encode().ljust(size - 1, b".") + b"\n"


def numbers(*files: Path) -> list[int]:
    """The numbers of all lines; each must be whole."""
    found = [one for file in files if file.exists() for one in file.read_bytes().splitlines(keepends=True)]
    assert [one for one in found if one != line(int(one[:6]), len(one))] == []
    return [int(one[:6]) for one in found]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cases.jsonl"


def mode(file: Path) -> int:
    return stat.S_IMODE(file.stat().st_mode)


def test_a_file_is_made_for_its_owner_alone_whatever_the_umask(path: Path) -> None:
    before = os.umask(0)
    try:
        LineFile(path, MANY).append(line(1))
    finally:
        os.umask(before)

    assert mode(path) == 0o600


def test_a_file_that_others_can_read_is_made_its_owners_alone_and_that_is_said(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path.write_bytes(line(1))
    path.chmod(0o644)

    with caplog.at_level(logging.WARNING, "spanscore"):
        LineFile(path, MANY).append(line(2))

    assert (mode(path), numbers(path)) == (0o600, [1, 2])
    assert "was readable by others" in caplog.text


def test_both_files_together_are_never_larger_than_they_may_be(path: Path) -> None:
    file, older = LineFile(path, 1_000), path.with_name("cases.jsonl.1")

    for number in range(50):
        file.append(line(number))
        assert sum(one.stat().st_size for one in (path, older) if one.exists()) <= 1_000

    left = numbers(older, path)
    assert left == [*range(left[0], 50)]
    assert len(left) >= 5
    assert sorted(one.name for one in path.parent.iterdir()) == ["cases.jsonl", "cases.jsonl.1"]
    assert mode(older) == 0o600


def test_a_line_goes_to_another_file_where_the_first_was_moved_away(path: Path) -> None:
    file = LineFile(path, MANY)
    first = file.append(line(1))
    path.rename(path.with_name("mine.jsonl"))

    second, third = file.append(line(2)), file.append(line(3))

    assert first.file != second.file == third.file
    assert [one.is_first for one in (first, second, third)] == [True, True, False]
    assert numbers(path) == [2, 3]


def test_half_a_line_that_somebody_left_spoils_no_other(path: Path) -> None:
    path.write_bytes(line(1) + b'{"half":')

    LineFile(path, MANY).append(line(2))

    assert path.read_bytes() == line(1) + b'{"half":\n' + line(2)


def test_a_durable_file_removes_half_a_line_and_keeps_a_whole_one_without_its_line_break(path: Path) -> None:
    path.write_bytes(b'{"one": 1}\n{"half":')
    file = LineFile(path, None, durable=True)

    file.remove_unfinished_line()
    assert path.read_bytes() == b'{"one": 1}\n'
    path.write_bytes(b'{"one": 1}')
    file.append(b'{"two": 2}\n')
    assert path.read_bytes() == b'{"one": 1}\n{"two": 2}\n'
    path.write_bytes(path.read_bytes() + b'{"half":')
    file.append(b'{"three": 3}\n')

    assert path.read_bytes() == b'{"one": 1}\n{"two": 2}\n{"three": 3}\n'


def test_a_file_without_a_maximum_is_never_rotated(path: Path) -> None:
    file = LineFile(path, None)

    for number in range(200):
        file.append(line(number))

    assert numbers(path) == [*range(200)]
    assert [*path.parent.iterdir()] == [path]


FULL = """
import resource, sys
from pathlib import Path
from spanscore.core.files import LineFile
file = LineFile(Path(sys.argv[1]), 1_000_000)
resource.setrlimit(resource.RLIMIT_FSIZE, (250, resource.RLIM_INFINITY))
for number in range(5):
    try:
        file.append(f"{number:06d} ".encode().ljust(99, b".") + b"\\n")
    except OSError as error:
        print(type(error).__name__)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
file.append(b"000009 ".ljust(99, b".") + b"\\n")
"""


def test_of_a_line_that_does_not_fit_nothing_stays(path: Path) -> None:
    """Half of the third line would fit: if a disk or a quota is full, a write writes a part."""
    completed = subprocess.run([sys.executable, "-c", FULL, str(path)], capture_output=True, text=True, check=True)

    assert completed.stdout.split() == ["OSError"] * 3
    assert numbers(path) == [0, 1, 9]


def test_what_is_no_file_of_ours_is_refused_and_nobody_waits_for_it(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "theirs").write_bytes(b"")
    (tmp_path / "link").symlink_to(tmp_path / "theirs")

    refused = []
    for name in ("folder", "pipe", "link", "missing/file"):
        with pytest.raises(OSError) as error:  # noqa: PT011 (the class is specific, and the text is the system's)
            LineFile(tmp_path / name, MANY).append(line(1))
        refused.append(error.value.errno)

    assert refused == [errno.EISDIR, errno.EINVAL, errno.ELOOP, errno.ENOENT]
    assert (tmp_path / "theirs").read_bytes() == b""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_another_users_file_is_refused(path: Path) -> None:
    path.touch()
    os.chown(path, 12345, 12345)

    with pytest.raises(PermissionError, match="another user"):
        LineFile(path, MANY).append(line(1))


WRITES = """
import sys
from pathlib import Path
from spanscore.core.files import LineFile
file = LineFile(Path(sys.argv[1]), int(sys.argv[2]))
first = int(sys.argv[3])
for number in range(first, first + 300):
    file.append(f"{number:06d} ".encode().ljust(99, b".") + b"\\n")
"""


@pytest.mark.parametrize("most", [MANY, 20_000])
def test_processes_share_a_file_and_no_line_of_theirs_is_torn_or_lost(path: Path, most: int) -> None:
    begun = [
        subprocess.Popen([sys.executable, "-c", WRITES, str(path), str(most), str(first)])
        for first in (0, 1_000, 2_000, 3_000)
    ]
    assert [one.wait(60) for one in begun] == [0] * 4

    older = path.with_name("cases.jsonl.1")
    left = numbers(older, path)
    assert len(set(left)) == len(left)
    assert sum(one.stat().st_size for one in (path, older) if one.exists()) <= most
    if most == MANY:
        assert len(left) == 1_200
    else:
        assert len(left) > 100  # the file before was whole when it was put aside


def test_a_child_that_was_forked_during_a_write_does_not_keep_the_lock(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, (read, write), children = LineFile(path, MANY), os.pipe(), list[int]()

    def fork_and_write(descriptor: int, content: bytes) -> int:
        if (child := os.fork()) == 0:
            os.close(write)
            os.read(read, 1)  # until the parent has ended
            os._exit(0)
        children.append(child)
        return write_bytes(descriptor, content)

    with monkeypatch.context() as patch:
        write_bytes = os.write
        patch.setattr(os, "write", fork_and_write)
        file.append(line(2))
    appended = threading.Thread(target=file.append, args=(line(1),))
    appended.start()
    appended.join(30)
    os.close(write)
    assert [os.waitpid(child, 0)[1] for child in children] == [0]
    os.close(read)

    assert numbers(path) == [2, 1]
