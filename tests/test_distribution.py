"""What is published: the source distribution, the long description and the metadata."""

import re
import shutil
import subprocess
import sys
import tarfile
import tomllib

import pytest

import modifind
from conftest import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
MADE = {"PKG-INFO", "setup.cfg"}  # by the build


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    """Names and metadata of the source distribution, built from a copy so that nothing is left in the repository."""
    tracked = _tracked()
    folder = tmp_path_factory.mktemp("sdist")
    for name in tracked:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name)
    command = "import setuptools.build_meta as build; print(build.build_sdist('dist'))"
    made = subprocess.run([sys.executable, "-c", command], cwd=folder, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    with tarfile.open(folder / "dist" / made.stdout.split()[-1]) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
        members = {m.name.split("/", 1)[1] for m in archive.getmembers() if m.isfile()}
        info = archive.extractfile(next(n for n in archive.getnames() if n.count("/") == 1 and n.endswith("PKG-INFO")))
        return names & members, info.read().decode("utf-8").replace("\r\n", "\n")


def _tracked():
    # A source distribution that was unpacked inside a checkout is none itself.
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [name for name in listed.stdout.split("\0") if name and (ROOT / name).exists()]


def test_source_distribution_holds_what_the_repository_tracks(sdist):
    names, _ = sdist
    made = {name for name in names if name.startswith("src/modifind.egg-info/")} | MADE
    assert names - made == set(_tracked())


def test_long_description_works_outside_the_repository(sdist):
    _, info = sdist
    text = info.split("\n\n", 1)[1]
    assert "make demo" in text
    assert not re.findall(r"!\[|<img", text)
    assert not re.findall(r"]\((?!https://|#)[^)]*\)", text)
    assert f"]({PROJECT['urls']['Source']}/blob/main/docs/" in text


def test_metadata_name_every_python_and_one_place(sdist):
    _, info = sdist
    for minor in range(11, 15):
        assert f"Classifier: Programming Language :: Python :: 3.{minor}\n" in info
    assert {
        url.split("/blob/")[0].removesuffix("/issues") for key, url in PROJECT["urls"].items() if key != "Documentation"
    } == {PROJECT["urls"]["Source"]}


def test_version_and_citation_are_those_of_the_metadata():
    assert modifind.__version__ == PROJECT["version"]
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"version: {PROJECT['version']}\n" in text
    assert f"repository-code: {PROJECT['urls']['Source']}\n" in text
    assert "The modifind developers" in text
