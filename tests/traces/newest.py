"""Tries the newest version of every instrumentation on the programs in this folder, and prints changes in the samples.

    python -m tests.traces.newest                     # every instrumentation of Python in ``record``, some ten minutes
    python -m tests.traces.newest genai-langchain langfuse

Each instrumentation gets a fresh environment, so that no other holds its version back; pre-releases of OpenTelemetry's own are
included. The new recordings are compared with the newest in ``recorded/``, and are thrown away. Exits with 1 if a sample has
changed or a program failed. To keep a new version: install it, run ``python -m tests.traces.record``, and list it in
``docs/start/already-traced.md``.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from packaging.version import Version
from tests.traces.record import INSTRUMENTATIONS, record_apart
from tests.traces.recordings import RECORDINGS, Recording, differences

from spanscore.core.sample import Samples

CHECKOUT = Path(__file__).parents[2]


def main(names: Sequence[str]) -> int:
    """Try these instrumentations, else all; return the exit code."""
    changed = False
    for name in names or INSTRUMENTATIONS:
        print(f"\n{name}", flush=True)
        with TemporaryDirectory() as scratch:
            for line in _tried(name, Path(scratch)):
                changed |= not line.endswith("as before")
                print(f"  {line}", flush=True)
    return int(changed)


def _tried(name: str, scratch: Path) -> Iterator[str]:
    """Record in a fresh environment; yield a line for each program."""
    recorded = scratch / "recorded"
    recorded.mkdir()
    try:
        record_apart(name, python=_environment(name, scratch / "venv"), folder=recorded)
    except subprocess.CalledProcessError as error:
        yield f"failed: {error}"
    for path in sorted(recorded.glob("*.jsonl")):
        new, old = Recording(path), _newest_known(name, Recording(path).program)
        known = "no recording" if old is None else old.writer
        found = ["not compared"] if old is None else changes(new.samples(), old.samples())
        yield f"{new.program} by {new.writer}, compared with {known}: {', '.join(found) or 'as before'}"


def _environment(name: str, folder: Path) -> str:
    """Make an environment with the newest version of an instrumentation; return its interpreter."""
    instrumentation = INSTRUMENTATIONS[name]
    package = instrumentation.package
    # A bound that is a pre-release lets pip take one, of this package alone.
    newest = f"{package}>=0b0" if package.startswith("opentelemetry-instrumentation-genai-") else package
    needs = ["opentelemetry-instrumentation-genai-openai>=0b0"] if name == "genai-openai-agents" else []
    venv.create(folder, with_pip=True)
    python = str(folder / "bin" / "python")
    packages = ["-e", f"{CHECKOUT}[demo,openai]", "packaging", newest, *needs, *instrumentation.needs.split()]
    subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
    return python


def _newest_known(name: str, program: str) -> Recording | None:
    known = [one for one in RECORDINGS if (one.instrumentation, one.program) == (name, program)]
    return max(known, key=lambda one: Version(one.writer.rpartition("-")[2]), default=None)


def changes(new: Sequence[Samples], old: Sequence[Samples]) -> list[str]:
    """Return the differences in the samples of a program's units; empty if they are equal."""
    if len(new) != len(old):
        return [f"{len(new)} units, not {len(old)}"]
    return [
        f"unit {at}: {' and '.join(found)}"
        for at, (one, other) in enumerate(zip(new, old, strict=True), start=1)
        if (found := _differing(one, other))
    ]


def _differing(new: Samples, old: Samples) -> list[str]:
    if new.outcome != old.outcome:
        return [f"{new.outcome or 'a sample'}, not {old.outcome or 'a sample'}"]
    return sorted(differences((new.single_turn, new.multi_turn), (old.single_turn, old.multi_turn)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
