"""Check the links and images of README and docs as GitHub shows them: `python docs/links.py`. `make docs` runs it.

MkDocs checks what the site shows; this checks files that are not part of the site, images in raw HTML, anchors by
GitHub's rule, and that no link leads to an HTML file, which GitHub shows as its source.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"""\]\(([^()\s]+(?:\([^()\s]*\)[^()\s]*)?)\)|\b(?:src|srcset|href)="([^"]+)\"""")


def pages(root: Path) -> list[Path]:
    """Every Markdown file that a reader may come to."""
    return [*root.glob("*.md"), *root.glob("docs/*.md"), *root.glob("results/*.md")]


def broken_links(page: Path) -> list[str]:
    """What is wrong with the links and images of a page, one sentence each."""
    found = []
    for link in LINK.finditer(_prose(page)):
        target = link[1] or link[2]
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        if not file.exists():
            found.append(f"{page}: {target} does not exist")
        elif file.suffix == ".html":
            found.append(f"{page}: {target} is shown as source on GitHub")
        elif anchor and file.suffix == ".md" and anchor not in anchors(file):
            found.append(f"{page}: {target} has no heading for its anchor")
    return found


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings; a repeated heading gets a number."""
    made: dict[str, int] = {}
    for heading in re.findall(r"^#{1,6} +(.+?)\s*$", _without_code_blocks(page), re.MULTILINE):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        made[slug] = made.get(slug, -1) + 1
    return {slug if not at else f"{slug}-{at}" for slug, count in made.items() for at in range(count + 1)}


def _without_code_blocks(page: Path) -> str:
    return re.sub(r"^( *)```.*?^ *```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def _prose(page: Path) -> str:
    """The page without code and comments, whose text is no link."""
    return re.sub(r"<!--.*?-->|`[^`\n]*`(?!\])", "", _without_code_blocks(page), flags=re.DOTALL)


if __name__ == "__main__":
    faults = [fault for page in pages(ROOT) for fault in broken_links(page)]
    print("\n".join(faults) or "all links and images are there")
    sys.exit(bool(faults))
