"""`pytest notebooks` alone needs the environment of the tests too."""

import runpy
from pathlib import Path

runpy.run_path(str(Path(__file__).parent.parent / "tests" / "conftest.py"))
