"""Files: what a run has found so far, and results that are checked when they are read."""
