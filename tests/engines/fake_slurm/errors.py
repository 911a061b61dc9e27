"""What Slurm's programs print when they fail: stderr, with the exit code in the comment.

Copied from the output of Slurm 22.05.8, unless a comment says otherwise. Several are lines of one
output: the first names the cause, the last what was attempted.
"""

# squeue: 1, after about 10 s; scancel: 8; sbatch, sinfo, scontrol: 1, with other beginnings.
CONTROLLER_DOWN = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n"
# 1, of Slurm 24.11, while the controller stops.
CONTROLLER_STOPPED = "slurm_load_jobs error: Connection reset by peer\n"
CONTROLLER_DOWN_SBATCH = (
    "sbatch: error: Batch job submission failed: "
    "Unable to contact slurm controller (connect failure)\n"
)
# 1. Not copied: a controller that accepts connections and does not answer in MessageTimeout.
CONTROLLER_SLOW = "slurm_load_jobs error: Socket timed out on send/recv operation\n"
CONTROLLER_SLOW_SBATCH = (
    "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n"
)

# squeue: 1, after 2 s; scancel: 239
MUNGE_DOWN = """\
squeue: error: If munged is up, restart with --num-threads=10
squeue: error: Munge encode failed: Failed to access "/run/munge/munge.socket.2": \
No such file or directory (Did you start munged?)
squeue: error: slurm_send_node_msg: auth_g_create: REQUEST_JOB_INFO has authentication error
slurm_load_jobs error: Protocol authentication error
"""

# sbatch: 1
SUBMISSION = "sbatch: error: Batch job submission failed: "
INVALID_ACCOUNT = f"{SUBMISSION}Invalid account or account/partition combination specified\n"
INVALID_QOS = f"{SUBMISSION}Invalid qos specification\n"
INVALID_PARTITION = (
    "sbatch: error: invalid partition specified: nope\n"
    f"{SUBMISSION}Invalid partition name specified\n"
)
PARTITION_INACTIVE = f"{SUBMISSION}Required partition not available (inactive or drain)\n"
INVALID_FEATURE = f"{SUBMISSION}Invalid feature specification\n"
INVALID_NODE = f"{SUBMISSION}Invalid node name specified\n"
INVALID_ARRAY = f"{SUBMISSION}Invalid job array specification\n"
# Takes a job id all the same: the job is listed as FAILED with the reason BadConstraints.
NOT_AVAILABLE = f"{SUBMISSION}Requested node configuration is not available\n"
TOO_MUCH_MEMORY = f"sbatch: error: Memory specification can not be satisfied\n{NOT_AVAILABLE}"
TOO_MANY_CPUS = f"sbatch: error: CPU count per node can not be satisfied\n{NOT_AVAILABLE}"
_POLICY = (
    f"{SUBMISSION}Job violates accounting/QOS policy "
    "(job submit limit, user's size and/or time limits)\n"
)
ASSOCIATION_LIMIT = f"sbatch: error: AssocMaxSubmitJobLimit\n{_POLICY}"
QOS_LIMIT = f"sbatch: error: QOSMaxSubmitJobPerUserLimit\n{_POLICY}"

# sbatch: 255
UNKNOWN_OPTION = (
    "sbatch: unrecognized option '--nonsense'\nTry \"sbatch --help\" for more information\n"
)
INVALID_TIME = "sbatch: error: Invalid --time specification\n"

# sacct: 1
NO_ACCOUNTING = "Slurm accounting storage is disabled\n"
DATABASE_DOWN = """\
sacct: error: slurm_persist_conn_open_without_init: failed to open persistent connection to \
host:localhost:6819: Connection refused
sacct: error: Sending PersistInit msg: Connection refused
sacct: error: Problem talking to the database: Connection refused
"""

# Every program: 1
NO_CONFIGURATION = """\
squeue: error: s_p_parse_file: cannot stat file /etc/slurm/slurm.conf: \
No such file or directory, retrying in 1sec up to 60sec
squeue: error: ClusterName needs to be specified
squeue: fatal: Unable to process configuration file
"""
