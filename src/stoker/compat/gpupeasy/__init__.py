"""GPUPeasy: `gpupeasy server` takes jobs over HTTP, `gpupeasy gui` is its page.

The server has a queue of its own, in `<logdir>/queue`, with a daemon and a runner like any other
queue of Stoker's; what is special is only that its devices are the strings it was given. The HTTP
process therefore holds nothing: it may be killed at any instant, the queue goes on without it, and
the next server on the same folder finds every job. A loop hosted by the HTTP process would have
tied the jobs to it. The user's own queue would not do either: there, devices are the host's cards,
and not strings such as `2,3`, `` or the id of a card that does not exist.

    main.py     the command line           site.py     requests and answers
    server.py   the JSON routes            gui.py      the page's routes
    desk.py     what they do to the queue  client.py   how the page asks the server
    daemon.py   the daemon of that queue   pages.py    HTML, assets.py its style and script
    jobs.py     what a job may look like   files.py    where its output goes
    devices.py  what a device is called    forms.py    the fields of a form
    answers.py  their keys and words       guard.py    who may speak to us
    logbook.py  <logdir>/logs.out
"""
