# After the files are in place. $1 is 1 for an installation, and 2 for an upgrade. As is the custom
# there, a new service waits until somebody enables it.
install -d -m 700 -o tollgate -g tollgate /var/lib/tollgate
if [ -d /run/systemd/system ]; then
    systemctl --system daemon-reload || true
    # The socket unit stays as it is: clients wait in its queue while one process ends and the next
    # begins. A configuration that this version refuses must not end the version that serves.
    if [ "$1" -gt 1 ] && systemctl --quiet is-active tollgate.service; then
        if CREDENTIALS_DIRECTORY=/etc/credstore tollgate check /etc/tollgate/tollgate.yaml >/dev/null; then
            systemctl restart tollgate.service || true
        else
            echo "tollgate: this version does not take the configuration above, and the one before serves on." >&2
            echo "tollgate: mend it, then: systemctl restart tollgate" >&2
        fi
    fi
fi
exit 0
