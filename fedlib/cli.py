"""The command line: fedlib reproduce, why, compare, report, sweep, run, export, check, list, methods, notebooks, data,
labs, bench, check-gpu."""

from __future__ import annotations

import fnmatch
import functools
import io
import json
import signal
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from fedlib.base.errors import BadValue, FedlibError, choose, require

app = typer.Typer(
    no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None,
)  # fmt: skip

Profile = Annotated[
    str,
    typer.Option(
        help="smoke (seconds, shows only that it runs), quick (minutes on a laptop), overnight (the real images, "
        "shrunk to a night on 2 cores) or paper (the paper's own settings)."
    ),
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N. A GPU that is not there is an error.")]
Jobs = Annotated[int | None, typer.Option(help="Training runs side by side (default: one per core; one on a GPU).")]
Step = Annotated[
    str,
    typer.Option(
        help="What computes training steps: torch, fused (for CPUs, compiled on first use), auto: fused where it pays, "
        "or unfold: convolutions as matrix products, to be tried on a GPU. The same numbers up to rounding."
    ),
]
Items = Annotated[
    list[str] | None,
    typer.Argument(help="Items such as pfedsim/fig1_cka, or patterns such as 'pfedsim/*'. Default: all."),
]
Dataset = Annotated[str | None, typer.Option(help="Use another data set (see `fedlib data`).")]
Seeds = Annotated[int | None, typer.Option(help="Use another number of seeds.")]
Rounds = Annotated[int | None, typer.Option(help="Use another number of rounds.")]
Methods = Annotated[str | None, typer.Option(help="Use other methods, separated by commas.")]
Budget = Annotated[
    float | None,
    typer.Option(
        help="Minutes of training, after which it stops between two rounds and says what is left; the same command "
        "continues. For machines with a time limit."
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", help="Change any other setting of the items: NAME=VALUE, e.g. lr=0.1. Repeatable."),
]


def _clear_errors(command):
    """Expected errors become one line on stderr and an exit status:
    2 bad input or missing data, 1 a failure, 130 Ctrl-C."""

    @functools.wraps(command)
    def wrapped(*args, **kwargs):
        try:
            return command(*args, **kwargs)
        except FedlibError as error:
            print(f"error: {error}", file=sys.stderr)
            raise typer.Exit(2) from None
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
    """Replications of papers on personalised federated learning. Start with `fedlib reproduce`."""


@app.command()
@_clear_errors
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
    finished: Annotated[
        bool, typer.Option("--finished", help="Train nothing: show the runs that are there, and say what is missing.")
    ] = False,
    notebooks: Annotated[bool, typer.Option(help="Execute the notebooks as well.")] = True,
    format_: Annotated[
        str,
        typer.Option("--format", help="Formats of the figures: png, which is always written, and pdf, svg, or both."),
    ] = "png",
    refresh: Annotated[
        bool,
        typer.Option(
            "--refresh",
            help="Publish (for developers): write tables, figures and report to results/<profile>/ and "
            "figures/<profile>/ as well, and in quick the notebooks' outputs to notebooks/.",
        ),
    ] = False,
):
    """Regenerate figures, tables, notebooks and report (the main job).

    Training runs come first: shared ones once, side by side, resumable. Then every item's figure and tables are
    written, its notebook is executed, and the report compares our numbers with the paper's. Finished work is reused.
    All this goes to results/own/ and figures/own/, beside what comes with fedlib in results/ and figures/, which stays
    as it is; the last line compares the two, and `fedlib compare` lists what differs. Where fedlib was installed from
    a wheel, the working directory has to be new or empty the first time, and gets what comes with fedlib.
    """
    from fedlib.base.files import CHECKOUT, SHIPPED
    from fedlib.reports.report import tally
    from fedlib.reports.reproduce import reproduce as carry_out
    from fedlib.reports.saved import FORMATS, place_of
    from fedlib.reports.working_folder import prepare

    started = time.monotonic()
    changes, until = dict(dataset=dataset, seeds=seeds, rounds=rounds, methods=methods), _until(budget)
    require(not refresh or profile != "smoke", "--refresh with profile", profile, "quick, overnight or paper")
    require(not refresh or SHIPPED == CHECKOUT, "--refresh", refresh, "a fedlib that runs from its checkout")
    formats = [choose("figure format", name.strip(), FORMATS) for name in format_.split(",")]
    opened = _opened(items, profile, jobs, device, changes, set_, finished)
    if said := prepare():
        print(said, file=sys.stderr)
    done = carry_out(opened, jobs, device, step, finished, notebooks, refresh, until, formats)
    for name, how in done.notebooks.items():
        if how.startswith("skipped"):
            print(f"{name}: notebook {how}")
    print()
    for item in opened:
        name = item.item.name
        said = tally(done.summaries[name]["claims"]) if name in done.summaries else "not run yet"
        said = f"FAILED: {done.failures[name]}" if name in done.failures else said
        missing = f" ({item.lacks})" if item.missing else ""
        print(f"  {name:<40} {said}{missing if name not in done.failures else ''}")
    places = sorted({place_of(item) for item in opened})
    fine = len(done.summaries.keys() - done.failures.keys())
    print(f"\n{fine} of {len(opened)} items in {time.monotonic() - started:.0f} s")
    print(
        f"figures: {', '.join(f'figures/{p}/' for p in places)}\ntables:  {', '.join(f'results/{p}/' for p in places)}"
    )
    if set(done.notebooks.values()) & {"executed", "unchanged"}:
        print(f"notebooks: {', '.join(f'results/{p}/notebooks/' for p in places)}")
    for path in done.reports:
        print(f"report:  {path}")
    for line in done.beside:
        print(line)
    left = budget is not None and _say_what_is_left(opened, budget)
    if done.failures or not (done.summaries or left):
        raise typer.Exit(1)
    if left:
        raise typer.Exit(3)


@app.command()
@_clear_errors
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
    engine: Annotated[
        str, typer.Option(help="Do the runs on the workers of the Dask scheduler at tcp://HOST:PORT.")
    ] = "",
    gpu_share: Annotated[
        float, typer.Option(help="With --engine and --device cuda: the share of a GPU that a worker must offer.")
    ] = 1.0,
):
    """Only the training runs of items, here or on a cluster; no figures, no notebooks.

    Finished runs are reused and a failing run does not stop the others; `fedlib reproduce` then finds everything done.
    """
    from fedlib.reports.reproduce import train

    started = time.monotonic()
    require(
        not engine or jobs is None,
        "jobs",
        jobs,
        "none with --engine: every worker of the cluster does one run at a time",
    )
    require(not engine or budget is None, "budget", budget, "none with --engine: a cluster has limits of its own")
    on_gpus = bool(engine) and device.startswith("cuda")
    require(on_gpus or gpu_share == 1, "gpu_share", gpu_share, "1 without --engine and --device cuda")
    changes = dict(dataset=dataset, seeds=seeds, rounds=rounds, methods=methods)
    opened = _opened(items, profile, jobs, device, changes, set_)
    there = {item.store.path(spec) for item in opened for spec in item.specs if item.store.path(spec).exists()}
    options = dict(engine=engine, gpu_share=gpu_share, until=_until(budget))
    outcomes = train(opened, jobs=jobs, device=device, step=step, **options)
    failed = {path: why for path, (_, why) in outcomes.items() if why}
    for path, why in failed.items():
        print(f"  FAILED {outcomes[path][0].label} ({path.stem}): {why}")
    reused = len(there & outcomes.keys() - failed.keys())
    print(
        f"{len(outcomes) - reused - len(failed)} runs done, {reused} reused, {len(failed)} failed, in "
        f"{time.monotonic() - started:.0f} s"
    )
    print(f"results: {', '.join(f'results/{place}/runs/' for place in sorted({item.place for item in opened}))}")
    left = budget is not None and _say_what_is_left(opened, budget)
    if failed or left:
        raise typer.Exit(1 if failed else 3)


