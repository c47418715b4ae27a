"""Names describe their thing: the counts of unclear names are kept for each file, and only fall.

A function is a verb with an object: ``parse_request``, not ``taken_apart``. A local is named for its value: ``span``,
``path``, not ``one`` or ``found``. ``unclear_names.tsv`` has the counts of today. ``python -m tests.architecture.test_names``
writes the lower counts; it raises none. The line of a file that moved is moved by hand.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src"
COUNTS = Path(__file__).with_name("unclear_names.tsv")
UPDATE = "python -m tests.architecture.test_names"

LOCALS = frozenset({"one", "told", "found", "given", "said", "known", "asked"})
# Participles that do not end in "ed", and are no other form of their verb: "put", "read" and "set" are verbs, too.
IRREGULAR = (
    "begun|bent|born|borne|bought|bound|broken|brought|built|caught|chosen|clung|dealt|done|drawn|driven|eaten|fallen|felt|"
    "fought|found|flown|forgotten|frozen|given|gone|got|gotten|grown|heard|held|hidden|kept|known|laid|lain|led|left|lent|lost|"
    "made|meant|met|mistaken|paid|proven|ridden|risen|said|seen|sent|shown|slept|sold|sought|spent|spoken|spun|stolen|stood|"
    "struck|stuck|sunk|sworn|swept|taken|taught|thought|thrown|told|torn|understood|withdrawn|woken|won|worn|wound|written"
)
# Words that may follow a participle and name no object: "taken_apart", "made_from", "left_so_far".
PARTICLES = (
    "about|above|after|afresh|again|ahead|along|alone|already|among|anew|apart|around|as|aside|at|away|back|before|behind|below|"
    "beneath|beside|between|beyond|by|down|each|early|elsewhere|ever|every|far|first|for|from|here|in|inside|into|it|last|late|"
    "later|near|next|not|now|of|off|on|once|onto|open|or|otherwise|out|outside|over|past|since|so|still|than|that|then|there|"
    "through|to|together|too|twice|under|until|up|upon|what|when|where|whole|with|within|without|yet"
)
BARE_PARTICIPLE = re.compile(
    rf"_*(?:[a-z]{{2,}}ed|(?:un|re|over|under|out|mis|fore|be)?(?:{IRREGULAR}))(?:_(?:{PARTICLES}))*_*"
)
VERBS_IN_ED = {"embed", "exceed", "feed", "heed", "need", "proceed", "seed", "shed", "speed"}
FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef


class UnclearNames(NamedTuple):
    """How many names of a file are unclear.

    Attributes:
        functions: functions named by a participle, alone or before particles. Properties count as attributes instead.
        locals: times one of ``LOCALS`` is bound in a function, a lambda or a comprehension; parameters included.
    """

    functions: int
    locals: int


def test_unclear_names_become_fewer_in_every_file() -> None:
    committed, now = _committed(), _counted()
    rose = [_change(name, committed, now) for name in now if _has_risen(name, committed, now)]
    fell = [_change(name, committed, now) for name in committed if committed[name] != now.get(name)]

    assert not rose, f"more names that are a bare participle, or a local of {sorted(LOCALS)}:\n" + "\n".join(rose)
    assert not fell, f"fewer than {COUNTS.name} has; `{UPDATE}` writes the new counts:\n" + "\n".join(fell)


def test_a_bare_participle_is_a_participle_and_no_object() -> None:
    bare = ["told", "_held", "taken_apart", "kept_of", "unsent", "taken_apart", "rewritten", "made_from"]
    clear = [
        "embed",
        "kept_samples",
        "has_ended",
        "read",
        "feed",
        "is_held",
        "parse_told",
        "put_back",
        "red",
        "__exit__",
    ]

    assert [name for name in [*bare, *clear] if _is_bare_participle(name)] == bare


def test_properties_are_no_functions_and_parameters_are_locals() -> None:
    code = """
found = 1
class Book:
    given: int = 0
    @property
    def closed(self): ...
    async def kept(self, one, *, path=None):
        for told, (name, said) in path: asked = [known for known in name if (found := known)]
        return lambda given: given.one
"""

    assert _unclear(ast.parse(code)) == UnclearNames(functions=1, locals=7)


def _counted() -> dict[str, UnclearNames]:
    """Return file → its counts, without the files that have none, sorted."""
    counts = {
        file.relative_to(ROOT).as_posix(): _unclear(ast.parse(file.read_text("utf-8"))) for file in SRC.rglob("*.py")
    }
    return {name: counts[name] for name in sorted(counts) if any(counts[name])}


def _unclear(tree: ast.AST) -> UnclearNames:
    functions = [node for node in ast.walk(tree) if isinstance(node, FUNCTION) and not _is_property(node)]
    return UnclearNames(
        sum(_is_bare_participle(node.name) for node in functions),
        sum(name in LOCALS for name in _bound(tree, is_local=False)),
    )


def _is_property(node: FUNCTION) -> bool:
    return any(
        "property" in ast.unparse(decorator) or ".setter" in ast.unparse(decorator) for decorator in node.decorator_list
    )


def _is_bare_participle(name: str) -> bool:
    return bool(BARE_PARTICIPLE.fullmatch(name)) and name.strip("_").split("_")[0] not in VERBS_IN_ED


def _bound(node: ast.AST, *, is_local: bool) -> Iterator[str]:
    """Yield the names that are bound in functions, lambdas and comprehensions, once for each time."""
    if is_local:
        yield from _bound_by(node)
    if isinstance(node, FUNCTION | ast.Lambda | ast.comprehension):
        is_local = True
    elif isinstance(node, ast.ClassDef):
        is_local = False
    for child in ast.iter_child_nodes(node):
        yield from _bound(child, is_local=is_local)


def _bound_by(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
        yield node.name


def _has_risen(name: str, committed: Mapping[str, UnclearNames], now: Mapping[str, UnclearNames]) -> bool:
    before = committed.get(name, UnclearNames(0, 0))
    return any(count > most for count, most in zip(now[name], before, strict=True))


def _change(name: str, committed: Mapping[str, UnclearNames], now: Mapping[str, UnclearNames]) -> str:
    before, after = committed.get(name, UnclearNames(0, 0)), now.get(name, UnclearNames(0, 0))
    return f"  {name}: functions {before.functions} → {after.functions}, locals {before.locals} → {after.locals}"


def _committed() -> dict[str, UnclearNames]:
    rows = (line.split("\t") for line in COUNTS.read_text("utf-8").splitlines()[1:])
    return {name: UnclearNames(int(functions), int(local)) for functions, local, name in rows}


def _write(counts: Mapping[str, UnclearNames]) -> None:
    rows = [f"{count.functions}\t{count.locals}\t{name}\n" for name, count in sorted(counts.items())]
    COUNTS.write_text("functions\tlocals\tfile\n" + "".join(rows), "utf-8")


def _update() -> int:
    """Write the counts that have fallen. Return 1 if one has risen: it is printed and left as it was."""
    committed, now = _committed(), _counted()
    fallen = {
        name: UnclearNames(*map(min, before, now.get(name, UnclearNames(0, 0)))) for name, before in committed.items()
    }
    _write({name: count for name, count in fallen.items() if any(count)})
    rose = [_change(name, committed, now) for name in now if _has_risen(name, committed, now)]
    print("\n".join(["not written, as it rose:", *rose]) if rose else f"{COUNTS.name} is up to date")
    return bool(rose)


if __name__ == "__main__":
    sys.exit(_update())
