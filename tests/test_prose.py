"""Every decimal number in prose is printed or set in its notebook, or stands in a result: no text goes stale unseen."""

import csv
import html
import json
import re
from functools import cache
from pathlib import Path

import pytest

from fedlib.experiments import find, names

PROJECT = Path(__file__).parents[1]
PAGES = [PROJECT / "README.md", PROJECT / "results" / "README.md", *sorted((PROJECT / "notebooks").glob("*/*.ipynb"))]
PAPERS = ("evaluation", "fedsimsup", "head_to_head", "pfedcs", "pfedsim", "pfedsv")
LINK = re.compile(rf"\b({'|'.join(PAPERS)})\.md\)")
NUMBER = re.compile(r"(?<![\w.])[-+−]?(\d+\.\d+)(?![\w]|\.\d)")
N = r"[-+−]?\d+\.\d+"
INTERVAL = re.compile(rf"(?:(?<![\w.]){N}(?: %| points?)? \(?)?\\?\[{N},\s+{N}\\?\]")
SENTENCE = re.compile(r"\n|(?<=[.:;])\s(?=[A-Z*`$(])")
# What is no result: addresses, numbers of sections and versions, commands, settings beside their letter.
NO_RESULT = re.compile(
    r"```.*?```|https?://\S+|\]\([^)]*\)|(?i:arxiv)[: ]*\d{4}\.\d+|10\.\d{4,}/\S+|`[^`\n]*[=-][^`\n]*`|Dir\([\d., ]+\)"
    r"|(\\(alpha|beta|delta|eta|lambda|mu|rho|sigma|tau)|[αβδηλμρστ]|lr|lam) ?= ?\d+\.\d+"
    r"|(§|Sec\.|Sections?|App\.|Appendix|Python|CC BY) ?[A-Z]?\.?\d[\d.]*((,| and) [A-Z]?\.?\d[\d.]*)*",
    flags=re.S,
)
RESULT = re.compile(r"\d ?%|points|AUC|seed|median|ratio ")  # what a sentence on results has, and one on a toy has not
COMMON = """with from that this than which have each before after paper ours points claim client clients mean over
percent round rounds intervals seeds seed images against"""


def words(text):
    """The words that a sentence and a line of an output may share, names of methods written alike."""
    for written, name in (("fedavg+ft", "fedavg_ft"), ("per-fedavg", "perfedavg")):
        text = text.lower().replace(written, name)
    return set(re.findall(r"[a-z_]{4,}", text)) - set(COMMON.split())


def lines(cell):
    """What a code cell sets and prints, line by line; a row of a table is one."""
    texts = ["".join(cell["source"])]
    for output in cell["outputs"]:
        data = output.get("data", {})
        table = "".join(data.get("text/html", "")).replace("\n", " ").replace("</tr>", "\n")
        plain = output.get("text") or data.get("text/markdown") or data.get("text/plain") or ""
        texts.append(html.unescape(re.sub("<[^>]+>", " ", table)) or "".join(plain))
    return [line for text in texts for line in re.split(r"\n|; ", text)]


@cache
def stored(where):
    """What the papers' printed tables say and what stored results found, line by line."""
    paper, item = where.split("/")
    tables = (PROJECT / "fedlib/experiments/paper_tables").glob(f"{paper}_*.csv")
    saved = [json.loads(path.read_text()) for path in (PROJECT / "results").glob(f"*/{paper}/{item}.json")]
    texts = [each.get("answer") or "" for each in saved] + [c["evidence"] for each in saved for c in each["claims"]]
    printed = [" ".join(row) for table in tables for row in csv.reader(table.open())]
    return printed + [line for text in texts for line in re.split(r"\n|; ", text)]


def known(where, cells=()):
    """Of every line that a page may quote: the numbers on it, as they are printed, without signs, and its words."""
    texts = [line for cell in cells if cell["cell_type"] == "code" for line in lines(cell)] + stored(where)
    if where in names():
        texts += [f"{key} {value}".replace("_", " ").replace("lr", "learning rate", 1)
                  for each in find(where).settings.values() for key, value in each.items()]  # fmt: skip
    return [(NUMBER.findall(text), words(text)) for text in texts if NUMBER.search(text)]


def holds(numbers, shared, rows):
    """Whether an interval stands, in its rounding and with what it is of, on a line; whether a single number is printed
    as it is on a line that shares a word with its sentence."""
    if len(numbers) == 1:
        return any(numbers[0] in row and (names & shared or not names) for row, names in rows)
    ends = [numbers, [*numbers[:-2], *numbers[:-3:-1]]]  # a lead of one is a lag of the other
    near = [[(float(n), 0.5 / 10 ** len(n.partition(".")[2]) + 1e-9) for n in way] for way in ends]
    return any(
        all(abs(float(there) - n) <= off for there, (n, off) in zip(row[i:], way))
        for row, _ in rows
        for i in range(len(row) - len(numbers) + 1)
        for way in near
    )


