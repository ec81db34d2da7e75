# Choose the PostgreSQL to build for.
#
# PG_CONFIG decides if it is set.  Otherwise: the newest installed server, else
# the one that the system's own package `postgresql` stands for.
#
# Needs common.sh, packages.sh.
# shellcheck shell=bash

oldest_supported=15

# Prints the major version of the newest installed server that we can use, or nothing.
newest_installed() {
	local program version
	for program in /usr/lib/postgresql/*/bin/postgres; do
		version=$(basename "${program%/bin/postgres}")
		if [ -x "$program" ] && [ "$version" -ge "$oldest_supported" ]; then
			say "$version"
		fi
	done | sort -n | tail -n 1
}

# Prints the major version that `apt-get install postgresql` would bring, or nothing.
offered_version() {
	apt-cache depends postgresql 2>/dev/null | sed -n 's/^ *Depends: postgresql-\([0-9]*\)$/\1/p' | head -n 1
}

# Sets pg_version and pg_packages, and PG_CONFIG for everything that we start.
choose_postgres() {
	pg_packages=()
	if [ -n "${PG_CONFIG:-}" ]; then
		pg_version=$("$PG_CONFIG" --version | sed 's/^PostgreSQL \([0-9]*\).*/\1/')
	else
		pg_version=$(newest_installed)
		if [ -z "$pg_version" ]; then
			[ -n "$(offered_version)" ] || refresh_apt_lists
			pg_version=$(offered_version)
		fi
		[ -n "$pg_version" ] || die "no PostgreSQL installed and none offered by apt: set PG_CONFIG"
		pg_packages=("postgresql-$pg_version" "postgresql-server-dev-$pg_version")
		PG_CONFIG=/usr/lib/postgresql/$pg_version/bin/pg_config
	fi
	[ "$pg_version" -ge "$oldest_supported" ] ||
		die "PostgreSQL $pg_version is too old: acemq needs $oldest_supported or later (set PG_CONFIG to choose one)"
	export PG_CONFIG
}
