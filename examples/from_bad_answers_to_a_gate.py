"""From bad answers to a gate: failed answers in traffic become cases, and the gate stops a release that fails them again.

    pip install -e '.[demo]' && python examples/from_bad_answers_to_a_gate.py [FOLDER]

1. Traffic: the demo's assistant answers questions about a ferry company, and for a while its retriever is broken.
2. `spanscore collect` makes cases of the answers that were judged to be unfaithful.
3. The mended retriever answers them, and `spanscore evaluate` keeps the scores: the baseline.
4. A release that breaks the retriever again is stopped; one that does not goes through.

No key, no server, no network: an offline model answers, and the offline judge compares words. A quarter of a minute. The files
stay in FOLDER, if one is named.

A scorer that runs does the second step by itself: OnlineScorer(..., collect=Collect(["faithfulness<0.5"], "cases.jsonl")).
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

try:
    from spanscore.testing.demo.application import Handbook, OfflineModel, handbook_chain
except ModuleNotFoundError as missing:
    raise SystemExit(f"{missing.name} is not installed: pip install -e '.[demo]'") from None

COMMAND = (sys.executable, "-c", "from spanscore.cli.main import main; main()")


def spanscore(*words: str, folder: Path) -> int:
    """Run a command line, print its output, and return its exit code."""
    print(f"\n$ spanscore {shlex.join(words)}", flush=True)
    return subprocess.run([*COMMAND, *words], cwd=folder, check=False).returncode


def traffic(folder: Path) -> None:
    """Have the demo make requests; for a while its retriever finds any pages, and the model answers all the same."""
    words = ("demo", "--requests", "80", "--rate", "1", "--out", "spans.jsonl", "--json")
    print(f"$ spanscore {shlex.join(words)}", flush=True)
    done = subprocess.run([*COMMAND, *words], cwd=folder, check=True, capture_output=True, text=True)
    for name, stretch in json.loads(done.stdout)["stretches"].items():
        mean = stretch["means"]["faithfulness"]["mean"]
        print(f"  {name:<6}  requests {stretch['first']:>3} to {stretch['last']:>3}  mean faithfulness {mean:.2f}")


def answers(cases: Sequence[dict[str, object]], *, broken: bool) -> str:
    """Return a release's answers to the questions of the cases: lines of samples, with the ids of the cases."""
    handbook = Handbook(broken=broken)
    chain = handbook_chain(OfflineModel(), handbook)
    lines = []
    for case in cases:
        question = str(case["user_input"])
        found = [page.page_content for page in handbook.invoke(question)]
        sample = {"user_input": question, "retrieved_contexts": found, "response": chain.invoke(question)}
        lines.append(json.dumps({"id": case["id"], **sample}))
    return "\n".join(lines) + "\n"


def main(folder: Path) -> int:
    """Run the loop; return 0 if the gate distinguished the releases."""
    print("1. Traffic, with a stretch in which retrieval is broken.\n")
    traffic(folder)

    print("\n2. What failed becomes cases.")
    spanscore("collect", "spans.jsonl", "--when", "faithfulness<0.5", "--out", "cases.jsonl", folder=folder)
    cases = [json.loads(line) for line in (folder / "cases.jsonl").read_text("utf-8").splitlines()]
    (folder / "mended.jsonl").write_text(answers(cases, broken=False), "utf-8")
    (folder / "broken.jsonl").write_text(answers(cases, broken=True), "utf-8")

    print("\n3. The mended retriever answers the same questions. What it gets is the baseline.")
    gate = ("--metrics", "faithfulness", "--judge", "lexical", "--baseline", "base.jsonl")
    spanscore("evaluate", "mended.jsonl", *gate, "--update-baseline", folder=folder)

    print("\n4. Two releases at the gate: in the first the retriever is broken again.")
    held = (*gate, "--max-drop", "faithfulness=0.05", "--min", "faithfulness=0.8")
    codes = [spanscore("evaluate", file, *held, folder=folder) for file in ("broken.jsonl", "mended.jsonl")]
    print(f"\nThe gate's exit codes: {codes[0]} for the broken retriever, {codes[1]} for the mended one.")
    return 0 if codes == [1, 0] else 1


if __name__ == "__main__":
    with TemporaryDirectory() as made:
        sys.exit(main(Path(sys.argv[1] if sys.argv[1:] else made).resolve()))
