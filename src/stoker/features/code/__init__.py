"""The code of jobs: the state of a git work tree at submit, and snapshots of it.

repository.py       finds the work tree of a folder, its commit and branch, without git
private_git.py      runs git with a git directory of Stoker's own, so that no setting, hook or
                    filter of the repository is used
state_reader.py     reads the state of the code: commit, branch and diff; which files have changed
                    since
check_files.py      recorded states, which a starting job compares with its folder
work_tree_files.py  which files of a work tree a snapshot has
snapshot_store.py   stores snapshots, and removes them
"""
