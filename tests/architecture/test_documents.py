"""The documents agree with the tree: links, paths, commands, outcomes and threads."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from spanscore.core.score import Outcome

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "spanscore"
PAPERS = ["CONTRIBUTING.md", "SECURITY.md", "docs/architecture.md"]
PAGES = [str(page.relative_to(ROOT)) for page in sorted((ROOT / "docs").rglob("*.md"))]
TEXT = {name: (ROOT / name).read_text("utf-8") for name in dict.fromkeys(["README.md", *PAPERS, *PAGES])}
FAST = "python -m pytest -n 2 tests/"
PATH = re.compile(r"(?<![\w./<>*-])\.?[\w-]+(?:/[\w.<>*-]+)+/?|[\w-]+\.(?:md|py)\b")
MADE = {".venv/bin/activate"}
"""By a command in the same block."""


@pytest.mark.parametrize("name", TEXT)
def test_every_link_leads_somewhere(name: str) -> None:
    links = [link for link in re.findall(r"\]\(([^)\s]+)\)", _prose(TEXT[name])) if "://" not in link]

    assert [link for link in links if not _leads(name, link)] == []


@pytest.mark.parametrize("name", PAPERS)
def test_every_path_is_there(name: str) -> None:
    paths = {path for code in _code(name) for path in PATH.findall(code)} - MADE

    assert paths
    assert sorted(path for path in paths if not _is_there(path)) == []


def test_every_module_that_a_command_runs_is_there() -> None:
    modules = set(re.findall(r"python3? -m ([\w.]+)", TEXT["CONTRIBUTING.md"]))

    assert modules >= {"pytest", "tests.servers", "tests.metrics.test_prompts"}
    assert [module for module in modules if find_spec(module) is None] == []


def test_the_fast_subset_is_folders_with_tests_each_once() -> None:
    (command,) = [line for line in TEXT["CONTRIBUTING.md"].splitlines() if line.startswith(FAST)]
    folders = command.split()[5:]

    assert [folder for folder in folders if not [*(ROOT / folder).glob("test_*.py")]] == []
    assert len(set(folders)) == len(folders)


def test_every_outcome_has_its_moment_in_the_life_of_a_unit() -> None:
    cells = [row.split("|")[2] for row in _section("The life of a unit").splitlines() if row.startswith("| ")][1:]

    assert {outcome for cell in cells for outcome in re.findall("`(\\w+)`", cell)} == {str(one) for one in Outcome}


def test_every_name_in_the_architecture_is_in_the_source() -> None:
    words = {word for file in SRC.rglob("*.py") for word in re.findall(r"\w+", file.read_text("utf-8"))} | {"py"}
    names = set(re.findall(r"`([A-Za-z_]\w*(?:\.\w+)*)`", _prose(TEXT["docs/architecture.md"])))

    assert [name for name in sorted(names) if not words.issuperset(name.split("."))] == []


def test_every_thread_of_ours_is_listed() -> None:
    sources = "".join(file.read_text() for file in SRC.rglob("*.py") if file.parent.name != "demo")
    started = re.findall(r"(?:pool=|, |Thread\()\"(spanscore-[a-z-]+)\"", sources)

    assert set(re.findall("`(spanscore-[a-z-]+)`", _section("The threads"))) == set(started)


def _leads(name: str, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = (ROOT / name).parent / path if path else ROOT / name
    return target.exists() and (not anchor or anchor in _anchors(target))


def _anchors(target: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", _prose(target.read_text("utf-8")), flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def _code(name: str) -> list[str]:
    """Return the code in backticks and in blocks of commands."""
    blocks = re.findall(r"^```sh\n(.*?)^```", TEXT[name], flags=re.MULTILINE | re.DOTALL)
    return blocks + re.findall(r"`([^`]+)`", _prose(TEXT[name]))


def _prose(text: str) -> str:
    return re.sub(r"^ *```.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL)


def _is_there(path: str) -> bool:
    """Whether a path of the project, or of its source, exists; of a pattern whether something matches it."""
    pattern = re.sub(r"<\w+>", "*", path)
    return any([*base.glob(pattern)] for base in (ROOT, SRC))


def _section(heading: str) -> str:
    return TEXT["docs/architecture.md"].partition(f"## {heading}\n")[2].partition("\n## ")[0]
