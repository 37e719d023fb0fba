"""What lies in a course's folder `submitted`: whose notebook, and of which lab, in the layouts of learning platforms.

    <student>/<lab>/<lab>.ipynb                                 by hand
    <name>_<number>_assignsubmission_file/<any>.ipynb           Moodle; in older versions with _ at the end
    <name>_<number>_assignsubmission_file_<any>.ipynb           Moodle, without folders
    <name>_<number>_<number>_<any>.ipynb, <name>_LATE_...       Canvas
    <lab> - <student>.ipynb, <student>_<lab>.ipynb, <student>.ipynb    loose files

Folders around these, as unpacked archives make them, do not matter.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from fedlib.lessons.whole import mark, read

NOTEBOOK = re.compile(r"\.ipynb(\.json|\.txt)?$", re.IGNORECASE)  # browsers add the second ending
MOODLE = re.compile(r"^(?P<name>.+)_(?P<number>\d+)_assignsubmission_(?:file|onlinetext)_?(?P<rest>.*)$")
CANVAS = re.compile(r"^(?P<name>[^_]+?)(?:_|(?=LATE_))(?:LATE_)?(?P<number>\d+)_\d+_(?P<rest>.+)$")
PATTERNS = str.maketrans("[]*?", "()__")  # nbgrader takes names of students for patterns of file names
ARCHIVES = {".zip", ".7z", ".rar", ".tar", ".gz", ".tgz", ".xz"}
USED = {".py", ".csv", ".json", ".txt", ".npy", ".npz", ".pt", ".png", ".jpg"}  # by a notebook beside which they lie
LARGEST = 50 << 20  # bytes of a file; a lab with its outputs has less than one MB
OF_SYSTEMS = re.compile(r"^(\..*|__MACOSX|Thumbs\.db|desktop\.ini)$", re.IGNORECASE)  # nobody handed it in


@dataclass
class Submission:
    """One student's notebook of one lab. `problem` says why it cannot be graded, else it is empty."""

    student: str
    lab: str
    path: Path
    number: str = ""  # by which the platform knows the student; Moodle gives another one for each lab
    platform: str = ""  # Moodle or Canvas, if the file is named as one of them does
    back: str = ""  # what names of files begin with that this platform takes back for this student
    problem: str = ""
    content: bytes = b""
    cells: list[dict] = field(default_factory=list)
    beside: list[Path] = field(default_factory=list)  # files that may belong to it, such as modules

    def digest(self, *others: object) -> str:
        """A hash of all that its points depend on: its files, and what else is given."""
        made = hashlib.sha256(self.content)
        for path in self.beside:
            made.update(path.name.encode() + path.read_bytes())
        for other in others:
            made.update(other if isinstance(other, bytes) else repr(other).encode())
        return made.hexdigest()


def collected(folder: Path, marks: Mapping[str, set[str]]) -> tuple[list[Submission], list[str]]:
    """The submissions in a folder, by student and lab, and a line for every file that is none.

    marks: by lab, the names that nbgrader gives its exercises and tests; a notebook with such names is of that lab.
    Never raises for what somebody has handed in.
    """
    found, strange, others = [], [], []
    for path in sorted(path for path in folder.rglob("*") if not path.is_dir()):
        parts = path.relative_to(folder).parts
        if any(OF_SYSTEMS.match(part) for part in parts):
            continue
        try:
            if path.exists() and not path.is_file():
                said = "it is no ordinary file"
            elif path.stat().st_size > LARGEST:
                said = f"it has more than {LARGEST >> 20} MB: ask for it without outputs"
            elif NOTEBOOK.search(path.name):
                said = _submission(path, parts, marks)
            elif path.suffix.lower() in ARCHIVES:
                said = "unpack it"
            else:
                said = "it is no notebook: ask for the file that ends with .ipynb"
                others.append(path)
        except OSError as error:
            said = f"it cannot be read: {error.strerror}"
        if isinstance(said, str):
            strange.append((path, said))
        else:
            found.append(said)
    inside = Counter(one.path.parent for one in found)
    for one in found:
        alone = inside[one.path.parent] == 1 and one.path.parent != folder
        near = [path for path in others if alone and path.parent == one.path.parent]
        one.beside = [path for path in near if path.suffix.lower() in USED]
    belongs = {path for one in found for path in one.beside}
    lines = [f"{path.relative_to(folder)}: {said}" for path, said in strange if path not in belongs]
    kept, left = _one_each(found)
    lines += [f"{path.relative_to(folder)}: another one beside it, called as the lab is, was graded" for path in left]
    return sorted(kept, key=lambda one: (one.student, one.lab)), lines


