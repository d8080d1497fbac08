"""Only what pyproject.toml cannot say: the long description, whose links work outside the repository."""

import re
import tomllib
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).resolve().parent


def long_description() -> str:
    """README.md without pictures, its relative links made absolute by the project's URL."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        source = tomllib.load(file)["project"]["urls"]["Source"]
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    text = re.sub(r"^!\[[^]]*]\([^)]*\)\n+|<img [^>]*>\n*", "", text, flags=re.MULTILINE)
    return re.sub(r"]\((?![a-z]+:|#)([^)]+)\)", rf"]({source}/blob/main/\1)", text)


setup(long_description=long_description(), long_description_content_type="text/markdown")
