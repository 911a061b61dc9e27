"""`python -m gpupeasy.startserver`: the same as `gpupeasy server`, with the same options."""

import sys

from stoker.compat.gpupeasy.main import main

if __name__ == "__main__":
    sys.exit(main(["server", *sys.argv[1:]]))
