"""Figures: pure functions from tables to matplotlib figures. They train nothing and read nothing.

`figures.<name>` is the function of this name, whichever file of this folder it is in. The files are imported when a
function is first asked for, so that a command or a worker that draws nothing need not wait for matplotlib. seaborn is
imported by the functions that draw with it, since looking for another one imports their files too.
"""

import os
import sys
from importlib import import_module
from pkgutil import iter_modules

if "matplotlib" not in sys.modules and (named := os.environ.pop("MPLBACKEND", "")):
    import matplotlib

    try:  # here, for an unknown one in the environment would keep Matplotlib from being imported
        matplotlib.rcParams["backend"] = named
        os.environ["MPLBACKEND"] = named
    except ValueError as error:
        print(f"fedlib: MPLBACKEND is ignored: {' '.join(str(error).split())}", file=sys.stderr)


def __getattr__(name: str):
    for file in () if name.startswith("_") else iter_modules(__path__):
        module = f"{__name__}.{file.name}"
        found = vars(import_module(module)).get(name)
        if getattr(found, "__module__", None) == module:
            return globals().setdefault(name, found)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
