"""Hooks of the docs site: the order of its pages, and links that leave the docs."""

import re
from pathlib import Path
from typing import Any

ORDER = {
    "Tutorials": ["index.md", "own_environment.md", "ladder.md", "fifteen_steps.md"],
    "How to": [
        *("train.md", "environments.md", "images.md", "evaluate.md", "watch.md", "report.md", "doctor.md"),
        *(
            "hyperparameters.md",
            "tune.md",
            "modify.md",
            "offline.md",
            "goals.md",
            "callbacks.md",
            "cluster.md",
            "deploy.md",
        ),
        *("deploy.md", "export.md", "push.md", "sb3.md", "coming_from.md", "faq.md"),
    ],
    "Reference": ["configuration.md", "api.md", "metrics.md", "results.md", "performance.md", "glossary.md"],
    "Explanation": ["algorithm.md", "concepts.md", "reliability.md", "deviations.md"],
    "Maintainers": ["architecture.md", "maintaining.md"],
}
"""The pages in reading order. One that is not written yet is left out; one that is not listed goes to the end."""
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
    return config


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Turn a link to a file of the repository into the name of that file.

    A page other than the first is built into a folder of its own: images in raw HTML, which MkDocs leaves alone, are
    looked for one level up.
    """
    if page is not None and page.file.src_uri != "index.md":
        markdown = re.sub(r'(src|srcset)="(?!https?:|data:|/|\.\./)', r'\1="../', markdown)
    return re.sub(r"\[([^\]]*)\]\(\.\./([^)#]+)(?:#L\d+)?\)", _named, markdown)


def _named(link: re.Match[str]) -> str:
    text, target = link.groups()
    if not (ROOT / target).exists():
        return link.group()  # a strict build refuses it
    return f"`{target}`" if text.strip("`/") in target else f"{text} (`{target}`)"
