import re

from conftest import ROOT

README = ROOT / "README.md"


def test_python_example_runs_and_says_what_it_says(capsys, tmp_path, monkeypatch):
    text = README.read_text(encoding="utf-8")
    code = re.search(r"```python\n(.*?)```", text, flags=re.DOTALL).group(1)
    shown = re.search(r"```python\n.*?```\s*```text\n(.*?)```", text, flags=re.DOTALL).group(1)
    assert len(code.strip().splitlines()) <= 10
    monkeypatch.chdir(tmp_path)
    exec(code, {})
    assert capsys.readouterr().out.split() == shown.split()
    assert (tmp_path / "report.html").exists()


def test_pictures_exist():
    for path in re.findall(r"!\[[^]]*]\(([^)]+)\)", README.read_text(encoding="utf-8")):
        assert (README.parent / path).is_file()
