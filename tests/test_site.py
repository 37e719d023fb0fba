"""The site: every link leads somewhere, nothing comes from elsewhere, every number is a stored one, no folder of
anybody else's is touched."""

from __future__ import annotations

import csv
import functools
import json
import re
import shutil
import sys
from collections import Counter
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import nbformat
import pandas as pd
import pytest
from typer.testing import CliRunner

from fedlib import algorithms, cli, experiments
from fedlib.base.errors import BadValue, FedlibError
from fedlib.base.files import CHECKOUT
from fedlib.reports import site as site_module
from fedlib.reports.notebooks import without_solutions
from fedlib.reports.site import build
from fedlib.reports.site.facts import Saved
from fedlib.reports.site.items import commands, duration
from fedlib.reports.site.notebook import mathml
from fedlib.runs.store import Store
from fedlib.spec import RunSpec

TABLE3 = "pfedsim/table3_accuracy"
LOADED = {
    **{"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src", "audio": "src", "embed": "src"},
    **{"link": "href", "object": "data", "image": "href", "use": "href", "input": "src", "track": "src"},
}  # attributes of tags that a browser follows by itself


class Page(HTMLParser):
    """What a page links to, loads and is made of."""

    def __init__(self, text: str):
        super().__init__()
        self.ids, self.links, self.loads, self.tags, self.rows, self.options = [], [], [], [], [], {}
        self.select, self.styles, self.inside = "", [], ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        values = {name: value or "" for name, value in attributes}
        self.tags.append(tag)
        self.inside = tag if tag in ("style", "script") else ""
        self.ids += [values["id"]] if "id" in values else []
        self.links += [values["href"]] if tag == "a" and "href" in values else []
        self.loads += [values[LOADED[tag]]] if LOADED.get(tag) in values else []
        self.loads += [values["srcset"]] if "srcset" in values else []
        self.styles += [values["style"]] if "style" in values else []
        self.select = values["name"] if tag == "select" else self.select
        if tag == "option":
            self.options.setdefault(self.select, []).append(values["value"])
        if tag == "tr" and "data-verdict" in values:
            self.rows.append({name[5:]: value.split("|") for name, value in values.items() if name.startswith("data-")})

    def handle_endtag(self, tag):
        self.inside = ""

    def handle_data(self, data):
        self.styles += [data] if self.inside == "style" else []


def pages_of(folder: Path) -> dict[str, Page]:
    """The pages of a site by name."""
    return {path.relative_to(folder).as_posix(): Page(path.read_text()) for path in sorted(folder.rglob("*.html"))}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The whole site of the results that come with fedlib."""
    folder = tmp_path_factory.mktemp("site") / "new" / "site"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDLIB_HOME", str(CHECKOUT))
        names = build(folder)
    return folder, names


@pytest.fixture(scope="module")
def pages(made):
    return pages_of(made[0])


@pytest.fixture(scope="module")
def rows(made):
    return list(csv.DictReader((made[0] / "results.csv").read_text().splitlines()))


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A project with one item at one scale; a function that makes its site, without what takes long."""
    for folder in ("results", "figures"):
        (tmp_path / f"home/{folder}/paper/pfedsim").mkdir(parents=True)
        for path in (CHECKOUT / f"{folder}/paper").glob(f"{TABLE3}.*"):
            shutil.copy(path, tmp_path / f"home/{folder}/paper/pfedsim")
    monkeypatch.setenv("FEDLIB_HOME", str(tmp_path / "home"))
    return functools.partial(build, travels=False, notebooks=False)


def broken(folder: Path, pages: dict[str, Page]) -> list[str]:
    """Internal links, and files to load, that lead nowhere."""
    found = []
    for name, page in pages.items():
        for link in [*page.links, *page.loads]:
            parts = urlsplit(link)
            if parts.scheme:
                continue
            path = ((folder / name).parent / unquote(parts.path)).resolve() if parts.path else folder / name
            target = path.relative_to(folder.resolve()).as_posix() if path.is_relative_to(folder.resolve()) else ""
            there = {parts.fragment, unquote(parts.fragment)}  # browsers try both
            if not path.is_file() or (parts.fragment and not there & set(pages[target or name].ids)):
                found.append(f"{name}: {link}")
    return found


