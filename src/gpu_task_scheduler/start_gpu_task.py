"""The process of one instance."""

import sys

from stoker.compat.task_scheduler_child import main

if __name__ == "__main__":
    sys.exit(main())
