"""Lessons as slides, each in one file that needs no network:

    jupyter nbconvert --to slides --config notebooks/labs/slides.py --output-dir slides notebooks/lessons/*.ipynb

What is on a slide stands in the lessons: `slideshow.slide_type` in the metadata of cells. reveal.js is a copy that the
package sphinx-revealjs brings (extra `fedlib[teach]`), and formulas are MathML.
"""

import re
from importlib.util import find_spec
from pathlib import Path

from fedlib.lessons.feedback import Page

if (package := find_spec("sphinx_revealjs")) is None:
    raise SystemExit("error: slides need the package sphinx-revealjs: pip install -e '.[teach]'")
REVEAL = Path(package.submodule_search_locations[0], "_static", "revealjs")
LINES = 14  # of code and what it prints together; above it only the latter is shown
RICH = ("image/svg+xml", "image/png", "text/html")  # what of a cell is shown, if there is some
PART = r"^##? (?:\d+ )?(.+)$"


def of_reveal(name: str) -> str:
    """A file of reveal.js, to be written into the page; fonts that its themes would load are left out."""
    return re.sub(r"@import url\([^)]*\);?", "", (REVEAL / name).read_text("utf-8")).replace("</script", r"<\/script")


def on_slides(notebook, resources):
    """Of code its picture or its table alone, if it shows one; a slide without a heading names its part."""
    part = ""
    for cell in notebook.cells:
        kind = cell.metadata.get("slideshow", {}).get("slide_type")
        if kind == "subslide" and not cell.source.startswith("#"):
            cell.metadata.part = part
        if cell.cell_type == "markdown":
            known = cell.source.replace(r"\arg\min", r"\operatorname*{arg min}")  # to latex2mathml
            known = re.sub(r"\\[bB]ig(?=\\)", "", known)
            cell.source = re.sub(r"\$\$[^$]{150,}\$\$", lambda long: long[0].replace(r"\qquad", "$$\n\n$$"), known)
            part = [part, *re.findall(PART, cell.source, re.M)][-1]
        else:
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
            rich = [o for kind in RICH for o in cell.outputs if kind in o.get("data", ())]
            cell.outputs = rich[:1] or cell.outputs
            lines = sum(output.get("text", "").count("\n") for output in cell.outputs) + cell.source.count("\n") + 1
            cell.metadata.transient = {"remove_source": bool(rich) or lines > LINES}
    return notebook, resources


c = get_config()  # noqa: F821 (nbconvert brings it)
c.SlidesExporter.preprocessors = [on_slides]
c.SlidesExporter.extra_template_paths = [str(Path(__file__).parent)]
c.SlidesExporter.template_file = "slides.html.j2"
c.SlidesExporter.filters = {"of_reveal": of_reveal, "markdown2html": Page().markdown2html}
