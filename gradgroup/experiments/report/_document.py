"""A report as blocks, and the two forms it is written in: a page of HTML, a text of Markdown.

The idea. The content is there once, as a list of blocks, so that both forms say the same. The page
is whole in itself: its figures are in it, and it asks nothing of the network.

Conventions. Text is plain, but for code between backticks, weight between pairs of stars, and links
as in Markdown. In the cells of a table lines may end.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from gradgroup.experiments.report._style import STYLE


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
            return f"{'#' * level} {_text(text)}"
        case Paragraph(text):
            return _text(text)
        case Items(items):
            return "\n".join(f"- {_text(item)}" for item in items)
        case Table():
            return _markdown_table(block)
        case Picture(_, png, caption):
            place = png.relative_to(folder).as_posix()
            return f"![{_text(_plain(caption))}]({place})\n\n*{_text(caption)}*"


def _markdown_table(table: Table) -> str:
    rule = ["---:" if k in table.numbers else "---" for k in range(len(table.head))]
    head, *rows = [[_markdown_cell(cell) for cell in row] for row in (table.head, *table.rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, rule, *rows))


def _markdown_cell(text: str) -> str:
    return _text(text).replace("|", "\\|").replace("\n", "<br>")


def _text(text: str) -> str:
    """With nothing in it that Markdown would take for a tag."""
    return "".join(
        part if is_code else part.replace("&", "&amp;").replace("<", "&lt;")
        for is_code, part in _parts(text)
    )


def _parts(text: str) -> list[tuple[bool, str]]:
    """What is code, with its backticks, and what is not."""
    return [(bool(k % 2), part) for k, part in enumerate(re.split(r"(`[^`]+`)", text))]


def _plain(text: str) -> str:
    return re.sub(r"[`*\[\]]", "", text)


# HTML.


def to_html(blocks: Sequence[Block], title: str) -> str:
    """The page, with everything in it."""
    body = "\n".join(_parts_of(blocks))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n"
        f"<body>\n{body}\n</body>\n</html>\n"
    )


def _parts_of(blocks: Sequence[Block]) -> list[str]:
    """All blocks; before the first chapter, links to all of them."""
    chapters = [block for block in blocks if isinstance(block, Heading) and block.level == 2]
    links = "\n".join(f'<a href="#{_name(each)}">{_inline(each.text)}</a>' for each in chapters)
    start = blocks.index(chapters[0]) if chapters else len(blocks)
    parts = [_html(block) for block in blocks]
    return [*parts[:start], f"<nav>\n{links}\n</nav>", *parts[start:]]


def _name(heading: Heading) -> str:
    return re.sub(r"\W+", "-", heading.text.lower()).strip("-")


def _html(block: Block) -> str:
    match block:
        case Heading(2, text):
            return f'<h2 id="{_name(block)}">{_inline(text)}</h2>'
        case Heading(level, text):
            return f"<h{level}>{_inline(text)}</h{level}>"
        case Paragraph(text):
            return f"<p>{_inline(text)}</p>"
        case Items(items):
            return "<ul>" + "".join(f"<li>{_inline(item)}</li>" for item in items) + "</ul>"
        case Table():
            return _scrolled(_html_table(block))
        case Picture(svg, _, caption):
            drawing = _scrolled(_drawing(svg, caption))
            return f"<figure>{drawing}<figcaption>{_inline(caption)}</figcaption></figure>"


def _scrolled(inside: str) -> str:
    """What may be wider than the page; it is scrolled by keys, too."""
    return f'<div class="scroll" tabindex="0">{inside}</div>'


def _html_table(table: Table) -> str:
    rows = "".join(f"<tr>{_cells(row, table.numbers)}</tr>" for row in table.rows)
    head = _cells(table.head, table.numbers, "th")
    has_verdicts = any(cell in MARKS for row in table.rows for cell in row)
    kind = ' class="verdicts"' if has_verdicts else ""
    return f"<table{kind}><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _cells(row: Sequence[str], numbers: frozenset[int], tag: str = "td") -> str:
    return "".join(_cell(text, k in numbers, tag) for k, text in enumerate(row))


# A verdict is to be found at a glance.
MARKS = {
    "holds": "holds",
    "holds partly": "partly",
    "does not hold": "not",
    "cannot be told": "open",
}


def _cell(text: str, is_number: bool, tag: str) -> str:
    inside = _inline(text).replace("\n", "<br>")
    if text in MARKS:
        return f'<{tag} class="verdict {MARKS[text]}"><span>{inside}</span></{tag}>'
    return f'<{tag} class="n">{inside}</{tag}>' if is_number else f"<{tag}>{inside}</{tag}>"


def _inline(text: str) -> str:
    return "".join(
        f"<code>{html.escape(part[1:-1], quote=False)}</code>" if is_code else _prose(part)
        for is_code, part in _parts(text)
    )


def _prose(text: str) -> str:
    # A line must not begin with the sign of a multiplication.
    escaped = html.escape(text, quote=False).replace(" ×", "&nbsp;×")
    escaped = re.sub(r"\[([^\]]+)\]\((https://[^)\s]+)\)", r'<a href="\2">\1</a>', escaped)
    return re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", escaped)


def _drawing(svg: Path, caption: str) -> str:
    """The drawing itself, in the page, without what is said of its maker.

    Its names are made its own, or those of several drawings would clash.
    """
    text = svg.read_text(encoding="utf-8")
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    text = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{svg.stem}-", text)
    label = html.escape(_plain(caption))
    return text.replace("<svg", f'<svg role="img" aria-label="{label}"', 1)
