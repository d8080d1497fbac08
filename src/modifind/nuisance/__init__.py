"""Models that the test needs and that nobody asks about: scores, outcomes, conditional distributions."""
