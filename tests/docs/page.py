"""The code blocks of a page, run in the order in which a reader meets them, in a folder and a namespace of their own.

- ``python`` runs, top-level ``await`` too. Given are ``chain``, ``question`` and ``llm``; an OpenAI server on loopback answers.
- ``yaml`` with keys of a configuration makes a scorer: with ``metrics:`` as written, without it with an added metric. Other
  files are parsed, and have their kind in a comment on the first line (``# kubernetes``).
- ``json`` is parsed. ``sh``: each spanscore command is parsed with its options, each named extra and module must exist, and
  ``check``, ``init`` and ``rules`` run if the named file exists.
- A first line that is a file name in a comment (``# spanscore.yaml``, ``# my_metrics.py``) makes the block that file, too.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import re
import shlex
import tomllib
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import typer
import yaml
from typer.testing import CliRunner

from spanscore import OnlineScorer
from spanscore.cli.main import app, command_names
from spanscore.config.tree import Configuration

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", *sorted(str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^( *)```([\w-]*)[^\n]*\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# ([\w./-]+\.(?:py|ya?ml))\b")
RUN = {"check", "init", "rules"}
STAND_IN = {"metrics": ["faithfulness"]}
PORT = "9464"
"""The port of the metrics on the pages. The tests use any free port."""


def blocks(page: str) -> Iterator[tuple[str, str]]:
    """Return (language, text) of each block."""
    for indent, language, text in BLOCK.findall((ROOT / page).read_text("utf-8")):
        yield language, re.sub(rf"^{indent}", "", text, flags=re.MULTILINE)


class Reader:
    """Runs the blocks of a page in the current folder.

    Attributes:
        scorers: all that the blocks made, in order, not yet shut down.
    """

    def __init__(self, page: str, **given: Any) -> None:
        self.page = page
        self.namespace: dict[str, Any] = {"__name__": "page", **given}
        self.scorers: list[OnlineScorer] = []
        self._types: dict[str, Callable[[str], None]] = {
            "python": self._python,
            "yaml": self._yaml,
            "json": json.loads,
            "sh": self._sh,
        }

    def read(self) -> None:
        """Run every block of the page."""
        for language, text in blocks(self.page):
            if named := FILE.match(text):
                Path(named[1]).parent.mkdir(parents=True, exist_ok=True)
                Path(named[1]).write_text(text)
            self._types.get(language, _shown)(text)

    def _python(self, text: str) -> None:
        every_run = text.replace("sample_rate=0.1", "sample_rate=1.0").replace(
            f"serve_metrics({PORT}", "serve_metrics(0"
        )
        code = compile(every_run, self.page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        done = eval(code, self.namespace)
        if inspect.iscoroutine(done):
            asyncio.run(done)
        found = [value for value in self.namespace.values() if isinstance(value, OnlineScorer)]
        self.scorers += [scorer for scorer in found if scorer not in self.scorers]

    def _yaml(self, text: str) -> None:
        documents = [*yaml.safe_load_all(text)]
        if (
            len(documents) == 1
            and isinstance(documents[0], dict)
            and documents[0].keys() <= Configuration.model_fields.keys()
        ):
            shown = yaml.safe_dump(STAND_IN | documents[0])
            Path("block.yaml").write_text(shown.replace(PORT, "0"))
            OnlineScorer.from_config("block.yaml").shutdown()
            return
        assert text.startswith("#"), f"say in a comment on the first line what this is:\n{text}"

    def _sh(self, text: str) -> None:
        for line in text.replace("\\\n", " ").splitlines():
            for command in re.split(r"&&|\|\||[|;]", line):
                words = shlex.split(command, comments=True)
                while words and re.match(r"[A-Z_]+=", words[0]):
                    words = words[1:]
                self._command(words)

    def _command(self, words: list[str]) -> None:
        match words:
            case ["spanscore", name, *rest] if name != "--help":
                _parsed(name, rest)
                if name in RUN and all(Path(word).exists() for word in rest if word.endswith((".yaml", ".yml"))):
                    done = CliRunner().invoke(app(name), [name, *rest])
                    assert done.exit_code == 0, f"{' '.join(words)}: {done.output}{done.exception}"
            case ["python" | "python3", "-m", module, *_]:
                assert find_spec(module), module
            case ["pip", "install", *rest]:
                _extras_are_there(" ".join(rest))


def _shown(_: str) -> None:
    """A block that is not run: the output of a command, a query, a drawing."""


def _parsed(name: str, rest: list[str]) -> None:
    """Fail if a spanscore command, or an option of one, does not exist."""
    assert name in command_names(), f"spanscore {name}: no such command"
    commands: Any = typer.main.get_command(app(name))
    if not {"-h", "--help"} & {*rest}:
        commands.commands[name].make_context(name, [*rest])


def _extras_are_there(given: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    ours = re.findall(r"(?<![\w-])(?:\.|spanscore)\[([\w,-]+)\]", given)
    assert {extra for found in ours for extra in found.split(",")} <= project["optional-dependencies"].keys(), given
