"""Prose is plain English: ``unclear_prose.tsv`` has the unclear idioms of each file; running this module lowers the counts."""

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
ROWS = [line.split("\t") for line in COUNTS.read_text("utf-8").splitlines()[1:]]
COMMITTED = Counter({(row[0], idiom): int(n) for row in ROWS for idiom, n in zip(UNCLEAR, row[1:], strict=True)})
FOLDERS = ("benchmarks", "docs", "examples", "integrations", "src", "tests")
NO_PROSE = re.compile(r"(?ms)<!-- made -->.*?<!-- end -->|^ *```.*?^ *```|`[^`\n]*`|\]\([^)]*\)|^#+ .*?$|{%.*?%}")


def test_unclear_idioms_become_fewer() -> None:
    now, rise = count_idioms(), Counter[tuple[Path, str]]()
    for key in now | COMMITTED:
        rise[Path(key[0]).parent, key[1]] += now[key] - COMMITTED[key]
    assert [key for key in now - COMMITTED if rise[Path(key[0]).parent, key[1]] > 0] == []
    assert [key for key in now if key[1] in ZERO and key[0].endswith(".md") and not key[0].startswith(OLD)] == []
    assert [key for key, rate in count_rates().items() if rate > LIMITS[key[0]] and key[1] != "prompts"] == []


def passages() -> Iterator[tuple[str, str, str]]:
    for file in sorted([*ROOT.glob("*.md"), *(file for top in FOLDERS for file in (ROOT / top).rglob("*.[mpj][dy2]"))]):
        name, text = file.relative_to(ROOT).as_posix(), file.read_text("utf-8")
        for area, found in read_texts(name, text):  # paragraphs without their questions
            for part in re.split(r"\n\s*\n|\n\s*(?=[-*|]|\d+\. )", found):
                yield name, area, re.sub(r"[^.!?:]*\?", "", " ".join(part.split()))


def read_texts(name: str, text: str) -> Iterator[tuple[str, str]]:
    if not name.endswith(".py"):  # also the templates of pages
        yield "rest" if name.startswith(OLD) else "docs", NO_PROSE.sub(" ` ", text)
        return
    nodes = [*ast.walk(ast.parse(text))]
    docs = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    calls = [node for node in nodes if getattr(getattr(node, "func", 0), "id", 0) in ("Step", "Aspect")]  # for a judge
    prompts = {id(part) for call in calls for part in ast.walk(call)}
    for node in (node for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)):
        if id(node) in docs:
            yield "public" if PUBLIC.match(name) else "rest", node.value
        elif name.startswith("src/") and node.value.count(" ") > 2:
            yield "prompts" if id(node) in prompts else "messages", node.value
    yield "rest", re.sub(r"(?m)^(?! *# ).*$|^ *# ", "", text)


def count_idioms() -> Counter[tuple[str, str]]:
    found = ((name, idiom, re.findall(UNCLEAR[idiom], part)) for name, _, part in passages() for idiom in UNCLEAR)
    return Counter((name, idiom) for name, idiom, hits in found for _ in hits)


def count_rates() -> dict[tuple[str, str], float]:
    words, hits = Counter[str](), Counter[tuple[str, str]]()
    for _, area, part in passages():
        words[area] += len(part.split())
        hits.update({(idiom, area): len(re.findall(rf"(?i:\b(?:{idiom})\b)", part)) for idiom in LIMITS})
    return {(idiom, area): 1000 * hits[idiom, area] / words[area] for idiom in LIMITS for area in words}


if __name__ == "__main__":
    lower, rates = count_idioms() & COMMITTED, count_rates()
    rows = [[file, *(str(lower[file, idiom]) for idiom in UNCLEAR)] for file in sorted({file for file, _ in lower})]
    COUNTS.write_text("".join("\t".join(row) + "\n" for row in [["file", *UNCLEAR], *rows]), "utf-8")
    for idiom, limit in LIMITS.items():
        print(f"{limit:5.2f} {idiom:24}", *(f"{area} {rate:5.2f}" for (of, area), rate in rates.items() if of == idiom))
