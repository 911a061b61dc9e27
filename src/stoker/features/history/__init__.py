"""The past of GPUs and jobs: usage, activities, timeline."""
