"""The reference names everything that is public, and every public object shows by an example what it does."""

import dataclasses
import doctest
import importlib
import inspect
import pkgutil
import re

import pytest

import modifind
from conftest import ROOT

PACKAGES = (
    *("charts", "explain", "baselines", "presets", "datasets", "inference", "statistics"),
    *("nuisance.conditional", "nuisance.outcome"),
)
# What packages hand to each other alone.
INSIDE = {"IncompleteSampler", "with_missing_support", "resolve_sampler"}
DOWNLOADS = {"fetch_nhanes_crp"}
PAGES = [page.read_text(encoding="utf-8") for page in sorted((ROOT / "docs" / "reference").glob("*.md"))]


def listed():
    """Objects that the pages ask for, by name; of a package, all that it makes public."""
    found = {}
    for path in re.findall(r"^::: (\S+)", "\n".join(PAGES), re.M):
        own = pkgutil.resolve_name(path)
        names = own.__all__ if inspect.ismodule(own) else [path.rpartition(".")[2]]
        found |= {name: getattr(own, name) if inspect.ismodule(own) else own for name in names}
    return found


LISTED = listed()


def members(own):
    """Public methods and properties of a class that are ours."""
    for name, found in inspect.getmembers(own):
        function = found.fget if isinstance(found, property) else found
        if not name.startswith("_") and inspect.isroutine(function) and function.__module__.startswith("modifind"):
            yield name


def test_every_public_name_is_in_the_reference():
    names = {name for name in modifind.__all__ if not name.startswith("_")}
    for package in PACKAGES:
        module = importlib.import_module(f"modifind.{package}")
        public = getattr(module, "__all__", [name for name in vars(module) if name in LISTED])
        names |= {name for name in public if callable(getattr(module, name))}
    assert names - INSIDE - set(LISTED) == set()


@pytest.mark.parametrize("name", sorted(LISTED.keys() - DOWNLOADS))
def test_every_public_object_has_an_example_that_runs(name):
    examples = doctest.DocTestParser().get_examples(LISTED[name].__doc__ or "")
    assert [own for own in examples if doctest.SKIP not in own.options]
    assert LISTED[name].__module__.startswith("modifind")  # where `make test` collects examples


@pytest.mark.parametrize("name", sorted(name for name, own in LISTED.items() if inspect.isclass(own)))
def test_every_attribute_and_method_is_described(name):
    own = LISTED[name]
    fields = [field.name for field in dataclasses.fields(own)] if dataclasses.is_dataclass(own) else []
    documented = "\n".join(inspect.getdoc(base) or "" for base in own.__mro__)
    assert [field for field in fields if not re.search(rf"\b{field}\b", documented)] == []
    assert [member for member in members(own) if not inspect.getdoc(getattr(own, member))] == []
