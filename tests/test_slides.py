"""Lessons are slides as well: a dozen each, short enough for the last row, and in one file that needs no network."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from helpers import LESSONS, cells, text_of

from fedlib.base.files import CHECKOUT

WORDS, TABLE, LINES, ROWS = 65, 110, 14, 10  # of text, of a table in it, of what is printed, of a table of results
FORMULA, MARKDOWN_TABLE = re.compile(r"\$\$.+?\$\$", re.DOTALL), re.compile(r"^\|.*\n?", re.MULTILINE)
SETTINGS = CHECKOUT / "notebooks" / "labs" / "slides.py"


def slides(path) -> list[list[dict]]:
    """The cells of every slide, notes and fragments included."""
    found = []
    for cell in cells(path):
        kind = cell["metadata"]["slideshow"]["slide_type"]
        if kind in ("slide", "subslide"):
            found.append([cell])
        elif kind != "skip":
            found[-1].append(cell)
    return found


def kind_of(cell: dict) -> str:
    return cell["metadata"]["slideshow"]["slide_type"]


def words(text: str) -> int:
    """A formula in a line counts as one word, one on its own as none."""
    return len(re.findall(r"\w\S*", re.sub(r"\$[^$]+\$", "x", MARKDOWN_TABLE.sub("", FORMULA.sub("", text)))))


def shown(cell: dict) -> str:
    """What of a code cell is on its slide: one picture, one table, or lines of text."""
    kinds = [kind for output in cell["outputs"] for kind in output.get("data", {})]
    return next((kind for kind in ("image/svg+xml", "image/png", "text/html") if kind in kinds), "text")


def height(cell: dict) -> int:
    """Lines that a code cell prints; rows of its table."""
    if shown(cell) == "text/html":
        tables = ["".join(output.get("data", {}).get("text/html", "")) for output in cell["outputs"]]
        return next(table for table in tables if table).count("<tr")
    return sum("".join(output.get("text", "")).count("\n") for output in cell["outputs"])


each_lesson = pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)


@each_lesson
def test_a_lesson_has_about_a_dozen_slides_that_begin_with_its_title_and_end_with_what_to_remember(path):
    own = slides(path)
    assert 9 <= len(own) <= 16
    assert text_of(own[0]).startswith("# ") and kind_of(own[0][0]) == "slide"
    assert "## What to remember" in text_of([cell for slide in own[-3:] for cell in slide])


@each_lesson
def test_a_slide_is_short(path):
    for slide in slides(path):
        seen = [cell for cell in slide if kind_of(cell) != "notes"]
        code = [cell for cell in seen if cell["cell_type"] == "code"]
        text = text_of(seen)
        tables = MARKDOWN_TABLE.findall(text)
        assert words(text) <= WORDS, f"{words(text)} words: {text}"
        assert len(re.findall(r"\w\S*", "".join(tables))) <= TABLE, f"a large table: {text}"
        assert len(code) + bool(tables) <= 1, f"more than one picture, table or code: {text}"
        assert all(height(cell) <= (ROWS if shown(cell) == "text/html" else LINES) for cell in code), text


@each_lesson
def test_notes_are_a_few_sentences(path):
    notes = [cell for slide in slides(path) for cell in slide if kind_of(cell) == "notes"]
    assert notes and all(0 < words(text_of([cell])) <= 80 for cell in notes), [words(text_of([n])) for n in notes]


def test_an_export_is_one_file_that_needs_no_network(tmp_path):
    """Scripts, styles, pictures and formulas are in it: nothing that a browser would fetch is left."""
    path = next(path for path in LESSONS if r"\arg\\min" in path.read_text("utf-8"))  # MathML knows no \arg
    options = ["--to", "slides", "--config", str(SETTINGS), "--output-dir", str(tmp_path), str(path)]
    subprocess.run([sys.executable, "-m", "nbconvert", *options], check=True, capture_output=True)
    page = (tmp_path / f"{path.stem}.slides.html").read_text("utf-8")
    body = re.sub(r"<(script|style)\b.*?</\1>", "", page, flags=re.DOTALL).partition("</head>")[2]
    styles = "".join(re.findall(r"<style\b.*?</style>", page, flags=re.DOTALL))
    assert not re.findall(r"<link\b|<script\b[^>]*\bsrc=", page) and not re.findall(r"<img\b[^>]*src=\"(?!data:)", body)
    assert not re.findall(r"@import|url\((?!['\"]?data:|#)[^)]*\)", styles)
    assert "Reveal.initialize" in page and "<math" in body
    assert not re.search(r"[$\\]", re.sub(r"<pre>.*?</pre>", "", body, flags=re.DOTALL)), "a formula as it was written"
    own = slides(path)
    assert len(re.findall(r"<section[^>]*>", body)) == len(own) + sum(kind_of(slide[0]) == "slide" for slide in own)
    assert body.count('<aside class="notes">') == sum(kind_of(cell) == "notes" for slide in own for cell in slide)