def test_every_link_and_anchor_leads_somewhere(made, pages):
    assert len(pages) > 100 and sum(len(page.links) for page in pages.values()) > 2000
    assert broken(made[0], pages) == []


def test_a_broken_link_would_be_found(tmp_path):
    texts = {"a.html": '<a href="b.html#there">', "b.html": '<p id="here"><a href="../c.html"><img src="d.png">'}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    found = broken(tmp_path, {name: Page(text) for name, text in texts.items()})
    assert found == ["a.html: b.html#there", "b.html: ../c.html", "b.html: d.png"]


def test_nothing_is_loaded_from_elsewhere(made, pages):
    for name, page in pages.items():
        outside = [urlsplit(each).scheme for each in page.loads if urlsplit(each).scheme or each.startswith("//")]
        assert set(outside) <= {"data"}, name
        assert not re.search(r"url\(|@import", " ".join(page.styles)), name
        assert "base" not in page.tags and "iframe" not in page.tags, name
    assert not re.search(r"url\(|@import|@font-face", (made[0] / "style.css").read_text())


def test_only_the_first_page_has_a_script_and_it_is_its_own(made, pages):
    assert {name for name, page in pages.items() if "script" in page.tags} == {"index.html"}
    text = (made[0] / "index.html").read_text()
    assert not re.search(r"fetch\(|XMLHttpRequest|import\(|//[a-z]+\.[a-z]+/", text[text.index("<script>") :])


def test_every_page_fits_a_telephone_and_says_its_language(made):
    for path in made[0].rglob("*.html"):
        head = path.read_text()[:500]
        assert '<html lang="en">' in head and 'content="width=device-width, initial-scale=1"' in head
        assert re.search(r"<title>[^<]+</title>", head)


def test_every_picture_is_described(made):
    for path in made[0].rglob("*.html"):
        assert all(re.search(r'\balt="[^"]+"', tag) for tag in re.findall(r"<img\b[^>]*>", path.read_text())), path


def test_every_table_of_a_page_scrolls_in_a_box_of_its_own(made):
    for path in made[0].rglob("*.html"):
        text = path.read_text()
        assert text.count("<table") == len(re.findall(r'<div class="scroll" tabindex="0">\s*<table', text)), path


def test_there_is_a_page_for_every_item_method_and_notebook(pages):
    expected = {f"items/{name}.html" for name in experiments.names() if not experiments.find(name).draft}
    expected |= {f"methods/{name}.html" for name in algorithms.names()}
    notebooks = CHECKOUT / "notebooks"
    expected |= {f"notebooks/{p.relative_to(notebooks).with_suffix('.html')}" for p in notebooks.rglob("*.ipynb")}
    assert expected <= pages.keys()


# the scoreboard -------------------------------------------------------------------------------------------------------


def test_filters_offer_what_is_there_and_nothing_else(pages):
    page = pages["index.html"]
    assert page.options.keys() == {"paper", "method", "alpha", "point", "scale", "verdict"}
    for name, values in page.options.items():
        there = {value for row in page.rows for value in row[name]} - {""}
        assert values[0] == "" and set(values[1:]) == there and len(there) > 3, name


def test_the_scoreboard_has_every_claim_at_every_scale(pages):
    claims = 0
    for path in (CHECKOUT / "results").glob("*/*/*.json"):
        if path.parent.name not in ("runs", "notebooks"):
            claims += len(json.loads(path.read_text())["claims"])
    assert len(pages["index.html"].rows) == claims


