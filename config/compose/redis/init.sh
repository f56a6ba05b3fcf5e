#!/bin/sh
# Gets the Redis servers of docker-compose.yml ready, waits until they are, and ends:
#
#   init.sh cluster         makes one cluster of $CLUSTER_NODES: the first three are primaries, the
#                           others their replicas
#   init.sh servers NAME…   nothing to make: each answers, and replicas follow
#
# Each step looks at what is there, so it can be run again at any time: on a cluster that is formed, also
# after a failover, or on one whose forming broke off.
set -eu
patience_seconds=60

at() {
    server="$1"
    shift
    redis-cli -h "$server" "$@"
}

# Runs a command until it succeeds.
await() {
    tries=0
    until "$@" >/dev/null 2>&1; do
        tries=$((tries + 1))
        if [ "$tries" -ge $((patience_seconds * 2)) ]; then
            echo "not so within $patience_seconds seconds: $*" >&2
            exit 1
        fi
        sleep 0.5
    done
}

is_answering() {
    at "$1" ping | grep -q PONG
}

# A primary, or a replica whose primary it follows.
is_following() {
    at "$1" info replication | grep -q -e '^role:master' -e '^master_link_status:up'
}

# The number of a line in `cluster info`.
cluster_info() {
    at "$1" cluster info | tr -d '\r' | sed -n "s/^cluster_$2://p"
}

knows() {
    [ "$(cluster_info "$1" known_nodes)" -ge "$2" ]
}

is_serving() {
    [ "$(cluster_info "$1" state)" = ok ] && [ "$(cluster_info "$1" slots_assigned)" = 16384 ]
}

# The node's own line ends with its slots; without any, this is the last field.
is_primary_without_slots() {
    at "$1" cluster nodes | grep -q 'myself,master .* connected$'
}

has_all_slots() {
    for node in $CLUSTER_NODES; do
        if [ "$(cluster_info "$node" slots_assigned)" = 16384 ]; then return 0; fi
    done
    return 1
}

# A slot that has a server already makes the whole command do nothing, which is what is wanted then.
assign_slots() {
    # ADDSLOTSRANGE would be shorter, and Redis 6.2 does not have it. An epoch of its own for each
    # saves the nodes from sorting that out among themselves.
    at "$1" cluster set-config-epoch "$4" || true
    at "$1" cluster addslots $(seq "$2" "$3") || true
}

meet_all() {
    for node in $CLUSTER_NODES; do
        address="$(getent hosts "$node")"
        at "$1" cluster meet "${address%% *}" 6379
    done
}

follow() {
    if is_primary_without_slots "$1"; then
        at "$1" cluster replicate "$(at "$2" cluster myid)"
    fi
}

form_cluster() {
    # shellcheck disable=SC2086 # a list of names
    set -- $CLUSTER_NODES
    for node; do await is_answering "$node"; done
    if ! has_all_slots; then
        echo "giving each primary its slots"
        assign_slots "$1" 0 5460 1
        assign_slots "$2" 5461 10922 2
        assign_slots "$3" 10923 16383 3
    fi
    meet_all "$1"
    for node; do await knows "$node" "$#"; done
    for node; do await is_serving "$node"; done
    # Which primary each of them follows.
    follow "$4" "$1"
    follow "$5" "$2"
    follow "$6" "$3"
    for node; do await is_following "$node"; done
    echo "the cluster serves"
}

mode="$1"
shift
case "$mode" in
cluster) form_cluster ;;
servers)
    for name; do
        await is_answering "$name"
        await is_following "$name"
    done
    ;;
esac
