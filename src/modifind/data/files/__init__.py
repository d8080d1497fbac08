"""Files that hold tables: text of any dialect, and Parquet."""