@app.command()
@_clear_errors
def pack(
    file: Annotated[Path, typer.Argument(help="The archive to write, for example runs.tar.")],
    items: Items = None,
    profile: Profile = "quick",
):
    """Carry a sweep to another machine: finished runs of items, and checkpoints of those that are begun, in one file.

    `fedlib unpack` takes them over there, and the sweep goes on. Checkpoints are continued by the same version of
    fedlib only.
    """
    from fedlib.runs.moving import pack as packed
    from fedlib.runs.store import Store

    specs = {spec.id: spec for item in _opened(items, profile, None, "cpu", {}, None) for spec in item.specs}
    counts = packed(list(specs.values()), Store(profile), file)
    print(f"{counts['finished']} finished runs, {counts['begun']} begun, {counts['bytes'] / 2**20:,.1f} MiB: {file}")


@app.command()
@_clear_errors
def unpack(
    file: Annotated[Path, typer.Argument(help="An archive of `fedlib pack`.")],
    profile: Profile = "quick",
):
    """Take over what `fedlib pack` has carried: runs go to results/<profile>/runs, checkpoints to the cache."""
    from fedlib.experiments import PROFILES
    from fedlib.runs.moving import unpack as unpacked
    from fedlib.runs.store import Store

    counts = unpacked(file, Store(choose("profile", profile, PROFILES)))
    print(f"{counts['new']} runs taken over, {counts['there']} there already, {counts['begun']} checkpoints")
    if counts["refused"]:
        print(f"{counts['refused']} runs refused: they are damaged")
        raise typer.Exit(1)


