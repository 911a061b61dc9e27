"""What all HTTP servers of Stoker have in common.

| module | what it does |
|---|---|
| addresses.py | resolves a `--host` value to addresses |
| http_server.py | binds the port at all addresses of the host and runs uvicorn |
| connection.py | limits the connections of each peer, and the time for a request header |
| peers.py | asks the kernel which user owns the other end of a connection |
| middleware.py | reads the request body, calls the guard, adds headers to the response |
| guard_request.py | the interface between the middleware and a guard |
| token_file.py | creates and reads the secret of a server |

`stoker web` and the two servers of GPUPeasy differ in their guards and their applications.
"""
