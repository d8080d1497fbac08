"""Rerun every table and figure of the paper's experiments: ``modifind reproduce NAME``."""

from modifind.reproduce.studies import NAMES, Order, reproduce

__all__ = ["NAMES", "Order", "reproduce"]
