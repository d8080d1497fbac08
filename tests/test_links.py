"""Links of the README and of the documentation lead somewhere, without a network: files, pictures and headings."""

import re
import tomllib
import unicodedata
from functools import cache
from urllib.parse import unquote, urlsplit

import pytest

from conftest import ROOT

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / ".github").rglob("*.md")])
LINK = re.compile(r"\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)|(?:href|src)=\"([^\"]+)\"")
CODE = re.compile(r"^(```|~~~).*?^\1|`+[^`\n]*`+", re.MULTILINE | re.DOTALL)
SOURCE = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]["Source"]


def links(page):
    """Targets of a page's links, those in code left out."""
    return [first or second for first, second in LINK.findall(CODE.sub("", page.read_text(encoding="utf-8")))]


@cache
def anchors(page, on_the_site):
    """Anchors of a page's headings, as the site makes them or as GitHub does."""
    text = re.sub(r"^(```|~~~).*?^\1", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    found = set(re.findall(r'(?:id|name)="([^"]+)"|\{[^}\n]*#([\w-]+)[^}\n]*\}', text))
    names = {one for pair in found for one in pair if one}
    for heading in re.findall(r"^#{1,6}\s+(.+?)\s*#*\s*$", text, re.MULTILINE):
        words = re.sub(r"\s*\{[^}]*\}$", "", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)).replace("`", "")
        slug, count = slug_of(words.replace("*", ""), on_the_site), 0
        unique = slug
        while unique in names:
            count += 1
            unique = f"{slug}{'_' if on_the_site else '-'}{count}"
        names.add(unique)
    return names


def slug_of(words, on_the_site):
    if on_the_site:
        words = unicodedata.normalize("NFKD", words).encode("ascii", "ignore").decode()
        return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", words).strip().lower())
    return re.sub(r"[^\w\s-]", "", words.lower()).replace(" ", "-")


def broken(page):
    """What is wrong with the links of a page."""
    in_docs = (ROOT / "docs") in page.parents
    for link in links(page):
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            if parts.scheme not in ("https", "mailto"):
                yield f"{link}: not https"
            continue
        target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
        if not target.exists() or ROOT not in target.parents:
            yield f"{link}: no such file"
        elif in_docs and (ROOT / "docs") not in target.parents:
            yield f"{link}: not on the site"
        elif parts.fragment and target.suffix == ".md" and "reference" not in target.parts:  # made from docstrings
            known = anchors(target, in_docs)
            yield from [] if parts.fragment in known else [f"{link}: no such heading"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    assert list(broken(page)) == []


def test_links_are_looked_at():
    assert sum(len(links(page)) for page in PAGES) > 200
    assert "#known-weak-spots" in {f"#{urlsplit(link).fragment}" for link in links(ROOT / "README.md")}


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("[a](no-such-page.md)", "no-such-page.md: no such file"),
        ("![a](images/none.png)", "images/none.png: no such file"),
        ("[![a](none.png)](page.md)", "none.png: no such file"),
        ("[a](#nowhere)\n\n# Somewhere", "#nowhere: no such heading"),
        ("[a](http://example.org)", "http://example.org: not https"),
        ('<img src="none.png">', "none.png: no such file"),
        ("# A `b`: C\n\n[a](#a-b-c)", None),
        ("# Twice\n\n# Twice\n\n[a](#twice-1)", None),
        ("`[a](none.md)`\n\n```\n[a](none.md)\n```", None),
    ],
)
def test_broken_links_are_seen(text, wrong, tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    (tmp_path / "page.md").write_text(text, encoding="utf-8")
    assert list(broken(tmp_path / "page.md")) == ([wrong] if wrong else [])


def test_links_to_the_repository_are_of_its_address():
    hosts = {link for page in PAGES for link in links(page) if "/modifind/" in link and link.startswith("https://")}
    assert {link for link in hosts if not link.startswith((SOURCE, "https://modifind.readthedocs.io"))} == set()
