"""The process of a job that calls a Python function instead of a shell (`hog --function`).

python -m stoker.compat.hog.call FILE NAME JOB_NAME JOB_INSTRUCTION OUTPUT_DIR
"""

from __future__ import annotations

import os
import sys

from stoker.compat.hog.user_module import load_module


def main(path: str, name: str, job_name: str, job_instruction: str, output_dir: str) -> int:
    gpu = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    function = getattr(load_module(path), name)
    result = function(job_name, job_instruction, output_dir, int(gpu) if gpu.isdigit() else gpu)
    if isinstance(result, int) and not isinstance(result, bool):
        return result  # an exit code
    return 1 if result is False else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
