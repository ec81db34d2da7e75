# Other Debian releases, each in a chroot that debootstrap makes from the mirror
# that this machine's own apt sources name.
#
# What runs in one has its own view of mounts, processes and shared memory (man
# unshare): nothing is mounted where anybody else sees it, and when the command
# in front has ended, however, the kernel ends what it left running and takes
# its mounts away.  So a directory can be removed without meeting a mount.
#
# ACEMQ_CHROOTS names a directory where they are kept for the next run; without
# it they are in the run directory and go with it.
#
# Needs common.sh, packages.sh, build.sh.
# shellcheck shell=bash

all_platforms=(bookworm trixie forky)
debootstrap_scripts=/usr/share/debootstrap/scripts

# Prints the address of the mirror, as apt knows it.
debian_mirror() {
	apt-get indextargets --format "\$(LABEL)|\$(COMPONENT)|\$(REPO_URI)" 'Created-By: Packages' |
		sed -n 's/^Debian|main|//p' | head -n 1
}

chroots_dir() {
	say "${ACEMQ_CHROOTS:-$run_dir/chroots}"
}

# The apt of this machine may need a proxy, or to pass over dates: so may the other.
carry_settings() {
	cp /etc/resolv.conf /etc/hosts "$1/etc/"
	cp -r /etc/apt/apt.conf.d "$1/etc/apt/"
}

# bootstrap PLATFORM DIRECTORY
bootstrap() {
	local platform=$1 dir=$2 mirror proxy='' script=()
	install_missing debootstrap
	mirror=$(debian_mirror)
	if [ -z "$mirror" ]; then
		refresh_apt_lists
		mirror=$(debian_mirror)
	fi
	[ -n "$mirror" ] || die "the apt sources of this machine name no Debian mirror: --on needs one"
	# A release younger than debootstrap is made as the one in the making was.
	[ -e "$debootstrap_scripts/$platform" ] || script=("$debootstrap_scripts/sid")
	eval "$(apt-config shell proxy Acquire::http::Proxy)"
	[ -z "$proxy" ] || export http_proxy="$proxy"
	rm -rf --one-file-system "$dir"
	mkdir -p "$dir"
	say "Making a chroot: $platform"
	run_child unshare --mount --pid --fork --kill-child \
		debootstrap --variant=minbase "$platform" "$dir" "$mirror" "${script[@]}" >"$run_dir/debootstrap.log" 2>&1 || {
		tail -n 40 "$run_dir/debootstrap.log" >&2
		die "debootstrap $platform failed: see above"
	}
	printf 'deb %s %s main\n' "$mirror" "$platform" >"$dir/etc/apt/sources.list"
	# Hundreds of packages, and no need to outlive a power cut.
	printf 'force-unsafe-io\n' >"$dir/etc/dpkg/dpkg.cfg.d/acemq"
	touch "$dir/acemq-is-whole"
}

# make_chroot PLATFORM: sets chroot_dir, which nobody else uses until we end.
make_chroot() {
	local platform=$1
	chroot_dir=$(chroots_dir)/$platform
	mkdir -p "$(chroots_dir)"
	exec {chroot_lock}>"$(chroots_dir)/$platform.lock"
	flock -n "$chroot_lock" || die "another run uses $chroot_dir"
	[ -e "$chroot_dir/acemq-is-whole" ] || bootstrap "$platform" "$chroot_dir"
	carry_settings "$chroot_dir"
	# A run that was killed left its own here.
	rm -rf --one-file-system "$chroot_dir"/tmp/acemq.* "$chroot_dir/root/acemq"
}

# in_chroot DIRECTORY COMMAND...: nothing of this machine's environment goes in.
in_chroot() {
	# shellcheck disable=SC2016
	unshare --mount --pid --ipc --fork --kill-child "$BASH" -ec '
		mount -t proc proc "$1/proc"
		mount --bind /dev "$1/dev"
		mount -t tmpfs -o mode=1777 tmpfs "$1/dev/shm"
		exec chroot "$1" env -i HOME=/root LC_ALL=C.UTF-8 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "${@:2}"
	' in_chroot "$@"
}
