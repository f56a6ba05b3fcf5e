#!/bin/sh
# Starts a Redis server of the compose files:
#
#   start.sh cluster            a node of the cluster
#   start.sh server             one on its own
#   start.sh replica PRIMARY    one that follows the service PRIMARY
#
# The password is in REDISCLI_AUTH, where redis-cli looks for it too, or in the file REDIS_PASSWORD_FILE.
# The configuration goes in by standard input: a password among the arguments is in every list of
# processes.
set -eu
here="$(dirname "$0")"

if [ -n "${REDIS_PASSWORD_FILE:-}" ]; then
    REDISCLI_AUTH="$(cat "$REDIS_PASSWORD_FILE")"
    export REDISCLI_AUTH
fi
# With an empty one Redis would ask for none.
: "${REDISCLI_AUTH:?the password is empty}"

# Containers that are made anew have other addresses, and nodes remember those of before. Each one tells
# the others where it is now: after a restart of all nobody else would. A node that knows nobody yet is
# left alone, for init.sh to place.
introduce() {
    until redis-cli ping | grep -q PONG; do sleep 1; done
    if redis-cli cluster info | grep -q '^cluster_known_nodes:1[^0-9]'; then return; fi
    for node in $CLUSTER_NODES; do
        address="$(getent hosts "$node")" && redis-cli cluster meet "${address%% *}" 6379
    done
}

extra=""
case "$1" in
cluster)
    extra="include $here/cluster.conf"
    # From a subshell, so that it is not a child of the server, which knows only its own.
    (introduce >/dev/null 2>&1 &)
    ;;
replica) extra="replicaof $2 6379" ;;
esac

exec redis-server - <<END
include $here/server.conf
$extra
requirepass $REDISCLI_AUTH
masterauth $REDISCLI_AUTH
END
