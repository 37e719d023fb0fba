"""A notebook as the body of a page: nbconvert's markup without its scripts, formulas as MathML."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import jinja2
import nbformat
from nbconvert import HTMLExporter
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from nbformat import NotebookNode

from fedlib.base.errors import FedlibError
from fedlib.reports.notebooks import without_solutions

LONG = 30  # characters of LaTeX that may not fit on a telephone's line
# commands that latex2mathml leaves as they are: \arg, and delimiters after \big and the like
LEFT = re.compile(r">(\\(?:[A-Za-z]+|.))<")
SIGNS = {r"\arg": "arg", r"\|": "‖", r"\{": "{", r"\}": "}", r"\langle": "⟨", r"\rangle": "⟩"}
SIGNS |= {r"\lceil": "⌈", r"\rceil": "⌉", r"\lfloor": "⌊", r"\rfloor": "⌋"}
LINK = re.compile(r'href="([^":]+)\.ipynb(#[^"]*)?"')
FILE = re.compile(r'<a href="\.\./\.\./[^"]*"[^>]*>(.*?)</a>', re.DOTALL)  # of the project: source, results, README


def mathml(latex: str, display: bool = False) -> str:
    """A formula as MathML. Raises FedlibError for one that it cannot say, or where latex2mathml is missing."""
    try:
        from latex2mathml.converter import convert
    except ImportError as error:
        raise FedlibError("the site needs latex2mathml for formulas: pip install latex2mathml") from error
    try:
        made = convert(latex, display="block" if display else "inline")
    except Exception as error:  # latex2mathml has a dozen kinds
        raise FedlibError(f"the formula {latex!r} cannot be written as MathML: {type(error).__name__}") from error
    made = LEFT.sub(lambda sign: f">{SIGNS.get(sign[1], sign[1])}<", made)
    if unknown := LEFT.search(made):
        raise FedlibError(f"the formula {latex!r} cannot be written as MathML: {unknown[1]} is not known")
    kind = "formula" if display else "long" if len(latex) > LONG else ""
    return f'<span class="{kind}">{made}</span>' if kind else made


class Renderer(IPythonRenderer):
    """nbconvert's own, but for formulas, which would wait for a script from the network."""

    def inline_math(self, body: str) -> str:
        return mathml(body)

    def block_math(self, body: str) -> str:
        return mathml(body, display=True)

    def latex_environment(self, name: str, body: str) -> str:
        return mathml(rf"\begin{{{name}}}{body}\end{{{name}}}", display=True)


class Exporter(HTMLExporter):
    """nbconvert's template "basic", which loads nothing."""

    @jinja2.pass_context
    def markdown2html(self, context, source: str) -> str:
        return MarkdownWithMath(renderer=Renderer(escape=False)).render(source)

    def default_filters(self):
        yield from super().default_filters()
        # it would only see source that Pygments has escaped, and take half of all time for it
        yield "clean_html", lambda text: text


@functools.cache
def _exporter() -> Exporter:
    return Exporter(template_name="basic")


def body(path: Path) -> str:
    """A notebook's cells and outputs as HTML. Links to notebooks lead to their pages; those to other files of the
    project, which a site does not have, become plain text. Labs come without solutions.

    Raises FedlibError for a formula that MathML cannot say.
    """
    notebook = nbformat.read(path, as_version=4)
    if path.parent.name == "labs":
        without_solutions(notebook)
    _describe_pictures(notebook)
    try:
        made, _ = _exporter().from_notebook_node(notebook)
    except FedlibError as error:
        raise FedlibError(f"{path.parent.name}/{path.name}: {error}") from error
    return LINK.sub(lambda link: f'href="{link[1]}.html{link[2] or ""}"', FILE.sub(r"\1", made))


def _describe_pictures(notebook: NotebookNode) -> None:
    """Say of every picture which section it belongs to, for readers who cannot see it."""
    section = "the beginning"
    for cell in notebook.cells:
        headings = re.findall(r"^#+ (.+)$", cell.source, re.MULTILINE) if cell.cell_type == "markdown" else []
        section = headings[-1] if headings else section
        cell.metadata["alt"] = f"Figure in the section “{section}”"
