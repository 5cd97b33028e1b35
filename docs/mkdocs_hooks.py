# SPDX-License-Identifier: Apache-2.0
"""Hooks with which mkdocs builds the site (mkdocs.yml).

Files keep their paths in the repository, so that a relative link leads to the same place on the site and in a checkout.
A source file to which a page links becomes a page that shows it. The navigation is the index, docs/README.md.
"""

import re
from pathlib import Path

from mkdocs.structure.files import File, Files, InclusionLevel

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(?:\[([^][]*))?\]\((?!\w+:)([^)#\s]+)")
LANGUAGES = {".py": "python", ".cpp": "cpp", ".h": "cpp", ".sh": "bash"}
STATIC = (".css", ".png", ".svg")


def on_config(config):
    """A heading of the index becomes a section, with the pages in the first column of its table."""
    config.nav = []
    sections = re.split(r"^## (.*)\n", (ROOT / "docs" / "README.md").read_text(), flags=re.MULTILINE)[1:]
    for title, section in zip(sections[::2], sections[1::2], strict=True):
        cells = "\n".join(re.findall(r"^\|([^|]*)\|", section, flags=re.MULTILINE))
        if pages := [{text.strip("`"): resolved("docs/README.md", target)} for text, target in LINK.findall(cells)]:
            config.nav.append({title: pages})


def on_files(files, config):
    """The pages in docs/, the files to which they link, and so on."""
    paths = ["README.md", "docs/site.css", *(path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/**/*.md"))]
    for path in paths:  # grows
        if path.endswith(".md"):
            linked = (resolved(path, target) for _, target in LINK.findall((ROOT / path).read_text()))
            paths += dict.fromkeys(each for each in linked if (ROOT / each).is_file() and each not in paths)
    theme = [file for file in files if file.src_dir != config.docs_dir]
    return Files([*theme, *(site_file(path, config) for path in paths)])


def on_page_markdown(markdown, page, config, files):
    """Links to source files lead to their pages, and the file that a block of code names becomes its title."""

    def of_the_site(link):
        is_source = files.get_file_from_path(resolved(page.file.src_uri, link[2]) + ".md")
        return link[0] + ".md" * (is_source is not None)

    markdown = re.sub(r"^```(\w+) (\S.*)$", r'```\1 title="\2"', markdown, flags=re.MULTILINE)
    return LINK.sub(of_the_site, markdown)


def resolved(page: str, target: str) -> str:
    """The path of a file in the repository to which a page links."""
    return (ROOT / page).parent.joinpath(target).resolve().relative_to(ROOT).as_posix()


def site_file(path: str, config) -> File:
    suffix = Path(path).suffix
    if suffix in (".md", *STATIC):
        return File.generated(config, path, abs_src_path=str(ROOT / path))
    text = f"# `{path}`\n\n~~~~~~{LANGUAGES.get(suffix, 'text')}\n{(ROOT / path).read_text()}\n~~~~~~\n"
    hidden = "---\nsearch:\n  exclude: true\n---\n"
    return File.generated(config, f"{path}.md", content=hidden + text, inclusion=InclusionLevel.NOT_IN_NAV)
