"""The progress bar."""

from modifind.engine.progress import ProgressBar


def test_time_left_is_known_when_a_step_takes_minutes():
    bar = ProgressBar(True)
    with bar as advance:
        for done in range(4):
            bar._bar.get_time = lambda now=400.0 * done: now
            advance(done, 10)
        assert bar._bar.tasks[0].time_remaining == 7 * 400