def test_a_claim_is_found_by_the_methods_and_the_alpha_that_it_names(pages):
    claims = json.loads((CHECKOUT / f"results/paper/{TABLE3}.json").read_text())["claims"]
    (second,) = [claim for claim in claims if claim["claim"] == "FedRep is second at Dir(0.1)."]
    wanted = {
        "paper": "pfedsim",
        "scale": "paper: settings of the paper",
        "verdict": second["verdict"],
        "point": "post",
    }
    wanted |= {"method": "fedrep", "alpha": "Dir(0.1)"}
    rows = [row for row in pages["index.html"].rows if all(value in row[name] for name, value in wanted.items())]
    assert any(row["alpha"] == ["Dir(0.1)"] and "fedgen" not in row["method"] for row in rows)
    assert all("the largest that was run" in row["scale"] for row in rows)


# items ----------------------------------------------------------------------------------------------------------------


def test_table_3_says_claim_verdict_how_sure_and_which_command(made):
    text = (made[0] / f"items/{TABLE3}.html").read_text()
    summary = json.loads((CHECKOUT / f"results/paper/{TABLE3}.json").read_text())
    assert escape(experiments.find(TABLE3).claim) in text
    box = text[: text.index("Check it yourself")]
    verdicts = re.findall(r'<span class="chip [a-z ]+"><span aria-hidden="true">.</span> ([a-z ]+)</span>', box)
    assert verdicts[-len(summary["claims"]) :] == [claim["verdict"] for claim in summary["claims"]]
    value, low, high = summary["claims"][0]["margin"]
    assert f"Margin over the line that decides: {value:+.1f} [{low:+.1f}, {high:+.1f}]" in box
    assert summary["seeds"] in box
    command = re.sub(r"</?span>", "", text[text.index('<pre class="command">') : text.index("</pre>")])
    assert command.endswith(f">fedlib reproduce {TABLE3} --profile paper --finished --no-notebooks")
    assert text.index("Is it true here?") < text.index("Check it yourself") < text.index("<img")
    assert all(run in text for run in summary["runs"]) and summary["provenance"][0]["commit"] in text


def test_changed_settings_are_in_the_command():
    item = experiments.find(TABLE3)
    changed = {"methods": ["fedavg", "local"], "dataset": "folder:my pictures"}
    saved = Saved(item, "paper+odd", {"profile": "paper", "changed": changed, "runs": [], "path": Path("none.json")})
    (command, what), (why, _) = commands(saved)
    assert (
        command
        == f"fedlib reproduce {TABLE3} --profile paper --set methods=fedavg,local --set 'dataset=folder:my pictures'"
    )
    assert why == f"fedlib why {TABLE3} --profile paper+odd"
    assert what.endswith(f"from nothing {duration(item.minutes['paper'])} on 2 cores")


@pytest.mark.parametrize("minutes, words", [(0.5, "about a minute"), (89, "about 89 minutes"), (2500, "about 2 days")])
def test_times_are_said_in_round_units(minutes, words):
    assert duration(minutes) == words


def cells_of_table_3() -> pd.DataFrame:
    """The stored means of Table 3 at the paper's settings, by series, column and row."""
    return pd.read_csv(CHECKOUT / f"results/paper/{TABLE3}.cells.csv").set_index(["series", "column", "row"])


def test_paper_stands_beside_ours_with_difference_and_interval(made):
    text = (made[0] / f"items/{TABLE3}.html").read_text()
    table = text[text.index('<h2 id="numbers">') : text.index("</table>", text.index('<h2 id="numbers">'))]
    lines = [re.findall(r"<t[dh]>(.*?)</t[dh]>", line) for line in table.split("<tr")[1:]]
    names = ["setting", "method", "tested at", "paper", "ours", "difference", "95 % interval", "seeds", "runs"]
    cells = cells_of_table_3()
    ours = cells.loc["ours", "Dir(0.5)", "pfedsim"]
    assert lines[0] == names and len(lines) == 1 + len(cells.loc["ours"]) == 25
    expected = ["Dir(0.5)", "pfedsim", "post", "67.34 (0.36)", f"{ours['mean']:.2f}", f"{ours['mean'] - 67.34:+.2f}"]
    expected += [f"{ours['low']:.1f} to {ours['high']:.1f}", f"{ours['seeds']:.0f}"]
    (runs,) = [cells[-1] for cells in lines if cells[:-1] == expected]
    assert re.sub("<.*?>", "", runs) == ours["run_ids"]


