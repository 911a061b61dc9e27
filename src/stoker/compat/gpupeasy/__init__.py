"""GPUPeasy: `gpupeasy server` takes jobs over HTTP, `gpupeasy gui` is its web page.

The server has its own queue in `<logdir>/queue`, with a daemon and a runner like every other queue
of Stoker; the difference is that its devices are the strings of `--gpus`. The HTTP process keeps no
state: it may be killed at any time, the queue continues without it, and the next server with the
same folder finds every job. The user's own queue is not suitable: its devices are the GPUs of the
host, not strings such as `2,3`, an empty string, or the ID of a GPU that does not exist.

    main.py       the command line             app.py        requests, forms and responses
    server.py     the JSON routes              gui.py        the routes of the web page
    service.py    their effect on the queue    client.py     requests of the page to the server
    daemon.py     the daemon of the queue      html_pages.py HTML, with the files of pages/
    jobs.py       submissions, output files    auth.py       access control
    job_text.py   name ;; outfile ;; command   event_log.py  <logdir>/logs.out
"""
