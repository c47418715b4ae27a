"""What the site does that a forge does by itself: a link that leaves docs/ leads on.

A document of the repository that a page links (CONTRIBUTING.md, integrations/…/README.md) becomes a page of the site, and so do
those that it links; any other file (source) leads to the forge where `.mkdocs.yml` names one, and is plain text without.
The README's page is the site's first.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
PAPERS = "project/"
"""The folder of the site where the repository's own documents stand."""
SHOWN = {".md", ".png", ".svg"}
LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s#]*)(#[^)\s]*)?\)")
FENCE = re.compile(r"(^```.*?^```)", re.MULTILINE | re.DOTALL)


def on_config(config: Any) -> Any:
    """Give each section that is named by its index the pages below its folder that the index links, in that order."""
    config.nav = [_section(entry) for entry in config.nav]
    return config


def on_files(files: Files, *, config: Any) -> Files:
    """Add the documents and pictures that pages link, and what those link."""
    todo, seen = [_in_repository(page.src_uri) for page in files.documentation_pages()], set[str]()
    while todo:
        path = todo.pop()
        if path in seen or not _is_shown(path):
            continue
        seen.add(path)
        if _in_site(path).startswith(PAPERS):
            files.append(File.generated(config, _in_site(path), abs_src_path=str(ROOT / path)))
        todo += _linked(path)
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Files) -> str:
    """Turn each link that leaves docs/ into one that leads on."""
    uri = page.file.src_uri
    if uri.startswith(PAPERS):
        page.meta["search"] = {"boost": 0.5}  # a search finds what was written for users first

    def turned(link: re.Match[str]) -> str:
        text, target, anchor = link.groups(default="")
        path = _resolved(_in_repository(uri), target)
        if not target or "://" in target or (path.startswith("docs/") and not uri.startswith(PAPERS)):
            return link[0]
        if _is_shown(path):
            return f"[{text}]({posixpath.relpath(_in_site(path), posixpath.dirname(uri) or '.')}{anchor})"
        return f"[{text}]({config.repo_url}/blob/main/{path})" if config.repo_url else text

    return "".join(part if part.startswith("```") else LINK.sub(turned, part) for part in FENCE.split(markdown))


def _section(entry: Any) -> Any:
    if not isinstance(entry, dict):
        return entry
    ((title, index),) = entry.items()
    if not isinstance(index, str) or "/" not in index:
        return entry
    folder = posixpath.dirname(index) + "/"
    below = [_in_site(path) for path in _linked(_in_repository(index)) if path.endswith(".md") and _is_shown(path)]
    return {title: list(dict.fromkeys([index, *(uri for uri in below if uri.startswith(folder))]))}


def _linked(path: str) -> list[str]:
    """Return what a document of the repository links, as paths in it."""
    if not path.endswith(".md"):
        return []
    links = LINK.findall(FENCE.sub("", (ROOT / path).read_text("utf-8")))
    return [_resolved(path, target) for _, target, _ in links if target and "://" not in target]


def _resolved(path: str, target: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), target))


def _is_shown(path: str) -> bool:
    return Path(path).suffix in SHOWN and (ROOT / path).is_file()


def _in_site(path: str) -> str:
    if path == "README.md":
        return "index.md"
    return path.removeprefix("docs/") if path.startswith("docs/") else f"{PAPERS}{path}"


def _in_repository(uri: str) -> str:
    return uri.removeprefix(PAPERS) if uri.startswith(PAPERS) else f"docs/{uri}"
