"""Results of trials: tables, exports and plots.

`table` filters and sorts rows, `export` converts them for other programs, `figure` describes plots
that `terminal_plot` and `image_plot` draw. Nothing here reads files or the database. pandas,
polars, pyarrow and matplotlib are imported only when a function needs them.
"""
