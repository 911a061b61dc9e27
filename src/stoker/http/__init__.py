"""What all HTTP servers of Stoker have in common.

addresses.py resolves a `--host`, listening.py takes the port at every address that the same names
lead to and runs uvicorn on it, limits.py refuses connections beyond a peer's share before they cost
anything, peers.py asks the kernel which user is at the other end (sock_diag.py), protocol.py limits
the time for a header, and gate.py stands before the application: it reads a request whole, asks
the guard that it was given, and adds headers to the response.
`stoker web` and the two servers of GPUPeasy differ in their guards and in what is behind the gate.
"""
