#!/usr/bin/env bash
# A private cluster: trust authentication, reachable only through a unix socket in a
# directory closed to other users.
#
#   cluster.sh start NAME PREFIX [SETTING=VALUE | FILE.conf]...   makes it if missing
#   cluster.sh stop NAME        cluster.sh destroy NAME
#   cluster.sh dsn NAME [DATABASE]     connection string of its superuser
#   cluster.sh psql NAME DATABASE [ARGUMENT]...
#   cluster.sh log NAME         path of the server's log
#
# 'start' restarts a running server if its settings or the installed extension changed.
# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
require_dev

command=${1:?start, stop, destroy, dsn, psql or log?}
name=${2:?which cluster?}
shift 2
dir=$DEV/clusters/$name

free_port() {
    local port
    while :; do
        port=$((RANDOM % 20000 + 20000))
        (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || break
    done
    echo "$port"
}

# The path of a unix socket may have 107 bytes, its file name takes some.
socket_directory() {
    local path=$dir/socket
    if [ ${#path} -gt 85 ]; then path=$(mktemp -d /tmp/ae.XXXXXX); fi
    mkdir -p "$path"
    echo "$path"
}

own() { if is_root; then chown -R postgres: "$@"; fi; }

# Our server and no other: the process named in our pid file, if it still runs our data directory.
running() {
    [ -f "$dir/data/postmaster.pid" ] && as_server "$(bin)/pg_ctl" -D "$dir/data" status >/dev/null 2>&1
}

bin() { prefix_bin "$(cat "$dir/prefix")"; }

create() {
    say "creating cluster .dev/clusters/$name"
    rm -rf "$dir"
    mkdir -p "$dir/data"
    echo "$1" >"$dir/prefix"
    socket_directory >"$dir/socketdir"
    free_port >"$dir/port"
    chmod 700 "$dir/data" "$(cat "$dir/socketdir")"
    touch "$dir/log"
    own "$dir/data" "$(cat "$dir/socketdir")" "$dir/log"
    as_server "$(bin)/initdb" -D "$dir/data" -U postgres --encoding=UTF8 --locale=C.UTF-8 \
        --auth=trust --no-sync --no-instructions >"$dir/initdb.log" 2>&1 ||
        { cat "$dir/initdb.log" >&2 && die "initdb failed"; }
    # shellcheck disable=SC2016 # expanded by the inner shell
    as_server sh -c 'echo "include '\''private.conf'\''" >>"$1/postgresql.conf"' sh "$dir/data"
    touch "$dir/complete"
}

# Prints the settings file for the given SETTING=VALUE and FILE.conf arguments.
settings() {
    local item
    printf '%s\n' "listen_addresses = ''" "port = $(cat "$dir/port")" \
        "unix_socket_directories = '$(cat "$dir/socketdir")'" "log_line_prefix = '%m [%p] %b %d '"
    for item in "$@"; do
        case $item in
            *=*) printf "%s = '%s'\n" "${item%%=*}" "${item#*=}" ;;
            *) cat "$item" ;;
        esac
    done
}

start() {
    local prefix=${1:?which server?}
    shift
    [ -f "$dir/complete" ] || create "$prefix"
    settings "$@" >"$dir/private.conf.new"
    installed_checksum "$prefix" >"$dir/library.new"
    if running; then
        if cmp -s "$dir/private.conf.new" "$dir/private.conf" && cmp -s "$dir/library.new" "$dir/library"; then
            rm "$dir/private.conf.new" "$dir/library.new"
            return 0
        fi
        say "restarting cluster $name: its settings or the extension changed"
        stop
    fi
    mv "$dir/private.conf.new" "$dir/private.conf"
    mv "$dir/library.new" "$dir/library"
    cp "$dir/private.conf" "$dir/data/private.conf"
    own "$dir/data/private.conf"
    as_server "$(bin)/pg_ctl" -D "$dir/data" -l "$dir/log" -s -w -t 60 start || {
        tail -n 30 "$dir/log" >&2
        die "the server did not start" "Its log: $dir/log"
    }
}

stop() {
    if running; then as_server "$(bin)/pg_ctl" -D "$dir/data" -s -w -m fast stop; fi
}

dsn() { echo "host=$(cat "$dir/socketdir") port=$(cat "$dir/port") user=postgres dbname=${1:-postgres}"; }

[ "$command" = start ] || [ -f "$dir/complete" ] || [ "$command" = destroy ] ||
    die "there is no cluster $name here" "Run 'make up' first."
case $command in
    start) start "$@" ;;
    stop) stop ;;
    destroy)
        if [ -f "$dir/complete" ]; then
            stop
            rm -rf "$(cat "$dir/socketdir")"
        fi
        rm -rf "$dir"
        ;;
    dsn) dsn "$@" ;;
    psql) exec "$(bin)/psql" "$(dsn "${1:?which database?}")" "${@:2}" ;;
    log) echo "$dir/log" ;;
    *) die "unknown command $command" ;;
esac
