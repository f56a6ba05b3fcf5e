# The parts of a run: what tests/run.sh, tests/bare.sh and .ci/run share. It is sourced.
#
# A part is a command with a name. It passes or fails by its exit code, and may say more with
# `count_part`. `conclude_parts` prints how long each part took and, as the last line, the totals.

parts_passed=0
parts_failed=0
parts_skipped=0
# What each part took and came to; and what the part that runs now has counted.
parts_table=()
part_result=
part_counts=()
part_output="$(mktemp)"
trap 'rm -f "$part_output"' EXIT

# Prints that something begins.
announce() {
    printf '\n== %s\n' "$*"
}

# Runs a command as a part: part NAME COMMAND… Its exit code is the command's. `set -e` has no effect
# in a command whose exit code somebody looks at: a function that is a part ends each step with `||` or
# joins them by `&&`.
part() {
    local name="$1" started="$SECONDS" status=0
    shift
    part_result= part_counts=()
    announce "$name"
    "$@" || status=$?
    settle_part "$status"
    parts_table+=("$(printf '%s  %s  %s' "$(duration "$((SECONDS - started))")" "$name" "$part_result")")
    return "$status"
}

# Says what the part that runs has counted: count_part PASSED FAILED [SKIPPED]
count_part() {
    part_counts=("$1" "$2" "${3:-0}")
    part_result="$1 passed, $2 failed"
    if [ "${3:-0}" -ne 0 ]; then part_result+=", $3 skipped"; fi
}

# Counts what the last line of a part's output says, if it is of the form that `conclude_parts` prints.
count_by_last_line() {
    local form='^([0-9]+) passed, ([0-9]+) failed(, ([0-9]+) skipped)?$'
    if [[ "$(tail -n 1 "$part_output")" =~ $form ]]; then
        count_part "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}" "${BASH_REMATCH[4]:-0}"
        return 0
    fi
    return 1
}

# Says that the part that runs has checked nothing, and why.
skip_part() {
    part_counts=(0 0 1)
    part_result="skipped: $*"
}

# Adds up what the part has counted. A part that broke off has failed, whatever it counted.
settle_part() {
    local status="$1"
    local passed="${part_counts[0]:-0}" failed="${part_counts[1]:-0}" skipped="${part_counts[2]:-0}"
    if [ "${#part_counts[@]}" -eq 0 ]; then part_result=ok; fi
    if [ "$status" -ne 0 ] && [ "$failed" -eq 0 ]; then
        failed=1
        part_result="failed${part_counts:+: $part_result, and then it broke off}"
    fi
    parts_passed=$((parts_passed + passed))
    parts_failed=$((parts_failed + failed))
    parts_skipped=$((parts_skipped + skipped))
}

# Runs a command whose output matters only if it fails.
quietly() {
    local status=0
    "$@" </dev/null >"$part_output" 2>&1 || status=$?
    if [ "$status" -ne 0 ]; then cat "$part_output"; fi
    return "$status"
}

# Installs Debian packages, as root or through sudo.
apt_install() {
    local as_root=()
    if [ "$(id -u)" -ne 0 ]; then as_root=(sudo); fi
    quietly "${as_root[@]}" apt-get update -qq &&
        quietly "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
            apt-get install -y -qq --no-install-recommends -o Dpkg::Use-Pty=0 "$@"
}

duration() {
    printf '%3d:%02d' "$(($1 / 60))" "$(($1 % 60))"
}

# Prints the table and the totals; fails when anything failed.
conclude_parts() {
    announce 'how long each part took'
    printf '%s\n' "${parts_table[@]}"
    printf '%s  in all\n\n' "$(duration "$SECONDS")"
    local skipped=
    if [ "$parts_skipped" -ne 0 ]; then skipped=", $parts_skipped skipped"; fi
    printf '%d passed, %d failed%s\n' "$parts_passed" "$parts_failed" "$skipped"
    [ "$parts_failed" -eq 0 ]
}
