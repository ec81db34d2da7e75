# Packages, and builds from a copy of the checkout, so that the checkout stays as it is.
#
# Needs common.sh, packages.sh, postgres.sh.
# shellcheck shell=bash

# What building, the broker and a client of it take, besides PostgreSQL.
# shellcheck disable=SC2034
base_packages=(gcc make libc6-dev librabbitmq-dev libssl-dev rabbitmq-server python3 python3-pika python3-psycopg2)

# copy_tree DIRECTORY: the checkout without what git or a build left in it.
copy_tree() {
	mkdir "$1"
	tar -C "$top" --exclude=./.git --exclude='*.o' --exclude='*.bc' --exclude='*.so' --exclude=__pycache__ \
		--exclude=./results --exclude=./output_iso --exclude=./tmp_check -cf - . |
		tar -C "$1" --no-same-owner -xf -
}

# build_tree DIRECTORY [MAKE-ARGUMENT...]
build_tree() {
	local dir=$1
	shift
	make -s -C "$dir" -j2 PG_CONFIG="$PG_CONFIG" "$@"
}

install_tree() {
	make -s -C "$1" install PG_CONFIG="$PG_CONFIG"
}
