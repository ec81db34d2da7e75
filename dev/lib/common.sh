# Shared by the scripts of dev/: where we are, the run directory, ending well.
#
# A script that sources this file gets
#   top        the checkout
#   run_dir    after make_run_dir: a directory that users postgres and rabbitmq
#              can reach, which a checkout under /root is not; removed at exit
#   python     the interpreter that Debian's python3-* packages belong to
# Everything a script must undo is registered with at_exit and undone on every
# way out, Ctrl-C and SIGTERM included.
# shellcheck shell=bash

set -euo pipefail

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
export python=/usr/bin/python3
export LC_ALL=C.UTF-8 PYTHONDONTWRITEBYTECODE=1

say() {
	printf '%s\n' "$*"
}

die() {
	printf '%s: %s\n' "$(basename "$0")" "$*" >&2
	exit 1
}

need_root() {
	[ "$(id -u)" = 0 ] || die "run this as root: it installs packages and the extension, and starts servers as their own users"
}

# Things to undo, last one first.
undo=()

at_exit() {
	undo=("$1" "${undo[@]}")
}

child=

# A command in the background that we wait for: bash runs a trap only after the
# command in front has ended, and a test run takes minutes.  It gets a process
# group of its own, so that we can end all of it.
run_child() {
	local code=0
	set -m
	"$@" </dev/null &
	child=$!
	set +m
	wait "$child" || code=$?
	child=
	return "$code"
}

# Ask the child's group to end, and wait: what started servers stops them first.
end_child() {
	local tenths
	kill -TERM -- "-$child" 2>/dev/null || return 0
	for ((tenths = 0; tenths < 450; tenths++)); do
		kill -0 -- "-$child" 2>/dev/null || return 0
		sleep 0.1
	done
	kill -KILL -- "-$child" 2>/dev/null || :
}

leave() {
	local code=$? step
	trap - EXIT
	trap '' INT TERM HUP
	if [ -n "$child" ]; then
		end_child
	fi
	for step in "${undo[@]}"; do
		"$step" || :
	done
	exit "$code"
}

trap leave EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

remove_run_dir() {
	rm -rf --one-file-system "$run_dir"
}

make_run_dir() {
	# Not under $TMPDIR: a per-user one cannot be entered by the servers' users.
	run_dir=$(mktemp -d /tmp/acemq.XXXXXX)
	chmod 755 "$run_dir"
	export ACEMQ_RUN_DIR=$run_dir
	at_exit remove_run_dir
}