def test_a_number_leads_to_its_runs_with_seed_and_curve(made):
    text = (made[0] / f"items/{TABLE3}.html").read_text()
    id = cells_of_table_3().loc["ours", "Dir(0.5)", "pfedsim"]["run_ids"].split()[0]
    assert f'<a class="run" href="#paper-{id}">{id}</a>' in text
    (row,) = [line for line in text.split("<tr")[1:] if f'id="paper-{id}"' in line]
    (stored,) = (CHECKOUT / "results/paper/runs").glob(f"{id}*.json")
    run = json.loads(stored.read_text())
    last = [tested for tested in run["history"] if tested["headline"]][-1]
    assert f"seed {run['spec']['seed']}</td>" in row
    assert f"{last['round']}:{100 * last['client_mean']:.2f}</td>" in row
    assert run["provenance"]["commit"] in row and run["partition"]["checksum"] in row


# numbers --------------------------------------------------------------------------------------------------------------


def test_every_number_is_found_in_a_stored_table(rows):
    stored = {}
    for profile, name in {(row["profile"], row["table"]) for row in rows}:
        frame = pd.read_csv(CHECKOUT / f"results/{profile}/{name}.csv", dtype=str, keep_default_na=False)
        stored[profile, name] = {column: set(frame[column]) for column in frame}
    assert len(rows) > 10_000
    for row in rows:
        columns = stored[row["profile"], row["table"]]
        of_means = row["table"].endswith(".cells")
        assert row["value"] in columns["mean" if of_means else row["measure"]]
        assert all(row[name] in {"", *columns.get(name, ())} for name in ("low", "high"))
        assert row["paper_value"] in {"", *columns.get("mean", ())}


def test_no_number_is_there_twice(rows):
    said = ("value", "unit", "low", "high", "paper_value", "runs")
    keys = Counter(tuple(value for name, value in row.items() if name not in said) for row in rows)
    assert {key for key, times in keys.items() if times > 1} == set()


def test_means_stand_beside_the_papers_numbers(rows):
    own = [row for row in rows if row["item"] == TABLE3 and row["profile"] == "paper" and row["unit"] == "%"]
    line = next(row for row in own if (row["method"], row["setting"]) == ("pfedsim", "Dir(0.5)"))
    mean = cells_of_table_3().loc["ours", "Dir(0.5)", "pfedsim"]["mean"]
    assert (float(line["value"]), line["paper_value"]) == (mean, "67.34")
    assert (line["point"], line["dataset"]) == ("post", "cifar10")
    assert len(own) == 24 and all(row["paper_value"] for row in own)


def test_run_ids_are_those_of_the_runs(rows):
    own = [row for row in rows if row["item"] == TABLE3 and row["profile"] == "paper" and row["unit"] == "fraction"]
    assert len(own) == len(pd.read_csv(CHECKOUT / f"results/paper/{TABLE3}.csv"))
    for row in own:
        (path,) = (CHECKOUT / "results/paper/runs").glob(f"{row['runs']}*.json")
        result = Store("paper", CHECKOUT / "results").get(RunSpec.from_dict(json.loads(path.read_text())["spec"]))
        assert (result.spec.method, f"Dir({result.spec.partition['alpha']})") == (row["method"], row["setting"])
        assert result.final("pooled", row["point"]) == pytest.approx(float(row["value"]), rel=1e-5)


