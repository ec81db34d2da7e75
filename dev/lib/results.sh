# How many tests ran: counting, and the table at the end.
#
# Needs common.sh.
# shellcheck shell=bash

total_passed=0
total_failed=0
table=()

# record TIER PASSED FAILED SECONDS [NOTE]
record() {
	local tier=$1 passed=$2 failed=$3 seconds=$4 note=${5-}
	if [ "$((passed + failed))" = 0 ]; then
		failed=1
		note="ran no test"
	fi
	total_passed=$((total_passed + passed))
	total_failed=$((total_failed + failed))
	table+=("$(printf '%-12s %6d %8d %8d %6d s  %s' "$tier" "$((passed + failed))" "$passed" "$failed" "$seconds" "$note")")
}

# The closing line stands alone: CI reads it.
print_results() {
	say
	printf '%-12s %6s %8s %8s %8s\n' tier ran passed failed time
	printf '%s\n' "${table[@]}"
	say
	say "$total_passed passed, $total_failed failed"
}

# count_lines PATTERN FILE
count_lines() {
	grep -cE -- "$1" "$2" || :
}

# Each count_* sets `passed` and `failed` from the output FILE of that kind of runner.

# pg_regress: "test x ... ok 12 ms" up to 15, "ok 1 - x 12 ms" from 16 on.
count_regress() {
	passed=$(count_lines '^(ok [0-9]+ |(test|    ) ?.*\.\.\. ok )' "$1")
	failed=$(count_lines '^(not ok [0-9]+ |(test|    ) ?.*\.\.\. FAILED)' "$1")
}

# pg_prove -v: the TAP lines of the tests, subtests (indented) not counted again.
# A file that ended early has no failed test; it counts as one.
count_tap() {
	passed=$(count_lines '^ok [0-9]+' "$1")
	failed=$(($(count_lines '^not ok [0-9]+' "$1") + $(count_lines '\(Wstat: .* Failed: 0\)' "$1")))
}

# The last "N passed, N failed" of whatever prints one.
count_closing_line() {
	local line
	line=$(grep -E '^[0-9]+ passed, [0-9]+ failed' "$1" | tail -n 1 || :)
	passed=$(say "$line" | sed -n 's/^\([0-9]*\) passed.*/\1/p')
	failed=$(say "$line" | sed -n 's/.* \([0-9]*\) failed.*/\1/p')
	passed=${passed:-0} failed=${failed:-0}
}

# pytest's summary: "2 failed, 10 passed, 1 error in 3.21s", in any combination.
count_pytest() {
	local line errors
	line=$(grep -E '(passed|failed|error|no tests ran|skipped).* in [0-9.]+s' "$1" | tail -n 1 || :)
	passed=$(say "$line" | grep -oE '[0-9]+ passed' | grep -oE '[0-9]+' || say 0)
	failed=$(say "$line" | grep -oE '[0-9]+ failed' | grep -oE '[0-9]+' || say 0)
	errors=$(say "$line" | grep -oE '[0-9]+ error' | grep -oE '[0-9]+' || say 0)
	failed=$((failed + errors))
}
