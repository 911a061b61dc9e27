"""Ray: one long-lived actor per node holds GPUs and starts workers.

    driver process                            node
    ------------------------------------      ----------------------------------------------
    ray_backend.py: which allocation runs     node_actor.py: holds GPUs, starts workers
      where, and what happened to it            (features/backends/worker.py) and reads their files
    connection.py -> client_process.py
      the only process that imports Ray

A node that does not see the files of the queue gets copies: sent_files.py has what is sent,
returned_files.py what returns.
"""
