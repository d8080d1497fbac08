"""The run: nuisance models, statistics and explanations of every feature, put together."""