def _until(budget: float | None) -> float | None:
    """When training stops, in seconds since 1970. Raises BadValue unless there is some time."""
    require(budget is None or budget > 0, "budget", budget, "a number of minutes above 0")
    return None if budget is None else time.time() + 60 * budget


def _say_what_is_left(opened, budget: float) -> bool:
    """Name what was not done in time; whether there is any."""
    left = {item.item.name: len(item.missing) for item in opened if item.missing}
    if left:
        print(
            f"left after a budget of {budget:g} minutes: {', '.join(f'{n} runs of {name}' for name, n in left.items())}"
        )
        print("the same command continues (exit status 3)")
    return bool(left)


def _opened(patterns, profile, jobs, device, changes, set_, finished=False) -> list:
    """The items that were asked for, with the settings that were changed; drafts only where they are named."""
    from fedlib.experiments import PROFILES, OpenItem, find

    overrides = {name: value for name, value in changes.items() if value is not None} | _assignments(set_)
    choose("profile", profile, PROFILES)
    items = [find(name) for name in _matching(patterns)]
    items = [item for item in items if not item.draft or item.name in (patterns or ())]
    lacking = [item.name for item in items if profile not in item.settings and item.name not in (patterns or ())]
    items = [item for item in items if item.name not in lacking]
    if lacking:
        print(f"no profile {profile}: {', '.join(lacking)}")
    require(bool(items), "profile", profile, "one that the chosen items have")
    opened = []
    for item in items:
        own = {key: value for key, value in overrides.items() if key in item.settings[profile] or len(items) == 1}
        if left_out := [key for key in overrides if key not in own]:
            print(f"{item.name}: has no setting {', '.join(left_out)}, which is left as it is")
        opened.append(OpenItem(item, profile, device=device, jobs=jobs, finished=finished, **own))
    return opened


def _matching(patterns: list[str] | None) -> list[str]:
    """Names of items, each once, in the order in which they were asked for."""
    from fedlib.experiments import names

    chosen = []
    for pattern in patterns or ["*"]:
        found = (
            fnmatch.filter(names(), pattern) if any(c in pattern for c in "*?[") else [choose("item", pattern, names())]
        )
        if not found:
            raise BadValue(f"no item matches {pattern!r}; items: {', '.join(names())}")
        chosen += found
    return list(dict.fromkeys(chosen))


def _assignments(texts: list[str] | None) -> dict:
    """["a=1", "b=x"] -> {"a": 1, "b": "x"}."""
    pairs = {}
    for text in texts or []:
        name, equals, value = text.partition("=")
        if not equals:
            raise BadValue(f"--set {text!r} is not accepted; expected NAME=VALUE")
        pairs[name] = _value(value)
    return pairs


@app.command("list")
@_clear_errors
def list_everything(
    items: Annotated[bool, typer.Option("--items", help="Only the items: time they take, what is done.")] = False,
    methods: Annotated[bool, typer.Option("--methods", help="Only the methods.")] = False,
    datasets: Annotated[bool, typer.Option("--datasets", help="Only the data sets.")] = False,
    partitioners: Annotated[bool, typer.Option("--partitioners", help="Only the partition schemes.")] = False,
    models: Annotated[bool, typer.Option("--models", help="Only the backbones.")] = False,
):
    """Show items, methods, data sets, partition schemes and backbones, one line each;
    with options only some of them."""
    sections = {_list_items: items, _list_methods: methods, _list_data: datasets, _list_partitioners: partitioners}
    sections |= {_list_models: models}
    for show, chosen in sections.items():
        if chosen or not any(sections.values()):
            show()


def _list_items() -> None:
    from fedlib.experiments import OpenItem, find, names

    print("items (runs finished / needed, minutes on 2 cores)")
    for name in names():
        cells, item = [], find(name)
        for profile in [p for p in ("quick", "overnight", "paper") if p in item.settings]:
            opened = OpenItem(item, profile)
            finished = len(opened.specs) - len(opened.missing)
            cells.append(f"{profile} {finished}/{len(opened.specs)}, {item.minutes[profile]:g} min")
        print(
            f"  {name:<40} {'; '.join(cells)}{'; a draft, only run by name' if item.draft else ''}\n      {item.claim}"
        )


def _list_methods() -> None:
    from fedlib import algorithms

    _table("methods", {name: _first_sentence(algorithms.text(name)) for name in algorithms.names()})


