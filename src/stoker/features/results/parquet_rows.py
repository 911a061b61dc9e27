"""The first rows of a Parquet file: `python -m stoker...parquet_rows ROWS COLUMNS < FILE`.

A small file can decompress to terabytes, so this runs in a process of its own, whose memory and CPU
time are limited. Prints JSON: {"columns", "rows", "total"}, or {"problem"}.
"""

from __future__ import annotations

import json
import os
import resource
import sys

from stoker.errors import Unavailable
from stoker.features.results.optional_imports import load

_MEMORY = 4 << 30
_CPU_SECONDS = 10
_MAX_CELL = 400


def main(most_rows: int, most_columns: int) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_SECONDS, _CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.environ["OMP_NUM_THREADS"] = os.environ["ARROW_IO_THREADS"] = "1"
    try:
        parquet = load("pyarrow.parquet", "parquet")
    except Unavailable as error:
        print(json.dumps({"problem": f"{error.message}: {error.hint}"}))
        return
    file = parquet.ParquetFile(os.fdopen(0, "rb"))
    names = file.schema_arrow.names
    rows: list[list[str]] = []
    for batch in file.iter_batches(
        batch_size=most_rows, columns=names[:most_columns], use_threads=False
    ):
        columns = [column.to_pylist() for column in batch.columns]
        rows = [[_text(cell) for cell in row] for row in zip(*columns, strict=True)]
        break
    shown = [str(name)[:_MAX_CELL] for name in names]
    print(json.dumps({"columns": shown, "rows": rows, "total": file.metadata.num_rows}))


def _text(cell: object) -> str:
    if cell is None:
        return ""
    if isinstance(cell, float):
        return f"{cell:.6g}"
    return (cell if isinstance(cell, str) else str(cell))[:_MAX_CELL]


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
