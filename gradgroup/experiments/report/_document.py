"""A report as blocks, and the two forms it is written in: a page of HTML, a text of Markdown.

The idea. The content is there once, as a list of blocks, so that both forms say the same. The page
is whole in itself: its figures are in it, and it asks nothing of the network.

Conventions. Text is plain, but for code between backticks, weight between pairs of stars, and links
as in Markdown.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple


class Heading(NamedTuple):
    """A heading of level 1 or more."""

    level: int
    text: str


class Paragraph(NamedTuple):
    """Some sentences."""

    text: str


class Items(NamedTuple):
    """A list."""

    items: tuple[str, ...]


class Table(NamedTuple):
    """A table; columns of numbers stand to the right."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: frozenset[int] = frozenset()
    """Which columns are numbers."""


class Picture(NamedTuple):
    """A figure that lies beside the report, as PNG and as SVG."""

    svg: Path
    png: Path
    caption: str


Block = Heading | Paragraph | Items | Table | Picture


# Markdown.


def to_markdown(blocks: Sequence[Block], folder: Path) -> str:
    """The text; pictures are links, relative to the folder it will lie in."""
    return "\n\n".join(_markdown(block, folder) for block in blocks) + "\n"


def _markdown(block: Block, folder: Path) -> str:
    match block:
        case Heading(level, text):
            return f"{'#' * level} {text}"
        case Paragraph(text):
            return text
        case Items(items):
            return "\n".join(f"- {item}" for item in items)
        case Table():
            return _markdown_table(block)
        case Picture(_, png, caption):
            return f"![{_plain(caption)}]({png.relative_to(folder).as_posix()})\n\n*{caption}*"


def _markdown_table(table: Table) -> str:
    rule = ["---:" if k in table.numbers else "---" for k in range(len(table.head))]
    escaped = [[cell.replace("|", "\\|") for cell in row] for row in (table.head, *table.rows)]
    head, *rows = escaped
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, rule, *rows))


def _plain(text: str) -> str:
    return re.sub(r"[`*\[\]]", "", text)


# HTML.

STYLE = """
:root { color-scheme: light; --line: #d8d8d8; --soft: #555; }
body { font: 16px/1.55 system-ui, sans-serif; color: #1a1a1a; background: #fff;
  max-width: 62rem; margin: 2.5rem auto; padding: 0 1.2rem; }
h1 { font-size: 1.9rem; line-height: 1.2; } h2 { margin-top: 2.6rem; } h3 { margin-top: 1.8rem; }
table { border-collapse: collapse; margin: 1rem 0; font-size: .92rem; display: block;
  overflow-x: auto; }
th, td { padding: .35rem .7rem; border-bottom: 1px solid var(--line); text-align: left;
  vertical-align: top; }
th { border-bottom: 2px solid #999; } .n { text-align: right; font-variant-numeric: tabular-nums; }
figure { margin: 1.6rem 0; } figure svg { width: 100%; height: auto; }
figcaption { color: var(--soft); font-size: .92rem; }
code { background: #f3f3f3; padding: .05em .3em; border-radius: 3px; font-size: .92em; }
.verdict { white-space: nowrap; font-weight: 600; } .holds { color: #00664b; }
.partly { color: #8a5a00; } .not { color: #a02c00; }
"""


def to_html(blocks: Sequence[Block], title: str) -> str:
    """The page, with everything in it."""
    body = "\n".join(_html(block) for block in blocks)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n"
        f"<body>\n{body}\n</body>\n</html>\n"
    )


def _html(block: Block) -> str:
    match block:
        case Heading(level, text):
            return f"<h{level}>{_inline(text)}</h{level}>"
        case Paragraph(text):
            return f"<p>{_inline(text)}</p>"
        case Items(items):
            return "<ul>" + "".join(f"<li>{_inline(item)}</li>" for item in items) + "</ul>"
        case Table():
            return _html_table(block)
        case Picture(svg, _, caption):
            below = f"<figcaption>{_inline(caption)}</figcaption>"
            return f"<figure>{_drawing(svg, caption)}{below}</figure>"


def _html_table(table: Table) -> str:
    rows = "".join(f"<tr>{_cells(row, table.numbers)}</tr>" for row in table.rows)
    head = _cells(table.head, table.numbers, "th")
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _cells(row: Sequence[str], numbers: frozenset[int], tag: str = "td") -> str:
    return "".join(
        f"<{tag}{_class(cell, k in numbers)}>{_inline(cell)}</{tag}>" for k, cell in enumerate(row)
    )


# A verdict is to be found at a glance.
MARKS = {"holds": "holds", "holds partly": "partly", "does not hold": "not"}


def _class(cell: str, is_number: bool) -> str:
    if cell in MARKS:
        return f' class="verdict {MARKS[cell]}"'
    return ' class="n"' if is_number else ""


def _inline(text: str) -> str:
    escaped = html.escape(text, quote=False)
    escaped = re.sub(r"\[([^\]]+)\]\((https://[^)\s]+)\)", r'<a href="\2">\1</a>', escaped)
    escaped = re.sub(r"`([^`]+)`", r"<code>\1</code>", escaped)
    return re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", escaped)


def _drawing(svg: Path, caption: str) -> str:
    """The drawing itself, in the page; its names are made its own, or they would clash."""
    text = svg.read_text(encoding="utf-8")
    text = text[text.index("<svg") :]
    names = set(re.findall(r'\bid="([^"]+)"', text))
    for name in names:
        own = f"{svg.stem}-{name}"
        text = text.replace(f'id="{name}"', f'id="{own}"').replace(f"#{name})", f"#{own})")
        text = text.replace(f'"#{name}"', f'"#{own}"')
    label = html.escape(_plain(caption), quote=True)
    return text.replace("<svg", f'<svg role="img" aria-label="{label}"', 1)
