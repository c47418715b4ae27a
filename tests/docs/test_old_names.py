"""Old names in the changelog's table are used nowhere, except in configuration errors."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
_MAY_NAME_THEM = (
    "CHANGELOG.md",
    "src/spanscore/config/messages.py",
    "tests/docs/test_old_names.py",
    "tests/config/test_ready_forms.py",
)
_ONE_WORD = re.compile(r"[A-Za-z][a-z]+")
"""A key, an argument or a class of one word, which is a word of English, too."""


def _old_names() -> set[str]:
    """Return the identifiers in the first column of the table, except plain words."""
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    table = text.partition("### Renamed\n")[2].partition("\n### ")[0]
    cells = [row.split(" | ")[0] for row in table.splitlines() if row.startswith("| ") and "before" not in row]
    quoted = [name for cell in cells for name in re.findall("`([^`]+)`", cell)]
    plain = (re.sub(r"<\w+>$|\(\)$", "", name).removesuffix(".") for name in quoted)
    return {name for name in plain if re.fullmatch(r"[\w.:]+|--[\w-]+", name) and not _ONE_WORD.fullmatch(name)}


def test_no_old_name_is_left() -> None:
    named = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    names = {name for name in _old_names() if name not in _STILL}
    assert len(names) > 60
    whole = {name: re.compile(rf"(?<![\w.:-]){re.escape(name)}(?![\w-]|\.\w)") for name in sorted(names)}
    left = []
    for name in named.split("\0"):
        file = ROOT / name
        if name and name not in _MAY_NAME_THEM and file.suffix not in (".png", ".gz", ".svg") and file.is_file():
            text = file.read_text("utf-8", "replace")
            left += [f"{name}: {old}" for old, pattern in whole.items() if old in text and pattern.search(text)]

    assert left == []


_STILL = {".weight2", "too_late", "spanscore.judge.tokens", "gen_ai.token.type", "limits.queue"}
"""A suffix; a result of ``spanscore.feedback``; an instrument with a changed attribute, and its name on others; a setting of a
server.
"""
