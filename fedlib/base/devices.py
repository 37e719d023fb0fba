"""What kind of device this is: the one place where devices are distinguished by their type."""

from __future__ import annotations

GPUS = {"cuda"}  # types of devices on which work is queued; a test adds one that is only pretended


def is_gpu(device) -> bool:
    """Whether a torch device computes apart from the CPU, queues its work and can record it."""
    return device.type in GPUS
