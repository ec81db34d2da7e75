# The tiers of dev/test.  Each function tier_NAME prints what its tools print
# and returns their verdict; count_of says how that output is counted.
#
# Needs common.sh, build.sh, results.sh.  `tree` is the copy that was built with
# gcc and installed; nothing is written into the checkout.
# shellcheck shell=bash

all_tiers=(layers format gcc clang unit fuzz sanitize regress pgtap stores broker faults lifecycle security monitoring docs release)
# What another release of Debian may change, as far as there is time for it.
platform_tiers=(gcc clang unit regress pgtap stores broker security monitoring docs release)
# These meet the installed library, which must be the one just built.
server_tiers='regress|pgtap|stores|broker|faults|lifecycle|security|monitoring|docs|release'

count_of() {
	case $1 in
		layers | format | gcc | clang | unit | fuzz | sanitize) say count_closing_line ;;
		regress) say count_regress ;;
		pgtap) say count_tap ;;
		*) say count_pytest ;;
	esac
}

# checks NAME COMMAND...: one check of a tier made of several.
checks_passed=0
checks_failed=0

check() {
	local name=$1
	shift
	if "$@"; then
		checks_passed=$((checks_passed + 1))
		say "ok: $name"
	else
		checks_failed=$((checks_failed + 1))
		say "FAILED: $name"
	fi
}

close_checks() {
	say "$checks_passed passed, $checks_failed failed"
	[ "$checks_failed" = 0 ]
}

tier_layers() {
	check "the rules catch every kind of breach" "$top/dev/check-layers" --self-test
	check "no file includes across a wall" "$top/dev/check-layers"
	close_checks
}

versions_agree() {
	"$python" - "$top" <<-'EOF'
		import json, re, sys
		top = sys.argv[1]
		control = re.search(r"default_version *= *'(.*)'", open(f"{top}/acemq.control").read()).group(1)
		meta = json.load(open(f"{top}/META.json"))
		changes = re.search(r"^## (\S+)", open(f"{top}/CHANGELOG.md").read(), re.M).group(1)
		debian = re.match(r"acemq \((.*)-\d+\)", open(f"{top}/debian/changelog").read()).group(1)
		library = re.search(r'#define ACEMQ_VERSION\s+"(.*)"', open(f"{top}/src/acemq.h").read()).group(1)
		found = {control, library, meta["version"], meta["provides"]["acemq"]["version"], changes, debian}
		if len(found) != 1:
		    sys.exit(f"acemq.control, src/acemq.h, META.json, CHANGELOG.md and debian/changelog name different versions: {sorted(found)}")
	EOF
}

python_compiles() {
	"$python" - "$top" <<-'EOF'
		import pathlib, sys
		for path in sorted(pathlib.Path(sys.argv[1]).glob("test/**/*.py")) + sorted(pathlib.Path(sys.argv[1]).glob("dev/**/*.py")):
		    compile(path.read_text(), str(path), "exec")
	EOF
}

shell_is_clean() {
	shellcheck -x -a -P "$top" "$top"/dev/{demo,test,format,check-layers,build-deb,lib/build-deb-inside} "$top/.ci/run"
}

tier_format() {
	check "C files are as dev/format leaves them" "$top/dev/format" --check
	check "one version everywhere" versions_agree
	check "shell scripts" shell_is_clean
	check "python files" python_compiles
	close_checks
}

tier_gcc() {
	check "gcc without a warning" build_tree "$tree"
	[ "$checks_failed" != 0 ] || check "make install" install_tree "$tree"
	close_checks
}

tier_clang() {
	copy_tree "$run_dir/clang"
	# The server was configured for gcc: clang is told to pass over flags it does not know.
	check "clang without a warning" build_tree "$run_dir/clang" CC=clang with_llvm=no \
		COPT="-Wno-unknown-warning-option -Wno-ignored-optimization-argument -Wno-unused-command-line-argument"
	close_checks
}

tier_unit() {
	"$tree/test/unit/run"
}

