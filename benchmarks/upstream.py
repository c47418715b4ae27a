"""Compatibility test: the test suites of langchain-core, langchain and langgraph, with and without an installed scorer.

    python -m benchmarks.upstream [--only langgraph] [--cache DIR] [--report FILE]

It downloads the sdists of the installed versions, makes an environment with the libraries for their tests, and runs each suite
twice, the second time with ``scorer.install()``: every unit is recorded, scored and exported. Differing tests are run again
alone, to separate unstable tests from tests that spanscore affects. It prints a table. It exits with 1 if the outcome of a test
differs, if spanscore logged anything, or if a unit has no outcome. Needs PyPI and, the first time, 20 minutes.

The module is also the pytest plugin of those runs (``-p benchmarks.upstream``), which records the outcome of each test.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import platform
import subprocess
import sys
import tarfile
import venv
from collections import Counter
from dataclasses import dataclass
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from benchmarks.variants import Instant, NullExporter
from spanscore import OnlineScorer
from spanscore.config import Capture, Outputs

ROOT = Path(__file__).resolve().parents[1]
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "spanscore-upstream"
SUITES = {"langchain-core": "tests/unit_tests", "langchain": "tests/unit_tests", "langgraph": "tests"}
INTO, SCORED = "SPANSCORE_UPSTREAM_INTO", "SPANSCORE_UPSTREAM_SCORED"
COUNTS_HANDLERS = "tests/unit_tests/runnables/test_config.py::test_merge_config_callbacks"
"""A test that counts the handlers of a manager; an installed scorer is one more."""
ROUNDS = 3
"""Repeated runs of each differing test, on either side, because some tests depend on timing."""
SETTLE_S = 120.0
"""Seconds for scoring the units of the last tests."""

Outcomes = dict[str, str]


@dataclass(frozen=True, slots=True)
class Seen:
    """The result of one run of a suite.

    Attributes:
        outcomes: node id → passed, failed or skipped; failed also for a failed set-up or tear-down.
        said: lines logged by spanscore, with their counts.
        ledger: the scorer's counts; empty without a scorer.
    """

    outcomes: Outcomes
    said: dict[str, int]
    ledger: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Compared:
    """A suite without a scorer and with one.

    Attributes:
        differ: tests with no common outcome of the runs with and without the scorer.
        unsteady: tests that differed, but shared an outcome after being run again.
    """

    name: str
    without: Seen
    beside: Seen
    differ: list[str]
    unsteady: list[str]

    @property
    def unnoticed(self) -> bool:
        """Whether no test differs, spanscore logged nothing, and the counts balance."""
        return set(self.differ) <= {COUNTS_HANDLERS} and not self.beside.said and bool(self.beside.ledger["balance"])


def main() -> int:
    """Run, print, write; return 1 if a difference was found."""
    arguments = _arguments()
    arguments.cache.mkdir(parents=True, exist_ok=True)
    names = arguments.only or list(SUITES)
    sources = {name: _source(name, arguments.cache) for name in SUITES}
    python = _environment(sources, arguments.cache)
    found = [_compare(name, sources[name], python) for name in names]
    report = _report(found)
    print(report)
    if arguments.report:
        arguments.report.write_text(report)
    return 0 if all(suite.unnoticed for suite in found) else 1


# --- runs --------------------------------------------------------------------------------------------------------


def _source(name: str, cache: Path) -> Path:
    """Return the unpacked sdist of the installed version."""
    stem = f"{name.replace('-', '_')}-{version(name)}"
    if not (cache / stem).exists():
        pip = (sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", name, "-d", str(cache))
        subprocess.run([*pip, f"{name}=={version(name)}"], check=True)
        with tarfile.open(cache / f"{stem}.tar.gz") as archive:
            archive.extractall(cache, filter="data")
    return cache / stem


def _environment(sources: dict[str, Path], cache: Path) -> Path:
    """Return the Python of an environment with the libraries, and the packages that their tests and spanscore need."""
    home = cache / "-".join(["env", f"py{sys.version_info.major}.{sys.version_info.minor}", *map(version, sources)])
    python = home / "bin" / "python"
    if not (home / "complete").exists():
        venv.create(home, clear=True, with_pip=True)
        pip = [str(python), "-m", "pip", "install", "-q"]
        subprocess.run([*pip, "--upgrade", "pip"], check=True)  # for --group
        groups = [part for source in sources.values() for part in ("--group", f"{source / 'pyproject.toml'}:test")]
        subprocess.run([*pip, str(ROOT), *(f"{name}=={version(name)}" for name in sources), *groups], check=True)
        (home / "complete").touch()
    return python


def _compare(name: str, source: Path, python: Path) -> Compared:
    without, beside = (_run(name, source, python, scored=scored) for scored in (False, True))
    differ = _differing(without, beside)
    if not differ:
        return Compared(name, without, beside, [], [])
    again = [
        [_run(name, source, python, scored=scored, tests=differ) for _ in range(ROUNDS)] for scored in (False, True)
    ]
    sides = [[first, *more] for first, more in zip((without, beside), again, strict=True)]
    still = [test for test in differ if _apart(test, *sides)]
    return Compared(name, without, beside, still, [test for test in differ if test not in still])


def _apart(test: str, without: list[Seen], beside: list[Seen]) -> bool:
    return not {seen.outcomes.get(test) for seen in without} & {seen.outcomes.get(test) for seen in beside}


def _differing(one: Seen, other: Seen) -> list[str]:
    tests = one.outcomes.keys() | other.outcomes.keys()
    return sorted(test for test in tests if one.outcomes.get(test) != other.outcomes.get(test))


def _run(name: str, source: Path, python: Path, *, scored: bool, tests: list[str] | None = None) -> Seen:
    into = source.parent / f"{name}-{'with' if scored else 'without'}.json"
    into.unlink(missing_ok=True)
    what = ["-p", "benchmarks.upstream", "-p", "no:cacheprovider", "-q", "--no-header", "--tb=short"]
    environ = {**os.environ, INTO: str(into), SCORED: "1" if scored else "", "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    environ |= {"NO_DOCKER": "true", "LANGSMITH_TRACING": "false", "OTEL_SDK_DISABLED": ""}
    with into.with_suffix(".log").open("w") as log:
        command = [str(python), "-m", "pytest", *what, *(tests or [SUITES[name]])]
        subprocess.run(command, cwd=source, env=environ, stdout=log, stderr=subprocess.STDOUT, check=False)
    return Seen(**json.loads(into.read_text()))


# --- report ------------------------------------------------------------------------------------------------------


def _report(found: list[Compared]) -> str:
    names = ", ".join(f"{name} {version(name)}" for name in [*SUITES, "spanscore"])
    head = f"{date.today():%d %B %Y}; Python {platform.python_version()}; {names}.\n\n"
    columns = (
        "suite",
        "without a scorer",
        "with a scorer",
        "differing tests",
        "unsteady tests",
        "units",
        "log lines of spanscore",
    )
    rows = f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}\n"
    return head + rows + "".join(map(_row, found)) + "\n" + "\n".join(map(_details, found))


def _row(suite: Compared) -> str:
    counted = (_counts(suite.without.outcomes), _counts(suite.beside.outcomes), str(len(suite.differ)))
    ledger, said = suite.beside.ledger, sum(suite.beside.said.values())
    cells = (suite.name, *counted, str(len(suite.unsteady)), f"{ledger['units']}, {_standing(ledger)}", str(said))
    return f"| {' | '.join(cells)} |\n"


def _standing(ledger: dict[str, Any]) -> str:
    return "balanced" if ledger["balance"] else f"NOT balanced: {ledger}"


def _counts(outcomes: Outcomes) -> str:
    return ", ".join(
        f"{count:,} {outcome}" for outcome, count in sorted(Counter(outcomes.values()).items(), reverse=True)
    )


def _details(suite: Compared) -> str:
    lines = [f"{suite.name}: outcomes of units {suite.beside.ledger['outcomes']}."]
    lines += [f"- differs: `{test}`{_WHY.get(test, '')}" for test in suite.differ]
    lines += [f"- result varies, with and without a scorer: `{test}`" for test in suite.unsteady]
    lines += [
        f"- number of tests that fail without a scorer, too: {count:,}" for count in [_failing(suite.without)] if count
    ]
    lines += [f"- logged {count} times: {line}" for line, count in suite.beside.said.items()]
    return "\n".join(lines) + "\n"


# --- the plugin ---------------------------------------------------------------------------------------------------

_outcomes: Outcomes = {}
_said: Counter[str] = Counter()
_scorer: OnlineScorer | None = None


def pytest_configure() -> None:
    """Install a scorer that records everything, and record every log line of spanscore."""
    global _scorer  # noqa: PLW0603  (a plugin that is a module)
    ear = logging.Handler()
    ear.emit = lambda record: _said.update([record.getMessage()])  # type: ignore[method-assign]
    logging.getLogger("spanscore").addHandler(ear)
    if os.environ.get(SCORED):
        _scorer = _a_scorer()
        _scorer.install()


def pytest_runtest_logreport(report: Any) -> None:
    """Record a test's outcome: that of its first part that did not pass."""
    tells = report.when == "call" or report.outcome != "passed"
    if tells and _outcomes.get(report.nodeid, "passed") == "passed":
        _outcomes[report.nodeid] = report.outcome