def test_tables_without_run_ids_are_shown_too(small, tmp_path):
    for path in (tmp_path / "home/results/paper/pfedsim").glob("*.csv"):
        pd.read_csv(path, dtype=str).drop(columns="run_ids", errors="ignore").to_csv(path, index=False)
    (tmp_path / f"home/results/paper/{TABLE3}.origins.csv").unlink()
    small(tmp_path / "site")
    rows = list(csv.DictReader((tmp_path / "site/results.csv").open()))
    assert len(rows) > 50 and {row["runs"] for row in rows} == {""}
    summary = json.loads((CHECKOUT / f"results/paper/{TABLE3}.json").read_text())
    assert all(run in (tmp_path / f"site/items/{TABLE3}.html").read_text() for run in summary["runs"])


def test_own_results_are_shown_where_none_are_published(small, tmp_path):
    for folder in ("results", "figures"):
        (tmp_path / f"home/{folder}/own").mkdir()
        (tmp_path / f"home/{folder}/paper").rename(tmp_path / f"home/{folder}/own/paper")
    small(tmp_path / "site")
    text = (tmp_path / f"site/items/{TABLE3}.html").read_text()
    assert "own/paper: settings of the paper" in text and (tmp_path / f"site/figures/own/paper/{TABLE3}.png").exists()
    assert f"fedlib why {TABLE3}</span> <span>--profile own/paper</span>" in text


def test_json_has_the_rows_of_the_csv(made, rows):
    stored = json.loads((made[0] / "results.json").read_text())
    assert list(stored["columns"]) == list(rows[0]) and len(stored["rows"]) == len(rows)
    for line, row in zip(stored["rows"], rows):
        for found, text in zip(line, row.values()):
            assert found is None if text == "" else float(text) == found if isinstance(found, float) else text == found


# reading --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["lessons/03_what_heterogeneity_breaks", "labs/lab5_shapley_and_pfedsv"])
def test_formulas_are_mathml(made, name):
    notebook = nbformat.read(CHECKOUT / f"notebooks/{name}.ipynb", as_version=4)
    source = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    formulas = re.findall(r"\$\$.+?\$\$|\$[^$]+\$", re.sub(r"`[^`]*`", "", source), re.DOTALL)
    text = (made[0] / f"notebooks/{name}.html").read_text()
    assert text.count("<math") == len(formulas) > 20
    outside = re.sub(r"<(pre|code)\b.*?</\1>", "", text, flags=re.DOTALL)
    assert "$" not in outside and not re.search(r"\\[a-z]{2}", outside)


def test_no_page_waits_for_mathjax(made):
    assert not [path for path in made[0].rglob("*.html") if re.search("mathjax", path.read_text(), re.I)]


@pytest.mark.parametrize("latex", [r"\frac{", r"\unheardof x", r"\left( a"])
def test_a_formula_that_cannot_be_said_is_named(latex):
    with pytest.raises(FedlibError, match=re.escape(repr(latex))):
        mathml(latex)


def test_formulas_are_said_as_they_are_meant():
    assert ">arg<" in mathml(r"\arg\min_w F") and ">⌈<" in mathml(r"\Big\lceil x \Big\rceil")
    assert "<script" not in mathml("<script>") and "<mo>&#x0003C;</mo>" in mathml("a<b")


def test_without_latex2mathml_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "latex2mathml.converter", None)
    with pytest.raises(FedlibError, match="needs latex2mathml for formulas: pip install latex2mathml"):
        mathml("x")


def test_labs_come_without_solutions_hidden_tests_and_outputs(made):
    path = CHECKOUT / "notebooks/labs/lab1_fedavg_and_partitions.ipynb"
    assert "### BEGIN SOLUTION" in path.read_text() and "### BEGIN HIDDEN TESTS" in path.read_text()
    notebook = nbformat.read(path, as_version=4)
    without_solutions(notebook)
    source = "\n".join(cell.source for cell in notebook.cells)
    assert "shares = generator.dirichlet" not in source and "def _hidden" not in source and "SOLUTION" not in source
    assert source.count("    raise NotImplementedError()") == 7 and "def dirichlet_partition(" in source
    assert not any(cell.get("outputs") for cell in notebook.cells)
    for page in (made[0] / "notebooks/labs").glob("lab*.html"):
        assert "generator.dirichlet" not in page.read_text() and "_hidden" not in page.read_text()


