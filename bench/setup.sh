#!/bin/sh
# Install the tools that the benchmarks compare with:  bench/setup.sh [VIRTUAL_ENVIRONMENT]
#
# Measuring Stoker alone does not need them. A tool that cannot be installed is skipped, and the
# tables say so; this script never fails because of a tool.
# Versions are pinned so that two runs compare the same programs.

environment=${1:-${PEERS:-${TMPDIR:-/tmp}/stoker-bench-peers}}
python=${PYTHON:-python3}
python_packages="
    simple-gpu-scheduler==0.1.4
    joblib==1.6.0
    distributed==2026.8.0
    hyperqueue==0.27.0
    runqd==0.4.18
"
system_packages="gcc libc6-dev findutils parallel task-spooler tmux"

missing=""

if [ -x "$environment/bin/python" ] || "$python" -m venv "$environment"; then
    for package in $python_packages; do
        "$environment/bin/python" -m pip install --quiet --disable-pip-version-check "$package" ||
            missing="$missing $package"
    done
else
    missing="$missing $environment"
fi

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get update -qq || :
    for package in $system_packages; do
        DEBIAN_FRONTEND=noninteractive apt-get install -qq -y "$package" >/dev/null ||
            missing="$missing $package"
    done
else
    echo "not root, or no apt-get; install these packages:" $system_packages
fi

if [ -n "$missing" ]; then
    echo "not installed:$missing"
fi
echo "peers are in $environment"
if [ "$environment" != "${TMPDIR:-/tmp}/stoker-bench-peers" ]; then
    echo "export PEERS=$environment"
fi
exit 0
