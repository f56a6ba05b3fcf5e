# Before the files go. $1 is 0 for a removal, and 1 for an upgrade, which stops nothing.
if [ "$1" -eq 0 ] && [ -d /run/systemd/system ]; then
    systemctl --no-reload disable --now tollgate.service tollgate.socket || true
fi
exit 0
