"""Backends: run jobs on Slurm and Ray.

The walk of a job with `--on NAME`, from the queue to its end:

1. `features/backends/backend_requests.py` checks the request when the job is submitted; the job is
*queued*. 2. The daemon starts `driver.py` for each backend with work. `hand_over.py` divides ready
jobs into
   chunks; one transaction marks them *submitted*, each chunk with its allocation.
3. `chunk_files.py` writes the chunks into a folder that the nodes can read, and the backend
   (`slurm/`, `ray/`) requests the allocations with a token, so that a repeated request is harmless.
4. In an allocation, `worker.py` runs the scheduling loop of `stoker run` over its chunk and writes
   starts and ends to the chunk's event file.
5. `event_collector.py` reads the event files and records starts, ends and lost jobs in the queue.
"""
