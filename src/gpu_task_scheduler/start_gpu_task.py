"""`python -m gpu_task_scheduler.start_gpu_task`: the process of one instance."""

import sys

from stoker.compat.gpu_task_scheduler.child import main

if __name__ == "__main__":
    sys.exit(main())