# A few seconds a target, a quarter of an hour with --long.
tier_fuzz() {
	local seconds=2
	[ "$long" = no ] || seconds=900
	"$tree/test/fuzz/run" --seconds "$seconds"
}

sanitized_regress() {
	PG_CONFIG=$sanitized_config "$python" "$tree/test/lib/serve.py" make -C "$tree" installcheck PG_CONFIG="$sanitized_config"
}

sanitized_pgtap() {
	PG_CONFIG=$sanitized_config "$python" "$tree/test/lib/serve.py" --database pgtap --extension pgtap \
		pg_prove "$tree"/test/pgtap/*.sql
}

# What the worker does: messages out, bad ones among good ones, back from the ladder, garbage on it.
sanitized_broker() {
	local chosen=(test_smoke.py test_failed_records.py::test_bad_among_good test_failed_records.py::test_retire_release_discard
		test_failed_records.py::test_properties_that_close_the_channel test_scheduler.py::test_what_arrives
		test_scheduler.py::test_malformed_messages test_claim_check.py)
	[ "$long" = no ] || chosen=(.)
	PG_CONFIG=$sanitized_config "$python" -m pytest -p no:cacheprovider -p no:logging --rootdir="$tree/test" -q \
		"${chosen[@]/#/$tree/test/broker/}"
}

# Times and memory are not what they are without a sanitizer, so only what tests behaviour runs here.
tier_sanitize() {
	check "build for the sanitizers" make_sanitized_server
	if [ "$checks_failed" = 0 ]; then
		check "regression and isolation tests" sanitized_regress
		check "pgTAP" sanitized_pgtap
		check "broker" sanitized_broker
		check "nothing reported" nothing_reported
	fi
	close_checks
}

# The databases that pg_regress makes are on a cluster with the library preloaded, as in real life.
tier_regress() {
	"$python" "$tree/test/lib/serve.py" make -C "$tree" installcheck PG_CONFIG="$PG_CONFIG" && return
	cat "$tree"/regression.diffs "$tree"/output_iso/regression.diffs 2>/dev/null
	return 1
}

tier_pgtap() {
	"$python" "$tree/test/lib/serve.py" --database pgtap --extension pgtap pg_prove -v "$tree"/test/pgtap/*.sql
}

# pytest_tier DIRECTORY: two files at a time, each process with servers of its own; most of the time they wait.
pytest_tier() {
	local options=(-n 2 --dist loadfile)
	[ "$long" = no ] || options+=(--long)
	"$python" -m pytest -p no:cacheprovider -p no:logging --rootdir="$tree/test" -q -ra --durations=5 "${options[@]}" "$tree/test/$1"
}

tier_stores() {
	pytest_tier stores
}

tier_broker() {
	pytest_tier broker
}

tier_faults() {
	pytest_tier faults
}

tier_lifecycle() {
	pytest_tier lifecycle
}

tier_security() {
	pytest_tier security
}

tier_monitoring() {
	pytest_tier monitoring
}

tier_docs() {
	pytest_tier docs
}

tier_release() {
	pytest_tier release
}

not_installed=no

# run_tier NAME
run_tier() {
	local tier=$1 log=$run_dir/$1.log begun=$SECONDS code=0 passed failed
	printf '%-12s ' "$tier"
	if [ "$not_installed" = yes ] && [[ $tier =~ ^($server_tiers)$ ]]; then
		say "not run: the library could not be installed"
		record "$tier" 0 1 0 "not run"
		return
	fi
	run_child "tier_$tier" >"$log" 2>&1 || code=$?
	"$(count_of "$tier")" "$log"
	if [ "$code" != 0 ] && [ "$failed" = 0 ]; then
		failed=1 # a runner that broke, not a test
	fi
	record "$tier" "$passed" "$failed" "$((SECONDS - begun))"
	if [ "$tier" = gcc ] && [ "$failed" != 0 ]; then
		not_installed=yes
	fi
	say "$passed passed, $failed failed"
	if [ "$failed" != 0 ] || [ "$passed" = 0 ]; then
		say "--- output of tier $tier ---"
		tail -n 400 "$log"
		say "--- end of tier $tier ---"
	fi
}
