"""`pytest notebooks` alone needs the environment of the tests too;
notebooks share a kernel and the runs of the tests."""

import os
import runpy
from pathlib import Path

import nbval.plugin
from nbval.kernel import RunningKernel

runpy.run_path(str(Path(__file__).parent.parent / "tests" / "conftest.py"))

EMPTY = """
import os, matplotlib.pyplot, pandas, torch
matplotlib.pyplot.close("all")
pandas.reset_option("display", silent=True)
torch.set_printoptions(profile="default")
os.chdir({folder!r})
for name in [name for name in os.environ if name.startswith("FEDLIB_")]:
    del os.environ[name]
os.environ |= {environment!r}
get_ipython().reset(new_session=True)
"""


class WarmKernel(RunningKernel):
    """One kernel for all notebooks that a process tests, emptied before each: a new one spends seconds on imports."""

    warm = None

    def __init__(self, kernel_name, cwd=None, startup_timeout=60):
        if WarmKernel.warm is None or not WarmKernel.warm.is_alive():
            super().__init__(kernel_name, cwd, startup_timeout)
            WarmKernel.warm = self
        self.__dict__ = WarmKernel.warm.__dict__
        environment = {name: value for name, value in os.environ.items() if name.startswith("FEDLIB_")}
        environment["FEDLIB_HOME"] = os.environ["FEDLIB_TEST_SHARED"]
        self.await_reply(self.execute_cell_input(EMPTY.format(folder=cwd, environment=environment)), 300)

    def stop(self):
        """The next notebook goes on with it; the last one leaves it to `pytest_sessionfinish`."""


nbval.plugin.RunningKernel = WarmKernel
collect_ignore_glob = ["labs/lab*"]  # tests/test_labs.py runs them as nbgrader does


def pytest_sessionfinish():
    if WarmKernel.warm is not None and WarmKernel.warm.is_alive():
        RunningKernel.stop(WarmKernel.warm)