@app.command("methods")
@_clear_errors
def show_methods(
    names: Annotated[list[str] | None, typer.Argument(help="Some methods only. Default: all.")] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="As a Markdown table, with the papers' titles.")] = False,
):
    """Compare the methods: what travels, what stays on a client, where they are tested, who published them.

    Nothing in the table is written by hand: every method plays two rounds of six clients on digits,
    which takes seconds. Messages are counted in models: 1.00 is as many numbers as the network has parameters.
    """
    from tqdm import tqdm

    from fedlib import algorithms
    from fedlib.reports.methods_table import methods_table
    from fedlib.reports.report import markdown as as_markdown

    chosen = [algorithms.named(name) for name in names or algorithms.names()]
    table = methods_table(tqdm(chosen, leave=False, file=sys.stderr, unit="method"))
    if markdown:
        print(as_markdown(table))
    else:
        print(table.drop(columns="title").to_string(index=False, justify="left", formatters=_left_aligned(table)))


def _left_aligned(table) -> dict:
    """Formatters that pad every text to the width of its column."""
    widths = {column: max(map(len, [column, *table[column]])) for column in table}
    return {column: f"{{:<{width}}}".format for column, width in widths.items()}


def _list_data() -> None:
    from fedlib.data import DATASETS, available, root

    here = available()
    lines = {
        name: f"{source.images:,} images of {'x'.join(map(str, source.shape))}, {source.classes} classes"
        + (
            ""
            if name in here
            else f"; not here, {source.megabytes:,} MB to download"
            if source.megabytes
            else "; not here, by hand"
        )
        for name, source in DATASETS.items()
    }
    lines |= {name: "a prepared folder" for name in here if name not in DATASETS}
    lines["folder:<path>"] = "your own images, one folder a class"
    lines["hf:<name>"] = "a data set of the Hugging Face hub, or a folder in its form (the extra 'hf')"
    _table(f"data sets (prepared ones in {root()}, set by FEDLIB_DATA)", lines)


def _list_partitioners() -> None:
    from fedlib.data.partition import SCHEMES

    _table("partition schemes", {name: _first_sentence(make) for name, make in SCHEMES.items()})


def _list_models() -> None:
    from fedlib.models import MODELS

    lines = {name: _first_sentence(make) for name, make in MODELS.items()}
    _table("backbones", lines | {"torchvision:<name>": "Any classifier of torchvision, with random initial weights."})


def _table(title: str, lines: dict[str, str]) -> None:
    print(f"\n{title}")
    width = max(map(len, lines))
    for name, text in lines.items():
        print(f"  {name:<{width}}  {text}")


def _first_sentence(thing) -> str:
    text = thing if isinstance(thing, str) else thing.__doc__ or ""
    return " ".join(text.strip().split("\n\n")[0].split())


