"""What came out of trials: tables, exports, pictures.

`table` filters and sorts rows, `export` hands them to other programs, `figure` describes pictures
that `plot_terminal` and `plot_image` draw. Nothing here reads files or the database, and what needs
pandas, polars, pyarrow or matplotlib loads it when it is called.
"""
