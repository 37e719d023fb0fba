"""The command line: fedlib reproduce, why, report, sweep, run, list, data, labs, bench, check-gpu."""

from __future__ import annotations

import functools
import io
import signal
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from fedlib.base.errors import FedlibError, choose, require

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None)


def _option(kind, text: str, *names: str):
    """An option of this type; text: its help."""
    return Annotated[kind, typer.Option(*names, help=text)]


def _argument(kind, text: str):
    """An argument of this type; text: its help."""
    return Annotated[kind, typer.Argument(help=text)]


def _command(name: str | None = None, of: typer.Typer = app):
    """Make a function a command, whose expected errors are one line."""
    return lambda function: of.command(name)(_clear_errors(function))


Profile = _option(
    str,
    "smoke (seconds, shows only that it runs), quick (minutes on a laptop), reduced (the paper's images and clients, "
    "fewer rounds or a smaller network) or paper (the paper's own settings).",
)
Device = _option(str, "auto, cpu, cuda or cuda:N. It is an error if the GPU is missing.")
Jobs = _option(int | None, "Parallel training runs (default: one per core; one on a GPU).")
Step = _option(
    str,
    "What computes training steps: torch, fused (for CPUs, compiled on first use), or auto: fused where it is faster. "
    "The numbers are the same up to rounding.",
)
Items = _argument(list[str] | None, "Items such as pfedsim/fig1_cka, or patterns such as 'pfedsim/*'. Default: all.")
Dataset = _option(str | None, "Change the data set (see `fedlib data`).")
Seeds = _option(int | None, "Change the number of seeds.")
Rounds = _option(int | None, "Change the number of rounds.")
Methods = _option(str | None, "Change the methods, separated by commas.")
Budget = _option(
    float | None,
    "Minutes of training, after which it stops between two rounds and says what is left; the same command then "
    "continues. For machines with a time limit.",
)
Set = _option(list[str] | None, "Change any other setting of the items: NAME=VALUE, e.g. lr=0.1. Repeatable.", "--set")


def _clear_errors(command):
    """Expected errors become one line and an exit status: 2 bad input or missing data, 1 a failure, 130 Ctrl-C."""

    @functools.wraps(command)
    def wrapped(*args, **kwargs):
        try:
            return command(*args, **kwargs)
        except FedlibError as error:
            print(f"error: {error}", file=sys.stderr)
            raise typer.Exit(2) from None
        except BrokenPipeError:  # typer knows what to do
            raise
        except OSError as error:  # a disk that is full, or can only be read
            print(f"error: {error}", file=sys.stderr)
            raise typer.Exit(1) from None
        except KeyboardInterrupt:
            print("\ninterrupted; what is finished is kept, and the same command continues from here", file=sys.stderr)
            raise typer.Exit(130) from None

    return wrapped


def _say_version(asked: bool) -> None:
    if asked:
        from fedlib import __version__

        print(f"fedlib {__version__}")
        raise typer.Exit


@app.callback()
def about(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_say_version, is_eager=True)
    ] = False,
):
    """Replications of papers on personalised federated learning. `fedlib reproduce` does it all."""


