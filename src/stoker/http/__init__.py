"""What every port of ours has in common, whatever is served there.

listening.py opens the port and runs uvicorn on it, protocol.py limits what a connection may take,
peers.py asks the kernel whose process is at its other end, and gate.py stands before the
application: it reads a request whole, asks the guard that it was given, and dresses the answer.
`stoker web` and the two servers of GPUPeasy differ in their guards and in what is behind the gate.
"""
