"""Optional torch: imported when first needed, with an error that says how to install it.

A device is "cpu", "cuda" or "cuda:0", "cuda:1", .... Code that does not need torch runs in numpy on "cpu"; "torch:cpu"
takes the same path through torch as a GPU would, which is how that path is tested without one.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

PREFIX = "torch:"


def import_torch(device: str, user: str) -> Any:
    """The torch module; an error names `user` as what needs it on `device`."""
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
    """The torch module and its device object."""
    torch = import_torch(device, user)
    return torch, torch.device(device.removeprefix(PREFIX))


class OnDevice:
    """Base class of what keeps its tensors on a torch device; `user` names it in errors."""

    def __init__(self, device: str, user: str) -> None:
        self.torch, self.device = open_device(device, user)

    def tensor(self, array: NDArray[Any]) -> Any:
        """Copy an array to the device."""
        return self.torch.from_numpy(np.ascontiguousarray(array)).to(self.device)


def check_device(device: Any) -> None:
    """Raise a ValueError unless `device` is the name of a device."""
    if not isinstance(device, str) or not re.fullmatch(rf"({PREFIX})?cpu|cuda(:\d+)?", device):
        raise ValueError(f"device must be 'cpu', 'cuda' or 'cuda:0', 'cuda:1', ..., not {device!r}")
