"""`pytest notebooks` alone needs the environment of the tests too. Notebooks share a kernel, and are executed in the
profile of their outputs, quick, beside the larger results that come with fedlib. All that a cell shows is compared, but
PNGs, which `figures.drawn` stands for, progress bars, and what tests/nbval.cfg and tags leave out. Who changes a number
on purpose runs `pytest notebooks --renew`."""

import contextlib
import os
import runpy
from pathlib import Path

import nbformat
import nbval.plugin
from filelock import FileLock
from nbval.kernel import RunningKernel

PROJECT = Path(__file__).resolve().parent.parent
runpy.run_path(str(PROJECT / "tests" / "conftest.py"))
HOME = Path(os.environ["FEDLIB_TEST_SHARED"])
ENVIRONMENT = {"FEDLIB_HOME": str(HOME), "FEDLIB_DATA": str(HOME / "data"), "FEDLIB_PROFILE": "quick"}
PRINTED = dict(precision=8, threshold=1000, edgeitems=3, linewidth=75, suppress=False)  # NumPy's own

EMPTY = """
import os, matplotlib.pyplot, numpy, pandas, torch
matplotlib.pyplot.close("all")
pandas.reset_option("display")
numpy.set_printoptions(**{printed!r})
torch.set_printoptions(profile="default")
os.chdir({folder!r})
for name in [name for name in os.environ if name.startswith("FEDLIB_")]:
    del os.environ[name]
os.environ |= {environment!r}
from fedlib.lessons import running_example
from fedlib.runs.run import get_or_run_together
from fedlib.runs.store import Store
place = Store("lessons", os.environ["FEDLIB_HOME"])  # nine lessons train the same baselines: once for all
running_example.simulate = lambda spec, run=get_or_run_together, store=place: run([spec], store)[0]
get_ipython().reset(new_session=True)
get_ipython().user_module.__spec__ = None  # which emptying takes away; who starts processes asks for it
"""


class WarmKernel(RunningKernel):
    """One kernel for all notebooks that a process tests, emptied before each: a new one spends seconds on imports."""

    warm = None

    def __init__(self, kernel_name, cwd=None, startup_timeout=60):
        if WarmKernel.warm is None or not WarmKernel.warm.is_alive():
            super().__init__(kernel_name, cwd, startup_timeout)
            WarmKernel.warm = self
        self.__dict__ = WarmKernel.warm.__dict__
        environment = {name: value for name, value in os.environ.items() if name.startswith("FEDLIB_")} | ENVIRONMENT
        self.await_reply(
            self.execute_cell_input(EMPTY.format(folder=cwd, environment=environment, printed=PRINTED)), 300
        )

    def stop(self):
        """The next notebook goes on with it; the last one leaves it to `pytest_sessionfinish`."""


nbval.plugin.RunningKernel = WarmKernel


def pytest_collectstart(collector):
    if isinstance(collector, nbval.plugin.IPyNbFile):
        collector.compare_outputs = not collector.config.getoption("renew", False)
        collector.skip_compare += ("stderr",)
        collector.sanitize_patterns |= nbval.plugin.get_sanitize_patterns((PROJECT / "tests/nbval.cfg").read_text())


def pytest_addoption(parser):
    parser.addoption("--renew", action="store_true", help="write what notebooks show now into them, to be committed")


def pytest_runtest_teardown(item):
    if item.config.getoption("renew", False) and getattr(item, "test_outputs", None) is not None:
        item.cell.execution_count = item.cell_num + 1
        item.cell.outputs = [output for output in item.test_outputs if output.get("name") != "stderr"]
        for output in item.cell.outputs:
            if output.output_type == "execute_result":
                output.execution_count = item.cell.execution_count
        nbformat.write(item.parent.nb, item.path)


def lay_out():
    """Results that come with fedlib, beside which quick runs will lie that are done here."""
    from fedlib.experiments import PROFILES

    for path in (PROJECT / "results").glob("*/*"):
        profile = path.parent.name
        if profile in PROFILES and (profile, path.name) != ("quick", "runs"):
            (HOME / "results" / profile).mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError):  # by another worker
                (HOME / "results" / profile / path.name).symlink_to(path)


def pytest_collection_finish(session):
    """Runs that collected notebooks show are done first, side by side, by the first worker; the others wait."""
    from fedlib.experiments import OpenItem, find, names
    from fedlib.reports.reproduce import train

    shown = {f"{cell.path.parent.name}/{cell.path.stem}" for cell in session.items if cell.path.suffix == ".ipynb"}
    if not shown or session.config.option.collectonly:
        return
    with FileLock(HOME / "quick.lock"):
        lay_out()
        opened = [OpenItem(find(name), "quick", root=HOME) for name in names() if name in shown]
        train([item for item in opened if item.missing])


def pytest_sessionfinish():
    if WarmKernel.warm is not None and WarmKernel.warm.is_alive():
        RunningKernel.stop(WarmKernel.warm)
