# The parts of a run: what tests/run.sh, tests/all.sh, tests/bare.sh and .ci/run share. It is sourced.
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
# How many parts run side by side, and which they are: names by their processes.
parts_at_once=3
declare -A parts_beside=()
parts_folder="$(mktemp -d)"
part_output="$parts_folder/output"
trap end_parts EXIT

# Ends what still runs: each part beside others is a process group.
end_parts() {
    local pid
    for pid in "${!parts_beside[@]}"; do kill -- "-$pid" 2>/dev/null || true; done
    rm -rf "$parts_folder"
}

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
    settle_part "$name" "$status" "$((SECONDS - started))"
    return "$status"
}

# Begins a part, which runs beside others: part_beside NAME COMMAND… It waits until there is room. What
# the part prints is shown as a whole when it has ended.
part_beside() {
    local name="$1"
    shift
    while [ "${#parts_beside[@]}" -ge "$parts_at_once" ]; do end_part_beside; done
    if [ ! -p "$parts_folder/ended" ]; then
        mkfifo "$parts_folder/ended"
        # For reading and writing: a part that ends early must not wait for a reader.
        exec {parts_ended}<>"$parts_folder/ended"
    fi
    set -m
    run_beside "$@" &
    set +m
    parts_beside[$!]="$name"
}

# In a process of its own.
run_beside() {
    local folder="$parts_folder/$BASHPID" started="$SECONDS" status=0
    mkdir "$folder"
    part_output="$folder/output"
    part_result= part_counts=()
    trap 'echo "$BASHPID" >&"$parts_ended"' EXIT
    "$@" >"$folder/shown" 2>&1 || status=$?
    printf 'part_counts=(%s) part_result=%q seconds=%d\n' \
        "${part_counts[*]}" "$part_result" "$((SECONDS - started))" >"$folder/result"
    exit "$status"
}

# Waits for the first of those that run to end, and shows it.
end_part_beside() {
    local pid seconds=0 status=0
    read -r -u "$parts_ended" pid
    wait "$pid" || status=$?
    part_result= part_counts=()
    announce "${parts_beside[$pid]}"
    cat "$parts_folder/$pid/shown"
    # A part that ended this shell has left none.
    if [ -f "$parts_folder/$pid/result" ]; then source "$parts_folder/$pid/result"; fi
    settle_part "${parts_beside[$pid]}" "$status" "$seconds"
    unset "parts_beside[$pid]"
}

# Waits for all that run beside others.
end_parts_beside() {
    while [ "${#parts_beside[@]}" -ne 0 ]; do end_part_beside; done
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

# Runs a command whose last line counts; it fails without one.
counted() {
    local status=0
    "$@" | tee "$part_output" || status=$?
    count_by_last_line || status=1
    return "$status"
}

# Says that the part that runs has checked nothing, and why.
skip_part() {
    part_counts=(0 0 1)
    part_result="skipped: $*"
}

# Adds up what a part has counted: settle_part NAME STATUS SECONDS. A part that broke off has failed,
# whatever it counted.
settle_part() {
    local name="$1" status="$2" took="$3"
    local passed="${part_counts[0]:-0}" failed="${part_counts[1]:-0}" skipped="${part_counts[2]:-0}"
    if [ "${#part_counts[@]}" -eq 0 ]; then part_result=ok; fi
    if [ "$status" -ne 0 ] && [ "$failed" -eq 0 ]; then
        failed=1
        part_result="failed${part_counts:+: $part_result, and then it broke off}"
    fi
    parts_passed=$((parts_passed + passed))
    parts_failed=$((parts_failed + failed))
    parts_skipped=$((parts_skipped + skipped))
    parts_table+=("$(printf '%s  %s  %s' "$(duration "$took")" "$name" "$part_result")")
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
