"""Table files: delimited text of any dialect, and Parquet."""