@app.command()
@_clear_errors
def run(
    method: Annotated[
        str, typer.Argument(help="A method of `fedlib list`, for example pfedsim; or your own, FILE.py:CLASS.")
    ],
    dataset: Annotated[str, typer.Option(help="A data set of `fedlib data`.")] = "digits",
    clients: Annotated[int, typer.Option(help="Number of clients.")] = 20,
    join_ratio: Annotated[float, typer.Option(help="Share of the clients that take part in a round.")] = 0.5,
    rounds: Annotated[int, typer.Option(help="Communication rounds.")] = 20,
    lr: Annotated[float, typer.Option(help="Local learning rate.")] = 0.05,
    alpha: Annotated[float, typer.Option(help="Dirichlet parameter; smaller is more heterogeneous.")] = 0.1,
    min_size: Annotated[int, typer.Option(help="Fewest samples of a client.")] = 10,
    seed: Annotated[int, typer.Option(help="Seed of initial weights, participants and batches.")] = 0,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="Any field of the run or hyper-parameter of the method: NAME=VALUE. Repeatable."),
    ] = None,
    device: Device = "cpu",
    backend: Annotated[str, typer.Option(help="auto, serial, vmap or process (clients side by side).")] = "auto",
    jobs: Annotated[
        int | None, typer.Option(help="Worker processes of the backend process (default: one per core).")
    ] = None,
    step: Step = "auto",
    profile_engine: Annotated[
        str,
        typer.Option(
            help="Train only three rounds, store nothing, and write a PyTorch profiler trace of the second to this "
            "file."
        ),
    ] = "",
):
    """Train one method once and print its accuracy over the rounds.

    The defaults are small enough for a laptop, not a paper's. The result is stored under results/single.

    With --set unseen=U, U of the clients are newcomers: they come after the last round, and what they get is printed
    beside the members, who are all others.
    """
    import dataclasses

    from fedlib import algorithms
    from fedlib.engine.backends import check
    from fedlib.engine.setup import find_device
    from fedlib.models.model import STEPS
    from fedlib.runs.store import Store
    from fedlib.runs.sweep import run_all
    from fedlib.spec import RunSpec

    method = algorithms.named(method)
    fields = {
        "dataset": dataset, "num_clients": clients, "join_ratio": join_ratio, "rounds": rounds, "lr": lr, "seed": seed,
        "eval_every": max(1, rounds // 10),
    }  # fmt: skip
    own = [f.name for f in dataclasses.fields(algorithms.find(method))]
    task = [f.name for f in dataclasses.fields(RunSpec) if f.name not in ("method", "hyper")]
    hyper = {}
    for name, value in _assignments(set_).items():
        choose("name in --set", name, [*own, *task])
        (hyper if name in own else fields)[name] = value
    if fields.get("scheme", "dirichlet") == "dirichlet":
        fields.setdefault("partition", {"alpha": alpha, "min_size": min_size})
    spec = RunSpec(method, hyper=hyper, **fields)
    find_device(device)
    check(backend)
    choose("step", step, STEPS)
    if profile_engine:
        _profile(spec.but(rounds=3, eval_every=3), backend, device, step, profile_engine)
        return

    result = run_all([spec], Store("single"), backend=backend, device=device, jobs=jobs, step=step)[spec.id]
    if isinstance(result, FedlibError):
        raise result
    if result.status != "finished":
        print(f"error: {result.error}", file=sys.stderr)
        raise typer.Exit(1)
    for t, accuracy in zip(*result.curve()):
        print(f"round {t:>4}: {100 * accuracy:6.2f} % of all test samples")
    print(f"evaluated at {result.point}; mean over clients {100 * result.final('client_mean'):.2f} %")
    if result.newcomers:
        print(_beside_newcomers(result))
    print(_spent(result))
    print(f"stored as {Store('single').path(spec)}")


@app.command()
@_clear_errors
def export(
    run: Annotated[str, typer.Argument(help="A stored run: its file, or the beginning of its id.")],
    folder: Annotated[str, typer.Argument(help="A new or empty folder for the models.")],
    point: Annotated[
        str | None, typer.Option(help="At which evaluation point they are taken (default: the run's first one).")
    ] = None,
    device: Device = "cpu",
    backend: Annotated[str, typer.Option(help="auto, serial, vmap or process (clients side by side).")] = "auto",
    jobs: Jobs = None,
    step: Step = "auto",
):
    """Train a stored run again and keep every client's model.

    Results are stored without models, so the run is done again, with the same numbers. The folder gets two files, all
    models as models.safetensors and export.json, which says what they are; `fedlib.load_client(FOLDER, i)` makes client
    i's an ordinary PyTorch module.
    """
    from tqdm import tqdm

    from fedlib.runs.keep import differing, find_run, train_and_export

    stored = find_run(run)
    options = dict(device=device, backend=backend, workers=jobs, step=step, checkpoint_every=15.0)
    with tqdm(total=stored.spec.rounds, desc=stored.spec.label, unit="round", leave=False) as bar:
        again = train_and_export(stored, folder, point, progress=lambda done: bar.update(done - bar.n), **options)
    differ = differing(stored, again)
    same = f"{differ} clients answer otherwise than in the stored run" if differ else "the stored run's accuracies"
    print(f"{stored.spec.num_members} models in {folder}, {same}")


def _beside_newcomers(result) -> str:
    """A table of a run's members and newcomers, one row a point."""
    import pandas as pd

    spec = result.spec
    after = f"after {spec.join_epochs} epoch{'s' if spec.join_epochs != 1 else ''}"
    members = [("", h["point"], h["pooled"]) for h in result.last]
    titles = {"": f"{spec.num_members} members", "before": "newcomers on arrival", "after": f"newcomers {after}"}
    tested = members + [(h["when"], h["point"], h["pooled"]) for h in result.newcomers]
    table = {title: {point: f"{100 * a:.2f}" for w, point, a in tested if w == when} for when, title in titles.items()}
    if not table[titles["after"]]:
        table[titles["after"]] = {} if spec.join_epochs == 0 else dict.fromkeys(table[titles["before"]], "diverged")
    shown = pd.DataFrame({title: own for title, own in table.items() if own}).fillna("")
    rows = shown.to_string(col_space=[len(title) + 2 for title in shown])
    return f"\n{spec.unseen} newcomers, % of all test samples, by evaluation point\n{rows}\n"


def _spent(result) -> str:
    """Where the time of a run went."""
    names = dict(data="data", step="steps", server="aggregation", evaluate="evaluation", wall="in all")
    parts = ", ".join(f"{text} {result.seconds[name]:.1f}" for name, text in names.items())
    return f"seconds: {parts}; {1e3 * result.seconds['per_sample']:.3f} ms per training sample"


def _profile(spec, backend: str, device: str, step: str, place: str) -> None:
    """Trace the second round of a run; nothing is stored."""
    from pathlib import Path

    from fedlib.engine.simulate import simulate

    require(
        backend != "process", "backend", backend, "serial or vmap with --profile-engine, which sees one process only"
    )
    path = Path(place).expanduser()
    require(path.parent.is_dir(), "--profile-engine", place, "a file in a folder that exists")
    result = simulate(spec, backend=backend, device=device, step=step, trace=path)
    print(f"{_spent(result)}\ntrace of round 2: {path} (open it in https://ui.perfetto.dev)")


def _value(text: str):
    try:
        return json.loads(text)
    except ValueError:
        return text


@app.command("check")
@_clear_errors
def check_method(
    method: Annotated[str, typer.Argument(help="A method of `fedlib list`, or your own, FILE.py:CLASS.")],
    set_: Annotated[list[str] | None, typer.Option("--set", help="A hyper-parameter: NAME=VALUE. Repeatable.")] = None,
):
    """Check that a method keeps the contract, on digits: inputs that stay, backends that agree, runs that resume.

    The same questions that the tests ask fedlib's own methods; about ten seconds. Exit status 1 if something is wrong.
    """
    from fedlib import algorithms
    from fedlib.checks.contract import CHECKS, check

    wrong = 0
    for asked, found in check(algorithms.named(method), _assignments(set_)):
        print(f"{'WRONG' if found else 'ok':<6} {asked}" + (f"\n       {found}" if found else ""), flush=True)
        wrong += bool(found)
    print(f"{len(CHECKS) - wrong} of {len(CHECKS)} checks passed")
    if wrong:
        raise typer.Exit(1)


@app.command()
@_clear_errors
def report(
    paper: Annotated[
        str | None,
        typer.Argument(help="pfedsim, fedsimsup, pfedcs or pfedsv: one page on this paper, as Markdown and as HTML."),
    ] = None,
    profile: Annotated[
        str, typer.Option(help="Folder under results/: quick, paper, own/quick (what you made), or another one.")
    ] = "quick",
    scoreboard: Annotated[
        bool, typer.Option("--scoreboard", help="Also renew results/scoreboard.md: all papers, all scales.")
    ] = False,
    site: Annotated[
        Path | None,
        typer.Option(help="Write static pages on all papers, methods and lessons to this new or empty folder instead."),
    ] = None,
):
    """Write and print the comparison with the papers, from what is published, or with --profile own/quick from what
    `fedlib reproduce` has made here.

    With a paper's name: its items at its own settings, and in the quick profile where they were not run at these.
    With --site: pages that need no network, and all numbers as results.csv and results.json.
    """
    if site is not None:
        require(paper is None, "paper", paper, "none with --site, which has all papers")
        require(not scoreboard, "--scoreboard", scoreboard, "a call of its own, without --site")
        _site(site.expanduser())
        return
    from fedlib.reports import report as pages

    if paper is not None:
        paths = pages.write_page(paper)
        print(f"{pages.across_scales(f'{paper}/*')}\n\nin full: {' and '.join(map(str, paths))}")
    else:
        path = pages.write_report(profile)
        print(f"{pages.scoreboard(pages.saved_items(profile))}\n\nin full: {path}")
    if scoreboard:
        print(f"renewed: {pages.write_scoreboard()}")


def _site(folder: Path) -> None:
    from fedlib.reports.site import build

    names = build(folder)
    pages = sum(name.endswith(".html") for name in names)
    print(f"{pages} pages, {len(names)} files; open {folder / 'index.html'}")


@app.command()
@_clear_errors
def why(
    item: Annotated[str, typer.Argument(help="An item of `fedlib list`, for example pfedsim/table3_accuracy.")],
    row: Annotated[
        list[str] | None,
        typer.Argument(
            help="A text that rows of its tables contain (a method, an alpha, a point), or a run's id. Several narrow "
            "it down. Without: what can be asked."
        ),
    ] = None,
    profile: Annotated[
        str,
        typer.Option(
            help="Folder under results/: paper, quick, own/quick. Default: the largest scale that is published."
        ),
    ] = "",
    whole: Annotated[bool, typer.Option("--whole", help="All settings, not only those that are not defaults.")] = False,
):
    """Say where a number comes from: settings, seeds, commit, device, partition, readings of the paper, the accuracy
    over the rounds, the best round beside the last one, and the command that repeats the run.

    What a row is compared with are other rows' runs. Run files that are not here (those of quick are not published) are
    told, and the rest is shown.
    """
    from fedlib.reports.why import why as explain

    print(explain(item, row or (), profile, whole))


@app.command("compare")
@_clear_errors
def compare_results(
    items: Items = None,
    profile: Annotated[str, typer.Option(help="What to compare: results/own/PROFILE with results/PROFILE.")] = "quick",
    most: Annotated[int, typer.Option(help="Numbers that are listed of an item at most.")] = 10,
):
    """List what differs between what `fedlib reproduce` has made here and what is published: verdicts, and numbers with
    the size of the difference and whether it lies within the spread over seeds. Times are not compared."""
    from fedlib.reports.compare import compare, in_one_line, listed

    require(most >= 1, "--most", most, "a number of at least 1")
    found = compare(profile, _matching(items))
    if not found:
        raise BadValue(
            f"there is nothing to compare: results/own/{profile} and results/{profile} have none of these items in "
            f"common; run `fedlib reproduce --profile {profile.partition('+')[0]}` first"
        )
    print(*(listed(one, most) for one in found), sep="\n")
    print(f"\n{in_one_line(found, profile).removesuffix('; `fedlib compare` lists them')}")


@app.command()
@_clear_errors
def notebooks(folder: Annotated[Path, typer.Argument(help="A folder that is new or empty.")]):
    """Copy the notebooks out of an installed fedlib, with the results and figures that they show.

    Commands that are given in this folder, and notebooks that are opened in it, put what they make there.
    """
    from fedlib.reports.working_folder import lay_out

    number = lay_out(folder := folder.expanduser().resolve())
    print(f"{number} notebooks; begin with {folder / 'notebooks' / 'guides' / 'start_here.ipynb'}")


@app.command()
@_clear_errors
def data(
    name: Annotated[
        str | None, typer.Argument(help="A data set, folder:PATH for your own images, or hf:NAME. Without: the list.")
    ] = None,
    root: Annotated[
        str | None, typer.Option(help="Folder of prepared data sets (default: $FEDLIB_DATA or the user's cache).")
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="All data sets: size, terms, citation, whether here.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the downloaded archives under _downloads/.")] = False,
):
    """Download, prepare and verify a data set, or list all that can be had.

    What is here is verified only. $FEDLIB_OFFLINE=1 forbids downloads.
    """
    from fedlib.data import load

    if name is None or list_:
        _list_datasets(root)
        return
    dataset = load(name, root, keep=keep)
    mean, std = dataset.channel_stats
    sizes = dataset.labels.bincount(minlength=len(dataset.classes)).tolist()
    print(f"{name}: {len(dataset.labels)} {_form(dataset)}, {len(dataset.classes)} classes, checksum verified")
    what = "features" if dataset.is_table else "images"
    print(f"sha256 of the {what} {dataset.sha256}; {int(dataset.is_test.sum())} are of the official test part")
    print("samples per class: " + ", ".join(f"{c} {n}" for c, n in zip(dataset.classes, sizes)))
    if dataset.groups is not None:
        owned = dataset.groups.bincount(minlength=len(dataset.group_names)).tolist()
        shown = [f"{group} {n}" for group, n in zip(dataset.group_names, owned)]
        few = f": {', '.join(shown)}" if len(shown) <= 20 else f" of {min(owned)} to {max(owned)} samples"
        print(f"{len(shown)} groups{few}")
    if not dataset.is_table:
        print(f"channel mean {[round(float(v), 4) for v in mean]}, std {[round(float(v), 4) for v in std]}")


