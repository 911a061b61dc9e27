"""`python -m gpupeasy server|gui`."""

import sys

from stoker.compat.gpupeasy.main import main

if __name__ == "__main__":
    sys.exit(main())
