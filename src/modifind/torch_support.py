"""Torch, which is optional: imported when first needed, or refused with what to do."""

from __future__ import annotations

from typing import Any


def import_torch(device: str, user: str) -> Any:
    """The torch module, for `user` to train on `device`."""
    try:
        import torch
    except ImportError:
        raise ImportError(f'{user} needs torch: pip install "modifind[cvae]"') from None
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise ValueError(f"device={device!r}, but torch finds no CUDA device; use device='cpu'")
    return torch