def _form(dataset) -> str:
    """What a sample is."""
    if dataset.is_table:
        return f"samples of {dataset.shape[0]} features"
    return f"images of {dataset.shape} (channels, height, width)"


def _list_datasets(root: str | None) -> None:
    from fedlib.data import DATASETS, available
    from fedlib.data import root as default_root

    here = available(root)
    print(f"data sets (in {root or default_root()}; FEDLIB_DATA or --root sets another folder)")
    print(f"  {'name':<14} {'images':>8}  {'pixels':<8} {'classes':>7} {'download':>9} {'on disk':>8}  here")
    for name, source in DATASETS.items():
        c, h, w = source.shape
        images = f"{'' if source.exact else '~'}{source.images:,}"
        download = f"{source.megabytes:,} MB" if source.megabytes else "by hand" if source.by_hand else "none"
        size = f"{max(1, round(source.images * c * h * w / 1e6)):,} MB"
        print(
            f"  {name:<14} {images:>8}  {f'{h}x{w}x{c}':<8} {source.classes:>7} {download:>9} {size:>8}  "
            f"{'yes' if name in here else 'no'}"
        )
    others = [name for name in here if name not in DATASETS]
    print(f"  folder:PATH    your own images, one folder for each class; also here: {', '.join(others) or 'no others'}")
    print("  hf:NAME        a data set of the Hugging Face hub, or a folder in its form (the extra 'hf')")
    print("\nterms and papers (look at the sources' own pages before you use or pass on the images)")
    for name, source in DATASETS.items():
        print(f"  {name:<14} {source.terms}\n{'':<17}{source.citation}")