def pytest_unconfigure() -> None:
    """Wait until everything is scored, end, and write the file."""
    ledger = {} if _scorer is None else _close_ledger(_scorer)
    Path(os.environ[INTO]).write_text(json.dumps({"outcomes": _outcomes, "said": _said, "ledger": ledger}))


def _a_scorer() -> OnlineScorer:
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(NullExporter()))
    providers: dict[str, Any] = {"tracer_provider": provider, "meter_provider": MeterProvider()}
    return OnlineScorer([Instant()], capture=Capture(content=True), outputs=Outputs(event=False), **providers)


def _close_ledger(scorer: OnlineScorer) -> dict[str, Any]:
    flushed = scorer.flush(SETTLE_S)
    left = sum(scorer.status().pending.values())
    scorer.shutdown(10)
    status = scorer.status()
    eligible, pending = sum(status.eligible.values()), sum(status.pending.values())
    outcomes = status.outcomes["instant"]
    whole = flushed and not pending and eligible == sum(outcomes.values())
    return {"units": eligible, "outcomes": outcomes, "pending": pending, "open": left, "balance": whole}


_WHY = {COUNTS_HANDLERS: " (counts the handlers of a manager: an installed one is one more)"}


def _failing(seen: Seen) -> int:
    return sum(outcome == "failed" for outcome in seen.outcomes.values())


def _arguments() -> Any:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=SUITES, help="may be given several times")
    parser.add_argument("--cache", type=Path, default=CACHE, help="folder for sdists and the environment")
    parser.add_argument("--report", type=Path, help="also write the table to this file")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
