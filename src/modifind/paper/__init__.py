"""Rerun every table and figure of the paper's experiments: ``modifind reproduce NAME``."""

from modifind.paper.catalogue import NAMES, reproduce
from modifind.paper.runs import Order

__all__ = ["NAMES", "Order", "reproduce"]