labs = typer.Typer(help="Graded labs for a course: release them to students, and grade what comes back.")
app.add_typer(labs, name="labs", no_args_is_help=True)
Course = Annotated[Path, typer.Argument(help="The course's folder.")]
Labs = Annotated[list[str] | None, typer.Argument(help="Labs such as lab1_fedavg_and_partitions. Default: all.")]


@labs.command("release")
@_clear_errors
def release_labs(folder: Course, names: Labs = None):
    """Write the students' versions of labs, without solutions and hidden tests, to FOLDER/release/."""
    from fedlib.lessons.labs import release

    for path in release(folder, names or ()):
        print(path)


@labs.command("grade")
@_clear_errors
def grade_labs(
    folder: Course,
    names: Labs = None,
    seconds: Annotated[float, typer.Option(help="How long a cell may run; a whole notebook: ten times that.")] = 60,
    again: Annotated[bool, typer.Option("--again", help="Grade unchanged submissions again, too.")] = False,
):
    """Grade FOLDER/submitted/STUDENT/LAB/LAB.ipynb; points go to FOLDER/points.csv, comments to FOLDER/feedback/.

    Students' code runs in processes of its own with time limits, and without the network where Linux allows that. It
    runs as you, and can read and write your files: for people whom you do not trust use a container or another user.
    """
    from fedlib.lessons.labs import grade

    grades = grade(folder, names or (), seconds, again)
    print(grades.to_string(index=False))
    if len(failed := grades[grades["problem"] != ""]):
        print(f"error: {len(failed)} of {len(grades)} submissions could not be graded", file=sys.stderr)
        raise typer.Exit(1)


