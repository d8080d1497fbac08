"""Texts that comparisons of several arms have in common, and those that they do not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def merged_texts(by_arm: Mapping[str, Iterable[str]], reference: Any) -> list[str]:
    """Merge texts of comparisons with a reference; a text that not all of them have names those that do.

    Examples
    --------
    >>> merged_texts({"low": ["x is constant"], "high": ["x is constant", "few rows"]}, "none")
    ['x is constant', "few rows ('high' against 'none')"]
    """
    owners: dict[str, list[str]] = {}
    for label, texts in by_arm.items():
        for text in dict.fromkeys(texts):
            owners.setdefault(text, []).append(label)
    return [
        text if len(labels) == len(by_arm) else f"{text} ({', '.join(map(repr, labels))} against {str(reference)!r})"
        for text, labels in owners.items()
    ]
