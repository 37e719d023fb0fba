"""What students see of a graded lab: a page that loads nothing from the network and shows no endless outputs."""

from __future__ import annotations

import html
import re

import jinja2
from nbconvert import HTMLExporter
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath

from fedlib.lessons.whole import is_test

LINES, WIDTH = 60, 500  # of an output
TABLES = "<style>.rendered_html td, .rendered_html th { padding: 2px 9px; }</style>"  # else columns touch each other
PICTURES = {"image/png", "image/jpeg", "image/svg+xml"}
# in MathML: after what a minus is a sign, not a difference; and what \\overline becomes, a bar over one letter
SIGN = re.compile(r"(>(?:[(\[]|&#x0(?:0028|007B|002C|003D|2264|2190|00B7);)</mo>(?:<mspace[^>]*>)?)<mo>(?=&#x02212;)")
BAR = re.compile(r'<mover><mrow>((?:(?!<mover>).)*)</mrow><mo accent="true">&#x02015;</mo></mover>')


class _Formulas(IPythonRenderer):
    """nbconvert's own, but for formulas, which would wait for a script from the network: they are MathML."""

    def inline_math(self, body: str) -> str:
        return _formula(body, "inline")

    def block_math(self, body: str) -> str:
        return f'<span class="formula">{_formula(body, "block")}</span>'

    def latex_environment(self, name: str, body: str) -> str:
        return self.block_math(rf"\begin{{{name}}}{body}\end{{{name}}}")


def _formula(latex: str, display: str) -> str:
    """A formula as MathML; one that MathML cannot say is shown as it was written."""
    from latex2mathml.converter import convert  # comes with the extra "teach"

    as_written = f"<code>{html.escape(latex)}</code>"
    try:
        made = convert(latex, xmlns="", display=display).replace(' xmlns=""', "")  # headings would rename it
        made = SIGN.sub(r'\1<mo form="prefix">', made)
        made = BAR.sub(r'<mrow style="border-top: 0.06em solid; padding-top: 0.1em">\1</mrow>', made)
    except Exception:  # latex2mathml has a dozen kinds
        return as_written
    return as_written if re.search(r">\\[A-Za-z]+<", made) else made  # a command that it left as it is


class Page(HTMLExporter):
    """nbgrader's page, with formulas that need no script."""

    @jinja2.pass_context
    def markdown2html(self, context, source: str) -> str:
        return MarkdownWithMath(renderer=_Formulas(escape=False)).render(source)


def finished(page: str, exercises: dict[str, str], student: str) -> str:
    """nbgrader's page without scripts, with the student's name, and those of exercises for what it calls "Test cell".
    exercises: by test."""
    page = re.sub(r"<script\b.*?</script\s*>|<link\b[^>]*>", "", page, flags=re.DOTALL | re.IGNORECASE)
    page = page.replace("</head>", f"{TABLES}</head>", 1).replace("<h4>", f"<h4>{html.escape(student)}: ", 1)
    for test, exercise in exercises.items():
        page = page.replace(f'<a href="#{test}">Test cell</a>', f'<a href="#{test}">{html.escape(exercise)}</a>')
    return page


def tidied(cell: dict) -> dict:
    """A cell that ran, with short outputs. What a test writes to stderr, warnings above all, costs no points: nbgrader
    would take it for an error."""
    for output in cell.get("outputs", ()):
        if output["output_type"] == "stream":
            output["text"] = _short(output["text"])
            output["name"] = "stdout" if is_test(cell) else output["name"]
        elif output["output_type"] == "error":
            output["traceback"] = _short("\n".join(output["traceback"])).split("\n")
        else:
            data = output["data"]
            if "text/html" in data and _short(data["text/html"]) != data["text/html"]:
                del data["text/html"]
            kept = {"text/plain", "text/html"} | PICTURES
            output["data"] = {k: _short(v) if k == "text/plain" else v for k, v in data.items() if k in kept}
    return cell


def _short(text: str) -> str:
    """A text whose middle is left out if it is long, and so with each of its lines."""
    lines = [
        line if len(line) <= WIDTH else f"{line[:WIDTH]} ... ({len(line)} characters)" for line in text.split("\n")
    ]
    if len(lines) > LINES:
        left = len(lines) - LINES
        lines[LINES // 2 : -LINES // 2] = [f"... {left} lines are left out ..."]
    return "\n".join(lines)