@app.command()
@_clear_errors
def bench(
    rounds: Annotated[int, typer.Option(help="Rounds in one turn of a variant.")] = 1,
    repeats: Annotated[int, typer.Option(help="Turns of every variant.")] = 5,
    device: Device = "auto",
    dataset: Annotated[
        str, typer.Option(help="Default: cifar10 if it is prepared, else random images of its shape.")
    ] = "",
    scaling: Annotated[
        bool,
        typer.Option("--scaling", help="Measure time and memory against the numbers of samples and clients instead."),
    ] = False,
    steps: Annotated[
        bool, typer.Option("--steps", help="Measure single training steps instead: plain, by PyTorch, compiled.")
    ] = False,
    quick: Annotated[bool, typer.Option("--quick", help="A tiny task, which only shows that everything runs.")] = False,
):
    """Client-samples per second of fedlib beside plain PyTorch loops on the same clients, as ratios in one run.

    About 5 minutes on 2 cores. On a GPU the rows are others, with the time of 200 rounds. Written to results/bench/.
    """
    from fedlib.benchmarks import scaling as growth
    from fedlib.benchmarks import speed
    from fedlib.benchmarks.steps import bench_steps

    if steps:
        words, table = bench_steps(repeats, quick)
    elif scaling:
        words, table = growth.scaling(quick)
    else:
        words, table = speed.bench(rounds, repeats, device, dataset, quick)
    print(f"{words}\n\n{speed.table_text(table)}")


@app.command("check-gpu")
@_clear_errors
def check_gpu(
    device: Annotated[str, typer.Option(help="cuda or cuda:N.")] = "cuda",
    seconds: Annotated[float, typer.Option(help="After this time no further check is begun.")] = 120.0,
):
    """Check in two minutes that a GPU gives what the CPU gives, and how fast: all methods, memory, two networks.

    Prints one table and writes nothing. The exit status is 0 if all is well, 1 if a check failed, 2 without a GPU, 3 if
    none failed and the time was over before all were made.
    """
    from fedlib.base.provenance import provenance
    from fedlib.benchmarks.check_gpu import check_gpu as checked
    from fedlib.engine.setup import find_device

    started = time.monotonic()
    table = checked(device, seconds)
    origin = provenance(find_device(device), "vmap")
    print(
        f"{origin['device']}, torch {origin['versions']['torch']}, {time.monotonic() - started:.0f} s\n\n{table.text()}"
    )
    if table.failed:
        print(f"error: {table.failed} of {len(table.rows)} checks failed", file=sys.stderr)
    if table.unchecked:
        left = f"{table.unchecked} of {len(table.rows)} checks were not made in time"
        print(f"error: {left}; --seconds gives more", file=sys.stderr)
    if table.failed or table.unchecked:
        raise typer.Exit(1 if table.failed else 3)


def main() -> None:
    """Entry point of the console script. Whatever becomes of a Ctrl-C on its way up, the exit status is 130."""
    interrupted = []
    for stream in (sys.stdout, sys.stderr):  # on Windows pipes and files have a code page without Greek letters
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
