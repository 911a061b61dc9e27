"""NVIDIA's MPS: one control daemon for each user and GPU, kept by a process of its own.

mps_folder.py has the files, mps_control.py the program of NVIDIA, monitor_process.py the process
that starts, watches and stops a control daemon, mps_servers.py what the loop uses, and mps_view.py
what `gpus` shows.
"""