def _submission(path: Path, parts: tuple[str, ...], marks: Mapping[str, set[str]]) -> Submission | str:
    """One file as a submission, or why it is none."""
    names = [*parts[:-1], NOTEBOOK.sub("", parts[-1])]
    student = number = platform = back = ""
    for i, part in enumerate(names):
        last = i == len(names) - 1
        canvas = last and platform != "Moodle" and CANVAS.match(part)  # a file in Moodle's folder has any name
        if (known := MOODLE.match(part) or canvas) and not _named(known["name"], marks):
            student, number = known["name"], known["number"]
            student += f" {number}" if student.casefold() == "participant" else ""  # Moodle, anonymous
            platform = "Canvas" if known.re is CANVAS else "Moodle"
            back = part[: known.start("rest")].rstrip("_") + ("_" if platform == "Canvas" else "/")
            names[-1] = known["rest"] if last else names[-1]
    folders = [part for part in names[:-1] if not _named(part, marks)]
    if not student and folders:
        before = next((i - 1 for i, part in enumerate(names[:-1]) if i and _named(part, marks)), None)
        student = folders[0] if before is None else names[before]
    student = student or _without_lab(names[-1], marks)
    student = " ".join(unicodedata.normalize("NFC", student).translate(PATTERNS).split()).lstrip(". ")
    content, problem, cells = path.read_bytes(), "", []
    try:
        cells = read(content)
    except ValueError as error:
        problem = str(error)
    lab = _lab(names, {mark(cell) for cell in cells} - {""}, marks)
    if not lab:
        return problem or "it is of none of these labs: " + ", ".join(marks)
    if not student:
        return "whose is it? Put the student's name before or behind the lab's, or put it into a folder of that name"
    if not problem and marks[lab].isdisjoint(map(mark, cells)):
        problem = "no cell carries nbgrader's mark of an exercise: copy the answers into the lab as it was released"
    return Submission(student, lab, path, number, platform, back or f"{student}/", problem, content, cells)


def _lab(names: list[str], found: set[str], marks: Mapping[str, set[str]]) -> str:
    """By the folder's name, else by the marks in it, else by the file's name."""
    for name in names[:-1]:
        if lab := _named(name, marks):
            return lab
    shared = {lab: len(found & known) for lab, known in marks.items()}
    if shared and max(shared.values()):
        return max(shared, key=shared.get)
    return next((lab for lab in marks if _pattern(lab).search(names[-1])), "")


def _named(part: str, marks: Mapping[str, set[str]]) -> str:
    """The lab whose name this is, in full or in short, or an empty text."""
    return next((lab for lab in marks if _pattern(lab).fullmatch(part.strip())), "")


def _pattern(lab: str) -> re.Pattern:
    """The lab's name, or what it is called in short: lab1, lab 1, Lab_01."""
    kind, number, rest = re.fullmatch(r"([a-z]+)(\d+)(.*)", lab).groups()
    return re.compile(rf"(?<![a-z]){kind}[ _-]?0*{number}(?!\d)(?:{re.escape(rest)})?", re.IGNORECASE)


def _without_lab(name: str, marks: Mapping[str, set[str]]) -> str:
    """What a loose file's name says besides the lab's: the student."""
    for lab in marks:
        name = _pattern(lab).sub("", name)
    return re.sub(r"^[\s_.-]+|[\s_.-]*(\(\d+\))?[\s_.-]*$", "", name)


def _one_each(found: list[Submission]) -> tuple[list[Submission], list[Path]]:
    """One submission of a student and a lab, and the files that are left out. Two people of one name are distinguished
    by their numbers; of several files the one with the lab's own name is taken, and those that are the same; else none
    is."""
    groups = defaultdict(list)
    for one in found:
        groups[one.student, one.lab].append(one)
    kept, left = [], []
    for (student, lab), group in groups.items():
        numbers = {one.number for one in group} - {""}
        if len(numbers) == len(group) > 1:
            kept += [replace(one, student=f"{student} ({one.number})") for one in group]
            continue
        chosen, *more = sorted(group, key=lambda one: one.path.name != f"{lab}.ipynb")
        of_one_folder = len({one.path.parent for one in group}) == 1
        if len({one.content for one in group}) > 1 and not (of_one_folder and chosen.path.name == f"{lab}.ipynb"):
            names = ", ".join(one.path.name for one in (chosen, *more))
            chosen.problem = f"there are several notebooks, keep one: {names}"
        else:
            left += [one.path for one in more if one.content != chosen.content]
        kept.append(chosen)
    return kept, left
