"""Prose is plain English: ``unclear_prose.tsv`` has the number of unclear idioms of each file. A folder's sums only fall.

``python -m tests.architecture.test_prose`` writes the lower numbers and prints idioms per 1,000 words. Pages have no ``ZERO``.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT, COUNTS = Path(__file__).parents[2], Path(__file__).with_name("unclear_prose.tsv")
UNCLEAR = {
    "begins": r"(?:^|[.!?|]\s+|[-*]\s+|\d\.\s+)(?:\*\*)?(?:Of|What|Who|Likewise|Else|That which)\b",
    "headless": r"(?i:\bwhat\b(?! to\b)|\bthose (?:that|who|which)\b|(?:^|[,;:(|.]\s*|\b(?:and|or|of|by|to|for|as|is)\s)who\b)",
    "people": r"(?i:\b(?:told|tells|says|hears|knows|wants)\b)",
    "negated": r"(?i:\b(?:is|are) none\b|\bnobody\b|\bnothing is\b)",
    "where": r"(?i:\bwhere\b)",
}
ZERO, OLD = ("begins", "headless", "negated"), ("CHANGELOG.md", "tests/")
# Per 1,000 words: three times the highest rate of OpenTelemetry, httpx, langchain-core, urllib3 and pydantic, at least .1.
LIMITS = {"what(?! to)": 0.33, "where": 2.61, "none|nothing|nobody": 12.54, "says?|said": 0.18, "told|tells?": 0.84}
LIMITS |= {"of which|of whom|whose": 0.87, "stands?": 0.1, "is none": 1.02, "who": 0.15, "beside": 0.1, "likewise": 0.1}
PUBLIC = re.compile(r"src/spanscore/(?:scorer|errors|protocols|semconv|config|metrics|testing)\b")
FOLDERS = ("benchmarks", "docs", "examples", "integrations", "src", "tests")
NO_PROSE = re.compile(r"<!-- made -->.*?<!-- end -->|^ *```.*?^ *```|`[^`\n]*`|\]\([^)]*\)|^#+ .*?$", re.M | re.S)


def test_unclear_idioms_become_fewer() -> None:
    committed, now = read_counts(), count_idioms()
    rise = Counter[tuple[Path, str]]()
    for key in now | committed:
        rise[Path(key[0]).parent, key[1]] += now[key] - committed[key]

    assert [key for key in now - committed if rise[Path(key[0]).parent, key[1]] > 0] == []
    assert [key for key in now if key[1] in ZERO and key[0].endswith(".md") and not key[0].startswith(OLD)] == []


def passages() -> Iterator[tuple[str, str, str]]:
    for file in sorted([*ROOT.glob("*.md"), *(file for name in FOLDERS for file in (ROOT / name).rglob("*.[mp][dy]"))]):
        name, text = file.relative_to(ROOT).as_posix(), file.read_text("utf-8")
        for area, found in read_texts(name, text):  # paragraphs without their questions
            for part in re.split(r"\n\s*\n|\n\s*(?=[-*|]|\d+\. )", found):
                yield name, area, re.sub(r"[^.!?:]*\?", "", " ".join(part.split()))


def read_texts(name: str, text: str) -> Iterator[tuple[str, str]]:
    if name.endswith(".md"):
        yield "rest" if name.startswith(OLD) else "docs", NO_PROSE.sub(" ` ", text)
        return
    nodes = [*ast.walk(ast.parse(text))]
    docs = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            area = ("public" if PUBLIC.match(name) else "rest") if id(node) in docs else "messages"
            if area != "messages" or (name.startswith("src/") and node.value.count(" ") > 2):
                yield area, node.value
    yield "rest", re.sub(r"(?m)^(?! *# ).*$|^ *# ", "", text)


def count_idioms() -> Counter[tuple[str, str]]:
    found = ((name, idiom, re.findall(UNCLEAR[idiom], part)) for name, _, part in passages() for idiom in UNCLEAR)
    return Counter((name, idiom) for name, idiom, hits in found for _ in hits)


def read_counts() -> Counter[tuple[str, str]]:
    rows = [line.split("\t") for line in COUNTS.read_text("utf-8").splitlines()]
    return Counter({(row[0], idiom): int(n) for row in rows[1:] for idiom, n in zip(UNCLEAR, row[1:], strict=True)})


if __name__ == "__main__":
    lower = count_idioms() & read_counts()
    rows = [[file, *(str(lower[file, idiom]) for idiom in UNCLEAR)] for file in sorted({file for file, _ in lower})]
    COUNTS.write_text("".join("\t".join(row) + "\n" for row in [["file", *UNCLEAR], *rows]), "utf-8")
    parts = [(area, part) for _, area, part in passages()]
    words = Counter(area for area, part in parts for _ in part.split())
    for idiom, limit in LIMITS.items():
        hits = Counter(area for area, part in parts for _ in re.findall(rf"(?i:\b(?:{idiom})\b)", part))
        print(f"{limit:5.2f} {idiom:24}", *(f"{area} {1000 * hits[area] / words[area]:5.2f}" for area in words))
