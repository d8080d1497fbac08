"""Rerun every table and figure of the paper's experiments: ``modifind reproduce NAME``."""

from modifind.reproduce.catalogue import NAMES, reproduce
from modifind.reproduce.studies import Order

__all__ = ["NAMES", "Order", "reproduce"]
