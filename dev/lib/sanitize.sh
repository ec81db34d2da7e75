# The library under AddressSanitizer and UndefinedBehaviorSanitizer inside a
# server: a private copy of the installed PostgreSQL, with a library of our own
# in it and a `postgres` that loads the sanitizer's runtime first, as a program
# that was not built with it has to.
#
# What palloc() hands out is a piece of a block, so an overrun within a block
# goes unseen here; the units under test/unit and test/fuzz, whose palloc() is
# malloc(), see those.  Everything else shows: the client library's memory, the
# stack, static tables, freed blocks, shifts, overflows, misaligned and null
# pointers.
#
# Needs common.sh, build.sh.
# shellcheck shell=bash

# Paths of the server that programs find relative to their own place.
sanitized_paths=(--bindir --pkglibdir --sharedir --includedir-server)

# copy_server DIRECTORY: the chosen server below DIRECTORY; its programs find each other there.
copy_server() {
	local option path
	for option in "${sanitized_paths[@]}"; do
		path=$("$PG_CONFIG" "$option")
		mkdir -p "$1$(dirname "$path")"
		cp -a "$path" "$1$(dirname "$path")"
	done
}

# wrap_server BIN-DIRECTORY REPORTS: `postgres` there loads the runtime, except when initdb runs it.
wrap_server() {
	local runtime
	runtime=$(readlink -f "$(gcc -print-file-name=libasan.so)")
	gcc -shared -fPIC -O1 -o "$1/no_messages.so" "$top/dev/lib/no_messages.c"
	mv "$1/postgres" "$1/postgres.bin"
	cat >"$1/postgres" <<-WRAPPER
		#!/bin/bash
		case "\${1-}" in
		-D)
			export LD_PRELOAD=$runtime:$1/no_messages.so
			export ASAN_OPTIONS=detect_leaks=0:abort_on_error=1:log_path=$2/asan
			export UBSAN_OPTIONS=print_stacktrace=1:log_path=$2/ubsan
			;;
		esac
		exec -a "\$0" "$1/postgres.bin" "\$@"
	WRAPPER
	chmod 755 "$1/postgres"
}

# Builds and installs; sets sanitized_config and sanitized_reports.
make_sanitized_server() {
	local prefix=$run_dir/sanitized build=$run_dir/sanitize-build
	sanitized_reports=$run_dir/sanitizer-reports
	mkdir "$sanitized_reports"
	chmod 1777 "$sanitized_reports"
	mkdir "$prefix"
	copy_server "$prefix"
	sanitized_config=$prefix$("$PG_CONFIG" --bindir)/pg_config
	wrap_server "$(dirname "$sanitized_config")" "$sanitized_reports"
	copy_tree "$build"
	make -s -C "$build" -j2 PG_CONFIG="$sanitized_config" with_llvm=no \
		COPT="-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer" &&
		make -s -C "$build" install PG_CONFIG="$sanitized_config" with_llvm=no
}

# The servers have reported nothing.
nothing_reported() {
	local report
	for report in "$sanitized_reports"/*; do
		[ -e "$report" ] || continue
		say "--- $report ---"
		head -n 120 "$report"
	done
	[ -z "$(ls "$sanitized_reports")" ]
}