@_command()
def reproduce(
    items: Items = None,
    profile: Profile = "quick",
    jobs: Jobs = None,
    device: Device = "cpu",
    dataset: Dataset = None,
    seeds: Seeds = None,
    rounds: Rounds = None,
    methods: Methods = None,
    set_: Set = None,
    step: Step = "auto",
    budget: Budget = None,
    finished: _option(bool, "Train nothing: show the stored runs, and say what is missing.", "--finished") = False,
    notebooks: _option(bool, "Execute the notebooks as well.") = True,
    format_: _option(
        str, "Formats besides png, which is always written: pdf and svg of figures, tex of tables.", "--format"
    ) = "png",
    refresh: _option(
        bool,
        "Publish (for developers): also write tables, figures and report to results/<profile>/ and figures/<profile>/, "
        "and with profile quick the notebooks' outputs to notebooks/.",
        "--refresh",
    ) = False,
):
    """Regenerate figures, tables, notebooks, report.

    First all training runs are done, in parallel; a run that several items need is done once, and an interrupted one
    continues. Then the figure and tables of every item are written, its notebook is executed, and the report compares
    our numbers with the paper's. Finished work is reused. Everything goes to results/own/ and figures/own/; what comes
    with fedlib in results/ and figures/ stays as it is. The last line says whether the two agree, and `fedlib report
    --compare` lists the differences. If fedlib was installed from a wheel, start in a new or empty directory: the
    notebooks, results and figures are copied to it.
    """
    from fedlib.base.files import CHECKOUT, SHIPPED
    from fedlib.experiments.chosen import changed, open_chosen, say_how_long, say_what_is_left, until
    from fedlib.reports.reproduce import outcome
    from fedlib.reports.reproduce import reproduce as carry_out
    from fedlib.reports.saved import FORMATS
    from fedlib.reports.working_folder import prepare

    started = time.monotonic()
    changes = changed(set_, dataset=dataset, seeds=seeds, rounds=rounds, methods=methods)
    end = until(budget)
    require(not refresh or profile != "smoke", "--refresh with profile", profile, "quick, reduced or paper")
    require(not refresh or SHIPPED == CHECKOUT, "--refresh", refresh, "a fedlib that runs from its checkout")
    formats = [choose("figure format", name.strip(), FORMATS) for name in format_.split(",")]
    opened = open_chosen(items, profile, changes, device=device, jobs=jobs, finished=finished)
    if not finished and device == "cpu":
        say_how_long(opened, jobs)
    if said := prepare():
        print(said, file=sys.stderr)
    options = dict(jobs=jobs, device=device, step=step, until=end)
    done = carry_out(opened, finished, notebooks, refresh, formats, **options)
    print("\n".join(outcome(done, opened, time.monotonic() - started)))
    left = budget is not None and say_what_is_left(opened, budget)
    if done.failures or not (done.summaries or left):
        raise typer.Exit(1)
    if left:
        raise typer.Exit(3)


@_command()
def sweep(
    items: Items = None,
    profile: Profile = "quick",
    jobs: Jobs = None,
    device: Device = "cpu",
    dataset: Dataset = None,
    seeds: Seeds = None,
    rounds: Rounds = None,
    methods: Methods = None,
    set_: Set = None,
    step: Step = "auto",
    budget: Budget = None,
    engine: _option(str, "Run on the workers of the Dask scheduler at tcp://HOST:PORT.") = "",
    renew: _option(bool, "Repeat runs of a different arithmetic (FEDLIB_FAST).", "--renew") = False,
):
    """Only the training runs of items, here or on a cluster.

    Finished runs are reused, and a failing run does not stop the others. `fedlib reproduce` then has nothing to train.
    """
    from fedlib.experiments.chosen import changed, open_chosen, say_how_long, say_what_is_left, until
    from fedlib.reports.reproduce import swept

    one = "none with --engine: every worker of the cluster does one run at a time"
    require(not engine or jobs is None, "jobs", jobs, one)
    require(not engine or budget is None, "budget", budget, "none with --engine: a cluster has limits of its own")
    changes = changed(set_, dataset=dataset, seeds=seeds, rounds=rounds, methods=methods)
    opened = open_chosen(items, profile, changes, device=device, jobs=jobs)
    for item in opened:
        item.store.renew = renew
    if not engine and device == "cpu":
        say_how_long(opened, jobs)
    lines, failed = swept(opened, jobs=jobs, device=device, step=step, engine=engine, until=until(budget))
    print("\n".join(lines))
    left = budget is not None and say_what_is_left(opened, budget)
    if failed or left:
        raise typer.Exit(1 if failed else 3)


@_command("list")
def list_everything(
    compared: _argument(
        list[str] | None, "Compare these methods, or all: what they send, what clients keep, evaluation points."
    ) = None,
    items: _option(bool, "Only the items: how long they take, what is done.", "--items") = False,
    methods: _option(bool, "Only the methods.", "--methods") = False,
    datasets: _option(bool, "Only the data sets.", "--datasets") = False,
    partitioners: _option(bool, "Only the partition schemes.", "--partitioners") = False,
    models: _option(bool, "Only the backbones.", "--models") = False,
):
    """Show items, methods, data sets, partitions and backbones.

    With names of methods, a comparison: each method runs two rounds with six clients on digits, which takes seconds.
    Message sizes are given in models: 1.00 is as many numbers as the network has parameters.
    """
    from fedlib.reports import listings

    if compared:
        return listings.compare_methods(compared)
    flags = (items, methods, datasets, partitioners, models)
    for part, chosen in zip(("items", "methods", "data sets", "partition schemes", "backbones"), flags):
        if chosen or not any(flags):
            listings.show(part, count=items)


