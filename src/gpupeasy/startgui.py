"""`python -m gpupeasy.startgui`: the same as `gpupeasy gui`, with the same options."""

import sys

from stoker.compat.gpupeasy.main import main

if __name__ == "__main__":
    sys.exit(main(["gui", *sys.argv[1:]]))
