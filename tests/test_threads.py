"""One thread inside workers, whatever was imported before."""

import sys
import types

from threadpoolctl import threadpool_info

from modifind._system import _controller, one_thread


def threads():
    return [library["num_threads"] for library in threadpool_info()]


def test_all_libraries_take_one_thread_and_then_what_they_took_before():
    before = threads()
    with one_thread():
        assert set(threads()) == {1}
        with one_thread():
            assert set(threads()) == {1}
        assert set(threads()) == {1}
    assert threads() == before


def test_libraries_are_looked_for_again_only_after_an_import(monkeypatch):
    with one_thread():
        known = _controller(len(sys.modules))
    assert _controller(len(sys.modules)) is known
    monkeypatch.setitem(sys.modules, "imported_since", types.ModuleType("imported_since"))
    assert _controller(len(sys.modules)) is not known