def said(text, every):
    """The numbers of a text, each interval with what it is of, and their sentence; if not every, those of results: toys
    are computed in formulas, or have no unit."""
    text = NO_RESULT.sub(" ", text if every else re.sub(r"\$\$[^$]+\$\$|\$[^$\n]+\$", " ", text))
    for sentence in SENTENCE.split(text):
        if every or RESULT.search(sentence):
            intervals = [NUMBER.findall(each.group()) for each in INTERVAL.finditer(sentence)]
            single = [[number] for number in NUMBER.findall(INTERVAL.sub(" ", sentence))]
            yield from ((numbers, sentence) for numbers in intervals + single)


@cache
def checked(path):
    """(numbers, sentence, lines where they may stand) of a page; a README's paragraph on a paper links to its page."""
    if path.suffix != ".ipynb":
        paragraphs = re.sub(r"\n(?![\n*|])", " ", path.read_text()).split("\n")
        texts = [(text, known(f"{paper}/*")) for text in paragraphs for paper in LINK.findall(text)]
    else:
        cells = json.loads(path.read_text())["cells"]
        rows = known(f"{path.parent.name}/{path.stem}", cells)
        texts = [("".join(cell["source"]), rows) for cell in cells if cell["cell_type"] == "markdown"]
    every = path.parent.name in PAPERS
    return [(numbers, sentence, rows) for text, rows in texts for numbers, sentence in said(text, every)]


@pytest.mark.parametrize("path", PAGES, ids=lambda p: str(p.relative_to(PROJECT).with_suffix("")))
def test_decimals_in_prose_stand_in_outputs_results_or_settings(path):
    stale = [f"{' '.join(n)}: {s.strip()}" for n, s, rows in checked(path) if not holds(n, words(s), rows)]
    assert not stale, "\n".join(["print it in a cell, in an `answer`, or leave it out:", *stale])


def test_most_wrong_digits_would_be_noticed():
    """With another last digit, most numbers are found nowhere: the check is not so lenient that anything passes."""
    every = [each for path in PAGES for each in checked(path)]
    wrong = [([*n[:-1], n[-1][:-1] + str((int(n[-1][-1]) + 1) % 10)], words(s), rows) for n, s, rows in every]
    noticed = sum(not holds(*each) for each in wrong)
    assert noticed > 0.85 * len(every) > 360, f"{noticed} of {len(every)}"


# words in whose place those of the field stand
GONE = r"\bundecided\b|\b(not|cannot be|can be|are|is) told (apart|from)\b|\bon the average\b|\bovernight\b"
GONE += r"|\bbootstrap|\bresampl|\bnone finished\b|\bdecided (otherwise|else)\b|\bline that decides\b"
GONE += r"|\blines? of [\w.%]+( points)? (is|are) ours\b|\btraining alone\b|\bclass scores?\b|\bone model for all\b"
GONE += r"|\bclasses a client\b(?! (has|had|of))|\ba client and round\b|\bworst tenth\b|\bthe simple thing\b"
GONE += r"|\b(points?|moments?) of the test\b|\bno numbers printed\b|\bDirichlet shares (than|is|are harder)\b"
GONE += r"|\bas mixed\b|\bFedAvg \+ FT\b|\bheadline claim\b|\bas everywhere here\b|\bdearer\b"
GONE += r"|\bby their means\b|\blast but two\b|\bsurely\b"
SOURCES = sorted((PROJECT / "fedlib").rglob("*.py"))


def gone(text):
    """The lines of a text with words that are no terms of the field."""
    return [line for line in text.split("\n") if re.search(GONE, line, flags=re.I)]


@pytest.mark.parametrize("page", [*PAGES, *sorted((PROJECT / "results").glob("*.md"))], ids=lambda path: path.stem)
def test_words_that_are_no_terms_of_the_field_do_not_return(page):
    text = page.read_text()
    if page.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        printed = [line for cell in cells if cell["cell_type"] == "code" for line in lines(cell)]
        text = "\n".join(["".join(cell["source"]) for cell in cells] + printed)
    assert not gone(text)


def test_strings_and_docstrings_have_the_terms_of_the_field():
    found = {
        path: [line for line in gone(path.read_text("utf-8")) if "Image.Resampling" not in line] for path in SOURCES
    }
    assert not {path: lines for path, lines in found.items() if lines}
