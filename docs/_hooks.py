"""Hooks of the docs site: the order of its pages, and links that leave the docs."""

import os
import re
from pathlib import Path
from typing import Any

ORDER = {
    "Start": [
        *("index.md", "quick_start.md", "train.md", "evaluate.md", "watch.md", "report.md", "doctor.md"),
        *("hyperparameters.md", "faq.md"),
    ],
    "Student": ["fifteen_steps.md", "ladder.md", "algorithm.md", "concepts.md"],
    "SB3 user": ["coming_from.md", "sb3.md", "callbacks.md", "deviations.md"],
    "Roboticist": [
        *("own_environment.md", "environments.md", "images.md", "goals.md", "deploy.md", "export.md", "push.md")
    ],
    "Researcher": [
        *("results.md", "results_published.md", "results_ablations.md", "results_variants.md", "results_settings.md"),
        *("results_method.md", "modify.md", "tune.md", "offline.md", "cluster.md", "metrics.md", "performance.md"),
    ],
    "Reference": ["configuration.md", "api.md", "reliability.md", "glossary.md"],
    "Contributor": ["architecture.md", "maintaining.md"],
}
"""The pages by reader, in reading order. Pages that do not exist are left out; pages not listed go to the end."""
ROOT = Path(__file__).parents[1]


def on_config(config: Any) -> Any:
    """The navigation, of the pages that are there."""
    folder = Path(config["docs_dir"])
    listed = [page for pages in ORDER.values() for page in pages]
    sections: list[Any] = [
        {title: [page for page in pages if (folder / page).exists()]} for title, pages in ORDER.items()
    ]
    others = sorted(path.name for path in folder.glob("*.md") if path.name not in listed)
    config["nav"] = sections + ([{"More": others}] if others else [])
    if repository := os.environ.get("GITHUB_REPOSITORY"):  # set by GitHub Actions; otherwise there is no address
        home = f"{os.environ.get('GITHUB_SERVER_URL', 'https://github.com')}/{repository}"
        config["nav"].append({"Repository": home})
        config["edit_uri"] = f"{home}/edit/main/docs/"
        owner, _, name = repository.partition("/")
        config["site_url"] = f"https://{owner.lower()}.github.io/{name}/"
    return config


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Turn a link to a file of the repository into the name of that file, and show what is for the site alone.

    GitHub does not show the text of `<!-- site: text -->`. What is between `<!-- readme: FIRST | NEXT -->` and its end
    becomes the README's sections from FIRST up to NEXT. A page other than the first is built into a folder of its own:
    images in raw HTML, which MkDocs leaves alone, are looked for one level up.
    """
    markdown = re.sub(r"<!-- site: (.*?) -->", r"\1", markdown)
    markdown = re.sub(r"<!-- readme: (.+?) \| (.+?) -->.*?<!-- readme: end -->", _readme, markdown, flags=re.DOTALL)
    if page is not None and page.file.src_uri != "index.md":
        markdown = re.sub(r'(src|srcset)="(?!https?:|data:|/|\.\./)', r'\1="../', markdown)
    return re.sub(r"\[([^\]]*)\]\(\.\./([^)#]+)(?:#L\d+)?\)", _named, markdown)


def _readme(between: re.Match[str]) -> str:
    """Sections of the README, with links as from a page in docs."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    begin, end = (text.index(f"\n## {heading}\n") for heading in between.groups())
    text = re.sub(r"(?<=\]\()(?![a-z]+:|#|docs/)", "../", text[begin:end])
    return re.sub(r'(\]\(|src="|srcset=")docs/', r"\1", text)


def _named(link: re.Match[str]) -> str:
    text, target = link.groups()
    if not (ROOT / target).exists():
        return link.group()  # a strict build refuses it
    return f"`{target}`" if text.strip("`/") in target else f"{text} (`{target}`)"
