# dev/test --on: the tiers once per platform, each run by a dev/test of its own.
#
# Needs common.sh, packages.sh, build.sh, chroot.sh, results.sh.
# shellcheck shell=bash

platform_here() {
	"$top/dev/test" "$@"
}

platform_chroot() {
	in_chroot "$chroot_dir" /root/acemq/dev/test "$@"
}

# run_on PLATFORM ARGUMENT...: those of dev/test, which prints its table itself.
run_on() {
	local platform=$1 log=$run_dir/$1.log begun=$SECONDS code=0 passed failed runner=platform_here
	shift
	say "=== $platform"
	if [ "$platform" != here ]; then
		make_chroot "$platform"
		copy_tree "$chroot_dir/root/acemq"
		runner=platform_chroot
	fi
	run_child logged "$log" "$runner" "$@" || code=$?
	count_closing_line "$log"
	if [ "$code" != 0 ] && [ "$failed" = 0 ]; then
		failed=1 # ended before it could count
	fi
	record "$platform" "$passed" "$failed" "$((SECONDS - begun))" "$(grep -m 1 -oE '^PostgreSQL [0-9]+, RabbitMQ [0-9.]+' "$log" || :)"
	say
	# Several of them take room, and what is left of this one is of no use.
	if [ "$runner" = platform_chroot ] && [ -z "${ACEMQ_CHROOTS:-}" ]; then
		rm -rf --one-file-system "$chroot_dir"
	fi
}

# logged FILE COMMAND...: its output goes there too.
logged() {
	local file=$1
	shift
	"$@" 2>&1 | tee "$file"
}

# Sets the exit code, as for one platform.
run_platforms() {
	local platform options=()
	[ "$long" = no ] || options+=(--long)
	for platform in "${platforms[@]}"; do
		if [ "$platform" = here ] || [ "${#tiers[@]}" -gt 0 ]; then
			run_on "$platform" "${options[@]}" "${tiers[@]}"
		else
			run_on "$platform" "${options[@]}" "${platform_tiers[@]}"
		fi
	done
	print_results
	[ "$total_failed" = 0 ]
}
