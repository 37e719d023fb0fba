"""Points as tables that learning platforms import, one row a student, and what cost a class most.

Moodle (Grades > Import > CSV) finds students by an e-mail address or an ID number, Canvas by its own ID or by a login.
File names hold Canvas's ID; the rest comes from `students.csv`, which the lecturer puts into the course's folder: the
list of participants or of grades, as the platform exports it.
"""

from __future__ import annotations

import csv
import io
import unicodedata
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from fedlib.base.errors import FedlibError
from fedlib.base.files import write_atomically
from fedlib.lessons.collect import Submission

CANVAS = ["Student", "ID", "SIS User ID", "SIS Login ID", "Section"]
MOODLE = ["Full name", "ID number", "Email address"]
FIRST, LAST = ("First name",), ("Last name", "Surname")  # Moodle has had both


def read_table(path: Path, needed: list[str]) -> pd.DataFrame:
    """A CSV file as texts, also as spreadsheets save it: with semicolons or tabs, a byte order mark, Windows' letters.
    Raises FedlibError if it is no such file, or none of the needed groups of columns, "a|b" for either, is there."""
    try:
        content = path.read_bytes()
        try:
            text = content.decode("utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig")
        except UnicodeDecodeError:
            text = content.decode("cp1252", errors="replace")
        if "\0" in text:
            raise ValueError("it is not a table of texts")
        first = next(iter(text.splitlines()), "")
        separator = max(",;\t", key=first.count)
        rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True))
        rows = [row for row in rows if any(row)]
        header = [name.strip() for name in rows[0]] if rows else []
        missing = [name for name in needed if not set(name.split("|")) & set(header)]
        if missing:
            raise ValueError(f"it has no column {missing[0].replace('|', ' or ')!r}")
        if wrong := next((row for row in rows if len(row) != len(header)), None):
            raise ValueError(f"the row {separator.join(wrong)[:60]!r} has {len(wrong)} of {len(header)} columns")
    except (OSError, ValueError, csv.Error) as error:
        why = getattr(error, "strerror", None) or error
        raise FedlibError(f"{path} cannot be read: {why}; mend it or move it away") from None
    return pd.DataFrame(rows[1:], columns=header)


def write_table(path: Path, table: pd.DataFrame) -> None:
    """CSV in UTF-8 with a byte order mark, without which Excel shows wrong letters."""
    write_atomically(path, table.to_csv(index=False).encode("utf-8-sig"))


def wide(points: pd.DataFrame, exercises: pd.DataFrame) -> tuple[pd.DataFrame, pd.Series]:
    """A row for each student, a column for each lab and exercise, and what can be reached in each column.

    points: student, lab, points, of; exercises: student, lab, exercise, points, of. Nothing handed in: an empty cell.
    """
    parts = exercises.assign(column=exercises["lab"] + ": " + exercises["exercise"])
    long = pd.concat([points.assign(column=points["lab"]), parts]).sort_values("lab", kind="stable")
    order = list(dict.fromkeys(long["column"]))
    table = long.pivot_table(index="student", columns="column", values="points", aggfunc="sum", observed=True)
    return table.reindex(columns=order), long.groupby("column")["of"].max().reindex(order)


def write_exports(folder: Path, points: pd.DataFrame, exercises: pd.DataFrame, found: Sequence = ()) -> list[str]:
    """moodle.csv and canvas.csv. found: all submissions, for Canvas's IDs are in file names. Answers with a line for
    each platform in use that will not know all students: it drops their points, and says so late or never."""
    table, most = wide(points, exercises)
    people, numbers = roster(folder), {one.student: one.number for one in found if one.platform == "Canvas"}
    known = [_person(student, numbers.get(student, ""), people) for student in table.index]
    possible = pd.DataFrame([dict.fromkeys(CANVAS, "") | {"Student": "    Points Possible"} | most.to_dict()])
    lines, columns = [], {name for row in people for name in row}
    for platform, heads, before in (("Moodle", MOODLE, []), ("Canvas", CANVAS, [possible])):
        rows = pd.DataFrame([[row.get(name, "") for name in heads] for row in known], columns=heads)
        rows[heads[0]], ids = list(table.index), heads[1:4]
        made = pd.concat([rows, table.reset_index(drop=True)], axis=1)
        write_table(folder / f"{platform.lower()}.csv", pd.concat([*before, made]))
        without = rows[(rows[ids] == "").all(axis=1)].iloc[:, 0]
        if len(without) and (columns & set(ids) or any(one.platform == platform for one in found)):
            named = f": {', '.join(without)}" if len(without) < len(rows) else ""
            lines.append(
                f"{platform} will not take the points of {len(without)} of {len(rows)} students: no {' or '.join(ids)} "
                f"in {platform.lower()}.csv, for students.csv {'does not know them' if people else 'is missing'}{named}"
            )
    return lines


def write_pages(folder: Path, found: Sequence[Submission]) -> None:
    """feedback/<lab>.zip: the pages of all students, named as the platform that their files came from takes them back
    (Moodle: *Upload multiple feedback files in a zip*; Canvas: *Re-Upload Submissions*)."""
    (folder / "feedback").mkdir(exist_ok=True)  # there is none if nothing could be graded
    for lab in sorted({one.lab for one in found}):
        with zipfile.ZipFile(folder / "feedback" / f"{lab}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            for one in found:
                page = folder / "feedback" / one.student / lab / f"{lab}.html"
                if one.lab == lab and page.is_file():
                    archive.write(page, f"{one.back}{lab}.html")


def roster(folder: Path) -> list[dict[str, str]]:
    """The rows of students.csv, if it is there. Raises FedlibError if it has no names."""
    path = folder / "students.csv"
    if not path.exists():
        return []
    table = read_table(path, ["Student|Full name|First name"])
    return [row for row in table.to_dict("records") if "Points Possible" not in row.get("Student", "")]


def _person(student: str, number: str, people: list[dict[str, str]]) -> dict[str, str]:
    """The one row of students.csv that fits by Canvas's number, else by name in either order; else what is known."""
    fits = [row for row in people if number and row.get("ID") == number]
    fits = fits or [row for row in people if _letters(student) in _names(row)]
    return fits[0] if len(fits) == 1 else {"ID": number}


def _names(row: dict[str, str]) -> set[str]:
    full = row.get("Student") or row.get("Full name") or ""
    last, _, first = full.partition(",")
    first = next((row[name] for name in FIRST if name in row), first)
    last = next((row[name] for name in LAST if name in row), last)
    return {_letters(text) for text in (full, f"{first}{last}", f"{last}{first}")} - {""}


def _letters(name: str) -> str:
    """A name without accents, blanks and capitals: platforms write it in different ways."""
    plain = unicodedata.normalize("NFKD", name.casefold())
    return "".join(letter for letter in plain if letter.isalnum())


def costliest(points: pd.DataFrame, exercises: pd.DataFrame) -> list[str]:
    """A line for each lab: the exercise that cost the class most points, on average over what could be graded."""
    lines, good = [], points.loc[points["problem"] == "", ["student", "lab"]]
    for lab, rows in exercises.merge(good).groupby("lab"):
        means = rows.assign(lost=rows["of"] - rows["points"]).groupby("exercise")[["lost", "of"]].mean()
        worst = means["lost"].idxmax()
        if means["lost"].max() > 0:
            lost, of = means.loc[worst]
            students = rows["student"].nunique()
            lines.append(f"{lab}: {worst} cost most, {lost:.1f} of {of:g} points on average over {students} students")
    return lines