def test_a_method_has_readings_beside_source_and_what_travels(made, pages):
    text = (made[0] / "methods/pfedsim.html").read_text()
    assert "Readings of what the paper leaves open" in text and "<td>share of the rounds spent on FedAvg</td>" in text
    assert "mixing_weights" in text and "<dt>It sends</dt><dd>1.00 (model)</dd>" in text
    assert "../items/pfedsim/table3_accuracy.html" in pages["methods/pfedsim.html"].links
    assert "../notebooks/lessons/06_who_is_similar_to_whom.html" in pages["methods/pfedsim.html"].links
    number = (CHECKOUT / "fedlib/algorithms/pfedsim.py").read_text().splitlines().index("class PFedSim(Algorithm):") + 1
    assert re.search(rf'<span class="linenos"> *{number}</span><span class="k">class</span>', text)


def test_an_item_links_to_its_notebook_lesson_and_methods(pages):
    links = pages[f"items/{TABLE3}.html"].links
    assert f"../../notebooks/{TABLE3}.html" in links and "../../methods/fedfomo.html" in links
    assert "../../notebooks/lessons/06_who_is_similar_to_whom.html" in links
    assert "../../notebooks/lessons/09_pfedcs_step_by_step.html" in pages["items/pfedcs/notes.html"].links


# names with special characters ----------------------------------------------------------------------------------------


def test_special_characters_are_escaped_everywhere(small, tmp_path):
    bad = "<script>alert('x')</script> & \"y\" | <b>"
    folder = tmp_path / "home/results/paper/pfedsim"
    path = folder / "table3_accuracy.json"
    summary = json.loads(path.read_text())
    summary |= {"title": bad, "answer": bad, "seeds": bad, "shown": {"points": bad}}
    summary["claims"] = [claim | {"claim": bad, "evidence": bad} for claim in summary["claims"]]
    summary["provenance"][0]["device"] = summary["settings"][bad] = bad
    path.write_text(json.dumps(summary))
    for table in folder.glob("*.csv"):
        frame = pd.read_csv(table, dtype=str, keep_default_na=False).replace({"pfedsim": bad, "Dir(0.5)": bad})
        frame.to_csv(table, index=False)
    small(tmp_path / "site")
    found = pages_of(tmp_path / "site")
    assert broken(tmp_path / "site", found) == []
    assert {name for name, page in found.items() if "script" in page.tags} == {"index.html"}
    assert found["index.html"].tags.count("script") == 1
    item = (tmp_path / f"site/items/{TABLE3}.html").read_text()
    assert item.count("&lt;script&gt;alert(") > 30 and "alert('x')</script>" not in item
    written = list(csv.DictReader((tmp_path / "site/results.csv").open()))
    assert {row["method"] for row in written} >= {bad, "fedavg"}
    assert any(bad in line for line in json.loads((tmp_path / "site/results.json").read_text())["rows"])


def test_a_site_of_one_item_has_no_broken_link_and_says_what_was_not_run(small, tmp_path):
    names = small(tmp_path / "site")
    found = pages_of(tmp_path / "site")
    assert broken(tmp_path / "site", found) == [] and "lessons.html" not in names
    assert {name for name in names if name.endswith(".html")} == found.keys()
    assert "Not run yet" in (tmp_path / "site/items/pfedsim/table6_rho.html").read_text()
    assert "Not run yet" not in (tmp_path / f"site/items/{TABLE3}.html").read_text()


# the folder -----------------------------------------------------------------------------------------------------------


def test_a_folder_with_other_files_is_refused_and_left_as_it_is(small, tmp_path):
    folder = tmp_path / "mine"
    (folder / "deep").mkdir(parents=True)
    (folder / "thesis.tex").write_text("years of work")
    (folder / "index.html").write_text("my own page")
    with pytest.raises(BadValue, match=r"mine' is not accepted: it holds deep, index.html, thesis.tex, which no site"):
        small(folder)
    assert sorted(p.name for p in folder.rglob("*")) == ["deep", "index.html", "thesis.tex"]
    assert (folder / "index.html").read_text() == "my own page"


