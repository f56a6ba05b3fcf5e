# Before the files are in place: the user that owns what the service keeps.
if ! getent passwd tollgate >/dev/null; then
    useradd --system --user-group --no-create-home --home-dir /var/lib/tollgate \
        --shell /sbin/nologin --comment Tollgate tollgate
fi