@_command()
def run(
    method: _argument(
        str, "A method of `fedlib list`, such as pfedsim, or your own, FILE.py:CLASS; with --keep a stored run."
    ),
    dataset: _option(str, "A data set of `fedlib data`.") = "digits",
    clients: _option(int, "Number of clients.") = 20,
    join_ratio: _option(float, "Participation rate: share of clients sampled in each round.") = 0.5,
    rounds: _option(int, "Communication rounds.") = 20,
    lr: _option(float, "Local learning rate.") = 0.05,
    alpha: _option(float, "Dirichlet parameter; smaller is more heterogeneous.") = 0.1,
    min_size: _option(int, "Minimum number of samples per client.") = 10,
    seed: _option(int, "Seed for initial parameters, participants and batches.") = 0,
    set_: _option(
        list[str] | None, "Any field of the run or hyper-parameter of the method: NAME=VALUE. Repeatable.", "--set"
    ) = None,
    device: Device = "cpu",
    backend: _option(str, "auto, serial, vmap or process (clients in parallel).") = "auto",
    jobs: _option(int | None, "Number of workers of the backend process (default: one per core).") = None,
    step: Step = "auto",
    check: _option(bool, "Do not train: test the method's implementation, on digits.", "--check") = False,
    keep: _option(
        Path | None,
        "Repeat the stored run METHOD (its file, or the beginning of its id), with the same numbers, and write every "
        "client's model to this new or empty folder.",
    ) = None,
    point: _option(
        str | None, "With --keep: the evaluation point of the models (default: the run's first one)."
    ) = None,
):
    """Train one method once and print its accuracy over the rounds.

    The defaults suit a laptop, and are no paper's settings. The result is stored under results/single.

    With --set unseen=U, U clients are new clients: they join after the last round, and their accuracy is printed beside
    that of all other clients, the members.

    --check runs the tests of fedlib's own methods, in about ten seconds; the exit status is 1 if one fails. --keep
    writes models.pt, and export.json, which describes it; `fedlib.load_client(FOLDER, i)` loads client i's
    model as an ordinary PyTorch module.
    """
    from fedlib import algorithms
    from fedlib.engine import backends
    from fedlib.engine.setup import find_device
    from fedlib.experiments.chosen import assignments
    from fedlib.models.model import STEPS
    from fedlib.reports import one_run
    from fedlib.runs.store import Store
    from fedlib.runs.sweep import run_all

    options = dict(device=device, backend=backend, step=step)
    if keep is not None:
        one_run.keep(method, keep, point, workers=jobs, checkpoint_every=15.0, **options)
        return
    method, changes = algorithms.named(method), assignments(set_)
    if check:
        raise typer.Exit(0 if one_run.keeps_the_contract(method, changes) else 1)
    settings = {
        "dataset": dataset, "num_clients": clients, "join_ratio": join_ratio, "rounds": rounds, "lr": lr, "seed": seed,
        "eval_every": max(1, rounds // 10),
    }  # fmt: skip
    spec = one_run.spec_of(method, settings, changes, alpha, min_size)
    find_device(device)
    backends.check(backend)
    choose("step", step, STEPS)
    result = run_all([spec], Store("single"), jobs=jobs, **options)[spec.id]
    if isinstance(result, FedlibError):
        raise result
    if result.status != "finished":
        print(f"error: {result.error}", file=sys.stderr)
        raise typer.Exit(1)
    one_run.print_run(result)


@_command()
def report(
    paper: _argument(str | None, "pfedsim, fedsimsup, pfedcs or pfedsv: one page on this paper, in Markdown.") = None,
    profile: _option(str, "Folder under results/: quick, reduced, paper, or own/quick (what you made).") = "quick",
    compare: _option(
        bool, "Instead list the differences between results/own/PROFILE, made here, and results/PROFILE.", "--compare"
    ) = False,
    scoreboard: _option(bool, "Also rewrite the pages on all papers in results/.", "--scoreboard") = False,
    notebooks: _option(
        Path | None, "Instead copy the notebooks of an installed fedlib to this new or empty folder."
    ) = None,
    site: _option(Path | None, "Instead write all notebooks and reports as a site to this new or empty folder.") = None,
):
    """Compare our numbers with the papers', from stored results.

    The results are those that come with fedlib, or with --profile own/quick those that `fedlib reproduce` made here.
    With a paper's name: its items at the largest scale at which they were run.

    --compare prints a line for every number and every verdict that differs from what comes with fedlib; times depend on
    the machine and are not compared. --notebooks also copies results and figures; commands and notebooks that are run
    in the new folder write their results there. --site makes pages that need no network (Jupyter Book, extra 'site').
    """
    instead = [name for name, asked in (("--compare", compare), ("--notebooks", notebooks), ("--site", site)) if asked]
    require(not instead or not scoreboard, "--scoreboard", scoreboard, f"a call of its own, without {instead}")
    require(instead in ([], ["--compare"]) or paper is None, "paper", paper, f"none with {' and '.join(instead)}")
    if notebooks is not None:
        from fedlib.reports.working_folder import lay_out

        number = lay_out(notebooks := notebooks.expanduser().resolve())
        guide = notebooks / "notebooks" / "guides" / "start_here.ipynb"
        print(f"{number} notebooks; begin with {guide}\njupyter lab --ServerApp.root_dir={notebooks} {guide}")
    elif site is not None:
        from fedlib.reports.working_folder import build

        number = build(site := site.expanduser().resolve())
        print(f"{number} pages; open {site / 'index.html'}")
    elif compare:
        from fedlib.reports.compare import differences

        print("\n".join(differences(profile, paper)))
    else:
        _write_report(paper, profile, scoreboard)


def _write_report(paper: str | None, profile: str, scoreboard: bool) -> None:
    from fedlib.reports import distances, papers
    from fedlib.reports import report as pages

    path = pages.write_report(profile) if paper is None else pages.written(f"{paper}.md", pages.page(paper))
    shown = pages.across_scales(f"{paper}/*") if paper is not None else pages.scoreboard(pages.saved_items(profile))
    print(f"{shown}\n\nin full: {path}")
    if scoreboard:
        papers.renew_table()
        made = {"README": papers.page(), "scoreboard": papers.scoreboard_page(), "distances": distances.page()}
        front, board, gaps = (pages.written(f"{name}.md", text) for name, text in made.items())
        print(f"renewed: {front}, {board} and {gaps}")


@_command()
def why(
    item: _argument(str, "An item of `fedlib list`, for example pfedsim/table3_accuracy."),
    labels: _argument(
        list[str] | None,
        "Labels of a row or column (a method, an alpha), or a run's id; several narrow the choice. Without any: what "
        "can be asked for.",
    ) = None,
    profile: _option(
        str, "Folder under results/: paper, reduced, quick, own/quick. Default: the largest scale with results."
    ) = "",
):
    """Say where a number comes from: its runs and their settings.

    Shows settings that differ from the defaults, seeds, commit, device, partition, accuracy after the last round, and
    the command that repeats the run. Run files that are missing (those of quick are not published) are counted.
    """
    from fedlib.reports.why import why as explain

    print(explain(item, labels or (), profile))


@_command()
def data(
    name: _argument(str | None, "A data set, folder:PATH for your own images, or hf:NAME. Default: the list.") = None,
    root: _option(str | None, "Folder of prepared data sets (default: $FEDLIB_DATA or the user's cache).") = None,
    list_: _option(bool, "List all data sets: size, terms of use, citation, whether they are here.", "--list") = False,
    keep: _option(bool, "Keep the downloaded archives under _downloads/.", "--keep") = False,
):
    """Download, prepare and verify a data set, or list them all.

    A data set that is already here is only verified. $FEDLIB_OFFLINE=1 forbids downloads.
    """
    from fedlib.data import load
    from fedlib.reports import listings

    if name is None or list_:
        listings.list_datasets(root, terms=True)
    else:
        listings.describe(name, load(name, root, keep=keep))


labs = typer.Typer(help="Graded labs for a course: release them, and grade submissions.")
app.add_typer(labs, name="labs", no_args_is_help=True)
Course = _argument(Path, "The course's folder.")
Labs = _argument(list[str] | None, "Labs such as lab1_fedavg_and_partitions. Default: all.")


@_command("release", labs)
def release_labs(folder: Course, names: Labs = None):
    """Write labs without solutions and hidden tests to FOLDER/release/."""
    from fedlib.lessons.labs import release

    for path in release(folder, names or ()):
        print(path)


@_command("grade", labs)
def grade_labs(
    folder: Course,
    names: Labs = None,
    seconds: _option(float, "Time limit of a cell; a whole notebook has ten times that.") = 60,
    again: _option(bool, "Also grade unchanged submissions again.", "--again") = False,
):
    """Grade the submissions in FOLDER/submitted/.

    They may be STUDENT/LAB/LAB.ipynb, or downloads from Moodle or Canvas. Points go to FOLDER/points.csv, moodle.csv
    and canvas.csv, comments to FOLDER/feedback/. Students' code runs in processes of its own, with limits of time,
    memory and output. Where Linux allows it, it has no network and cannot write to your files. It runs as you: if you
    do not trust the students, use a container.
    """
    from fedlib.lessons.export import costliest
    from fedlib.lessons.labs import grade

    grades = grade(folder, names or (), seconds, again)
    points = grades.points
    print(points.to_string(index=False))
    if grades.unchanged:
        print(f"{grades.unchanged} of {len(points)} submissions have not changed and keep their points")
    print("\n".join(costliest(points, grades.exercises) + grades.unknown))
    print(f"points: {folder / 'points.csv'}, moodle.csv, canvas.csv; pages, one .zip per lab: {folder / 'feedback'}")
    if grades.strange:
        print(f"{len(grades.strange)} files in submitted/ were not graded:", file=sys.stderr)
        print(*grades.strange, sep="\n", file=sys.stderr)
    if failed := int((points["problem"] != "").sum()):
        print(f"error: {failed} of {len(points)} submissions could not be graded", file=sys.stderr)
    if failed or grades.strange:
        raise typer.Exit(1)


@_command()
def bench(
    rounds: _option(int, "Rounds per measurement.") = 1,
    repeats: _option(int, "Measurements per variant.") = 5,
    device: Device = "auto",
    quick: _option(bool, "A tiny task that only shows that everything runs.", "--quick") = False,
):
    """Compare fedlib's speed with that of plain PyTorch loops.

    Client-samples per second on the same clients, as ratios within one measurement; about 5 minutes on 2 cores. On a
    GPU other variants are measured. The table is written to results/bench/.
    """
    from fedlib.benchmarks.speed import bench as measured

    words, table = measured(rounds, repeats, device, quick)
    shown = table.to_string(index=False, float_format=lambda v: f"{v:.2f}" if abs(v) < 10 else f"{v:,.0f}")
    print(f"{words}\n\n{shown}")


@_command("check-gpu")
def check_gpu(
    device: _option(str, "cuda or cuda:N.") = "cuda",
    seconds: _option(float, "No check starts after this time.") = 120.0,
):
    """Check in two minutes that a GPU gives the CPU's numbers.

    Checks all methods, memory, two networks, and the speed. Prints one table and writes nothing. The exit status is 0
    if all is well, 1 if a check failed, 2 without a GPU, 3 if none failed but time ran out before all were made.
    """
    from fedlib.benchmarks.check_gpu import check_gpu as checked

    table = checked(device, seconds)
    print(table.report(device))
    for problem in table.problems:
        print(f"error: {problem}", file=sys.stderr)
    if table.problems:
        raise typer.Exit(1 if table.failed else 3)


def main() -> None:
    """Entry point of the console script. Whatever becomes of a Ctrl-C on its way up, the exit status is 130."""
    interrupted = []
    for stream in (sys.stdout, sys.stderr):  # a locale's code page may lack Greek letters
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8")

    def interrupt(number, frame):
        interrupted.append(number)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
    try:
        app(prog_name="fedlib")  # also where it is `python -m fedlib`
    except BaseException:
        if interrupted:
            sys.exit(130)
        raise
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # what is left is leaving
