"""The run: combines nuisance models, statistics and explanations of every feature."""
