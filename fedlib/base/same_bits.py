"""The same bits on every CPU: what PyTorch, NumPy and their libraries would choose by processor is held.

They choose kernels by what a CPU can do, who made it and how many cores it has, and these differ in their last digits.
`import fedlib` sets their variables, unless somebody has: that must come before PyTorch is loaded. What it costs is
measured by `fedlib bench`. FEDLIB_FAST=1 leaves them their fastest kernels, and results say so (`arithmetic`).
"""

from __future__ import annotations

import os
import platform
import sys

ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # sums are split among threads
OF_X86 = {
    "ATEN_CPU_CAPABILITY": "avx2",  # PyTorch's own kernels
    "MKL_CBWR": "COMPATIBLE",  # matrix products
    "ONEDNN_MAX_CPU_ISA": "AVX2",  # convolutions
    "OPENBLAS_CORETYPE": "Haswell",  # NumPy's and SciPy's matrix products: kernels of every CPU with AVX2
    "NPY_DISABLE_CPU_FEATURES": "AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR X86_V4",
}
OF_ARM = {"ATEN_CPU_CAPABILITY": "default"}


def settings() -> dict[str, str]:
    """The variables and their values on this kind of processor."""
    x86 = platform.machine().lower() in ("x86_64", "amd64")
    return ONE_THREAD | (OF_X86 if x86 else OF_ARM)


def settle() -> None:
    """Set the variables for this process and those that it starts. Where that comes too late or somebody has set
    another value, one line says so, once for a process and its children."""
    if os.environ.get("FEDLIB_FAST") == "1":
        return
    late = "torch" in sys.modules and arithmetic() == "other"
    odd = [f"{name}={os.environ[name]}" for name, value in settings().items() if os.environ.get(name, value) != value]
    if not late:
        os.environ.update({name: os.environ.get(name, value) for name, value in settings().items()})
    if (late or odd) and "FEDLIB_TOLD_BITS" not in os.environ:
        os.environ["FEDLIB_TOLD_BITS"] = "1"
        why = "PyTorch was imported before fedlib" if late else f"{', '.join(odd)} is set"
        print(f"fedlib: {why}; numbers may differ in their last digits from those of other CPUs", file=sys.stderr)


def square_root(x):
    """The square root of a tensor, positive or 0: torch.sqrt is MKL's on x86, which no setting holds."""
    return x.rsqrt().reciprocal()


def of_run(provenance: dict) -> str:
    """The arithmetic of a stored result: as `arithmetic`, "gpu", or "earlier" for what is older than this module."""
    return provenance.get("arithmetic", "earlier")


def fastest() -> dict[str, str]:
    """The environment of a process like this one that may use what is quickest."""
    own = settings()
    return {name: value for name, value in os.environ.items() if own.get(name) != value} | {"FEDLIB_FAST": "1"}


def arithmetic() -> str:
    """Of this process, on a CPU: "portable", the same bits everywhere; "fast", what is quickest on this machine; or
    "other", whatever was set."""
    if os.environ.get("FEDLIB_FAST") == "1":
        return "fast"
    return "portable" if all(os.environ.get(name) == value for name, value in settings().items()) else "other"
