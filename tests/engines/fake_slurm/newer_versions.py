"""Output of Slurm in other versions and configurations than the one that tests start.

Written after Slurm's documentation and release notes, not copied from a cluster.
"""

# sbatch --parsable, when the administrator has several clusters
SBATCH_WITH_CLUSTER = "4711;hpc\n"

# scontrol show nodes -o: GPU types, sockets, several words in State, GPUs in AllocTRES
NODES_24_05 = """\
NodeName=g01 Arch=x86_64 CoresPerSocket=32 CPUAlloc=24 CPUEfctv=64 CPUTot=64 CPULoad=11.52 \
AvailableFeatures=a100,ib ActiveFeatures=a100,ib Gres=gpu:a100:4(S:0-1) NodeAddr=g01 \
NodeHostName=g01 Version=24.05.3 RealMemory=515000 AllocMem=98304 FreeMem=402113 Sockets=2 \
Boards=1 State=MIXED+PLANNED ThreadsPerCore=1 TmpDisk=0 Weight=1 Partitions=gpu,all \
CfgTRES=cpu=64,mem=515000M,billing=64,gres/gpu=4,gres/gpu:a100=4 \
AllocTRES=cpu=24,mem=96G,gres/gpu=3,gres/gpu:a100=3 CurrentWatts=0 AveWatts=0
NodeName=g02 Arch=x86_64 CoresPerSocket=32 CPUAlloc=0 CPUEfctv=64 CPUTot=64 CPULoad=0.00 \
AvailableFeatures=h100 ActiveFeatures=h100 Gres=gpu:h100:8(S:0-1),shard:16 NodeAddr=g02 \
NodeHostName=g02 Version=24.05.3 RealMemory=1031000 AllocMem=0 FreeMem=N/A Sockets=2 \
Boards=1 State=DOWN*+DRAIN+NOT_RESPONDING ThreadsPerCore=1 TmpDisk=0 Weight=1 Partitions=gpu \
CfgTRES=cpu=64,mem=1031000M,billing=64,gres/gpu=8,gres/gpu:h100=8 \
AllocTRES= CurrentWatts=0 AveWatts=0 Reason=Not responding [slurm@2026-01-02T03:04:05]
NodeName=c01 CoresPerSocket=16 CPUAlloc=0 CPUEfctv=16 CPUTot=16 CPULoad=N/A \
AvailableFeatures=(null) ActiveFeatures=(null) Gres=(null) NodeAddr=c01 NodeHostName=c01 \
RealMemory=64000 AllocMem=0 FreeMem=N/A Sockets=1 Boards=1 State=IDLE+CLOUD+POWERED_DOWN \
ThreadsPerCore=1 TmpDisk=0 Weight=1 Partitions=all CfgTRES=cpu=16,mem=64000M,billing=16 \
AllocTRES= CurrentWatts=0 AveWatts=0
"""

# sinfo -h -N -o '%N|%T|%G': a node appears once for each of its partitions
SINFO_24_05 = """\
g01|mixed|gpu:a100:4(S:0-1)
g01|mixed|gpu:a100:4(S:0-1)
g02|drained*|gpu:h100:8(S:0-1),shard:16
c01|idle~|(null)
"""
