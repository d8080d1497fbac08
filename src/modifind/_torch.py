"""Torch, which is optional: imported when first needed, or refused with what to do.

A device is "cpu", "cuda" or "cuda:0", "cuda:1", .... Parts that need no torch work in numpy on "cpu"; "torch:cpu" has
them take the same way through torch as on a GPU, which is how that way is tested on a machine without one.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

PREFIX = "torch:"


def import_torch(device: str, user: str) -> Any:
    """The torch module, for `user` to work on `device`."""
    check_device(device)
    try:
        import torch
    except ImportError:
        raise ImportError(f'{user} needs torch: pip install "modifind[cvae]"') from None
    if device.startswith("cuda"):
        if not torch.cuda.is_available():
            raise ValueError(f"device={device!r}, but torch finds no CUDA device; use device='cpu'")
        count = torch.cuda.device_count()
        if int(device.partition(":")[2] or 0) >= count:
            raise ValueError(f"device={device!r}, but torch finds {count} CUDA device{'s' if count > 1 else ''}")
    return torch


def open_device(device: str, user: str) -> tuple[Any, Any]:
    """The torch module and its own object for `device`."""
    torch = import_torch(device, user)
    return torch, torch.device(device.removeprefix(PREFIX))


class OnDevice:
    """What keeps its numbers on a torch device, for `user`."""

    def __init__(self, device: str, user: str) -> None:
        self.torch, self.device = open_device(device, user)

    def tensor(self, array: NDArray[Any]) -> Any:
        """An array on the device."""
        return self.torch.from_numpy(np.ascontiguousarray(array)).to(self.device)


def check_device(device: Any) -> None:
    """Refuse anything but the name of a device."""
    if not isinstance(device, str) or not re.fullmatch(rf"({PREFIX})?cpu|cuda(:\d+)?", device):
        raise ValueError(f"device must be 'cpu', 'cuda' or 'cuda:0', 'cuda:1', ..., not {device!r}")