def test_a_foreign_file_in_an_earlier_site_is_refused_too(small, tmp_path):
    folder = tmp_path / "site"
    names = small(folder)
    (folder / "items/pfedsim/draft.txt").write_text("mine")
    before = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    with pytest.raises(BadValue, match="it holds items/pfedsim/draft.txt, which"):
        small(folder)
    assert {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()} == before and len(before) == len(names) + 2


@pytest.mark.parametrize("text", ["{}", "no json", '{"files": 3}', '["index.html"]'])
def test_a_manifest_of_somebody_else_makes_no_site(small, tmp_path, text):
    (tmp_path / "fedlib-site.json").write_text(text)
    with pytest.raises(BadValue, match="is not accepted"):
        small(tmp_path)
    assert (tmp_path / "fedlib-site.json").read_text() == text


def test_a_file_is_no_folder(small, tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(BadValue, match="expected a folder, or the name of a new one"):
        small(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"


def test_a_site_is_made_again_over_an_earlier_one(small, tmp_path):
    folder = tmp_path / "site"
    names = small(folder)
    before = {name: (folder / name).read_bytes() for name in names}
    old = folder / "items/gone/old.html"
    old.parent.mkdir()
    old.write_text("of an earlier release")
    manifest = json.loads((folder / "fedlib-site.json").read_text())
    manifest["files"] += ["items/gone/old.html", "../home/results/paper/pfedsim/table3_accuracy.json"]
    (folder / "fedlib-site.json").write_text(json.dumps(manifest))
    (folder / "index.html").write_text("half of a pa")  # interrupted
    (folder / ".git").mkdir()
    (folder / ".git/config").write_text("kept")
    assert small(folder) == names and {name: (folder / name).read_bytes() for name in names} == before
    assert not old.parent.exists() and (folder / ".git/config").read_text() == "kept"
    assert (tmp_path / "home/results/paper/pfedsim/table3_accuracy.json").exists()  # a manifest reaches no other folder
    assert json.loads((folder / "fedlib-site.json").read_text())["files"] == names


def test_without_results_nothing_is_made(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDLIB_HOME", str(tmp_path / "home"))
    with pytest.raises(BadValue, match="run `fedlib reproduce` first"):
        build(tmp_path / "site")
    assert not (tmp_path / "site").exists()


def test_a_result_without_its_figure_is_named(small, tmp_path):
    (tmp_path / f"home/figures/paper/{TABLE3}.png").unlink()
    with pytest.raises(FedlibError, match=r"table3_accuracy.png is missing; `fedlib reproduce` makes it again"):
        small(tmp_path / "site")
    assert not (tmp_path / "site").exists()


# the command ----------------------------------------------------------------------------------------------------------


def test_the_command_makes_a_site_and_says_what_to_open(small, tmp_path, monkeypatch):
    monkeypatch.setattr(site_module, "build", small)
    result = CliRunner().invoke(cli.app, ["report", "--site", str(tmp_path / "site")])
    assert result.exit_code == 0, result.output
    assert re.search(rf"^\d+ pages, \d+ files; open {tmp_path}/site/index.html$", result.output.strip())
    assert (tmp_path / "site/index.html").exists()


@pytest.mark.parametrize(
    "arguments, why",
    [(["pfedsim"], "paper = 'pfedsim' is not"), (["--scoreboard"], "--scoreboard = True is not accepted")],
)
def test_the_command_takes_no_paper_with_a_site(tmp_path, arguments, why):
    result = CliRunner().invoke(cli.app, ["report", *arguments, "--site", str(tmp_path / "site")])
    assert result.exit_code == 2 and why in result.output and not (tmp_path / "site").exists()
