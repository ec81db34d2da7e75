# Install the Debian packages that are missing, and start nothing by it.
#
# While apt runs, a policy-rc.d denies every service start and a drop-in file
# tells postgresql-common not to make a cluster; both are gone afterwards and
# what was there before is back.  Services that run are left alone.  apt is
# asked only if something is missing.
#
# Needs common.sh.
# shellcheck shell=bash

policy_file=/usr/sbin/policy-rc.d
policy_saved=/usr/sbin/policy-rc.d.before-acemq
cluster_dir=/etc/postgresql-common/createcluster.d
cluster_file=$cluster_dir/acemq-no-cluster.conf

is_installed() {
	[ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# Prints those of its arguments that are not installed.
missing_packages() {
	local name
	for name in "$@"; do
		is_installed "$name" || printf '%s\n' "$name"
	done
}

apt_lists_fresh=no

refresh_apt_lists() {
	[ "$apt_lists_fresh" = no ] || return 0
	apt-get update -qq </dev/null || die "apt-get update failed: see above"
	apt_lists_fresh=yes
}

deny_services() {
	# One saved by a run that was killed is the true one.
	if [ ! -e "$policy_saved" ] && [ ! -L "$policy_saved" ] && { [ -e "$policy_file" ] || [ -L "$policy_file" ]; }; then
		mv "$policy_file" "$policy_saved"
	fi
	rm -f "$policy_file"
	printf '#!/bin/sh\n# acemq: no service is started while packages are installed.\nexit 101\n' >"$policy_file"
	chmod 755 "$policy_file"
}

allow_services() {
	rm -f "$policy_file"
	if [ -e "$policy_saved" ] || [ -L "$policy_saved" ]; then
		mv "$policy_saved" "$policy_file"
	fi
}

cluster_dirs_made=()

deny_clusters() {
	local dir
	for dir in /etc/postgresql-common "$cluster_dir"; do
		[ -d "$dir" ] || { mkdir "$dir" && cluster_dirs_made=("$dir" "${cluster_dirs_made[@]}"); }
	done
	printf 'create_main_cluster = false\n' >"$cluster_file"
}

allow_clusters() {
	local dir
	rm -f "$cluster_file"
	for dir in "${cluster_dirs_made[@]}"; do
		# A package may have put files into it meanwhile.
		rmdir "$dir" 2>/dev/null || :
	done
	cluster_dirs_made=()
}

system_changed=no

# Erlang's port mapper is no service: a package script that runs erl leaves one
# behind.  Ours are those that carry the mark that apt was started with.
end_our_epmd() {
	local dir
	for dir in /proc/[0-9]*; do
		if [ "$(cat "$dir/comm" 2>/dev/null)" = epmd ] && grep -qzFx "ACEMQ_INSTALL=$run_dir" "$dir/environ" 2>/dev/null; then
			kill "${dir#/proc/}" 2>/dev/null || :
		fi
	done
}

restore_system() {
	[ "$system_changed" = yes ] || return 0
	system_changed=no
	allow_services
	allow_clusters
	end_our_epmd
}

install_missing() {
	local missing
	mapfile -t missing < <(missing_packages "$@")
	[ "${#missing[@]}" -gt 0 ] || return 0
	say "Installing packages: ${missing[*]}"
	refresh_apt_lists
	at_exit restore_system
	system_changed=yes
	deny_services
	deny_clusters
	ACEMQ_INSTALL=$run_dir DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
		-o Dpkg::Use-Pty=0 "${missing[@]}" </dev/null >"$run_dir/apt.log" 2>&1 || {
		cat "$run_dir/apt.log" >&2
		die "apt-get install failed: see above"
	}
	restore_system
}
