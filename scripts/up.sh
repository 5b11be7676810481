#!/usr/bin/env bash
# make up: a running private server with the extension, the README's tour on it, and a
# database to play in.
# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
here=$ROOT/scripts
"$here/setup.sh"
require_dev

say "building the extension (release)"
"$here/build.sh" pg

"$here/cluster.sh" start dev pg \
    shared_preload_libraries=$EXTENSION \
    $EXTENSION.allow_superuser_automations=on \
    max_prepared_transactions=10 \
    max_worker_processes=32 \
    fsync=on
dsn=$("$here/cluster.sh" dsn dev)
psql=$(prefix_bin pg)/psql
sql() { "$psql" -X -q -A -t -v ON_ERROR_STOP=1 "$dsn" "$@"; }

# What is in demo belongs to its user; the tour gets a database of its own, new each time.
schema_now=$(cat "$(prefix_extensions pg)/$EXTENSION"--*.sql | cksum)
schema_of_demo=$DEV/clusters/dev/demo-schema
if [ -z "$(sql -c "SELECT 1 FROM pg_database WHERE datname = 'demo'")" ]; then
    sql -c "CREATE DATABASE demo"
    "$psql" -X -q "${dsn/dbname=postgres/dbname=demo}" -c "CREATE EXTENSION $EXTENSION"
    echo "$schema_now" >"$schema_of_demo"
elif [ "$schema_now" != "$(cat "$schema_of_demo" 2>/dev/null)" ]; then
    warn "database demo holds the extension as an earlier build created it"
    warn "to renew it: make psql, then DROP EXTENSION $EXTENSION CASCADE; CREATE EXTENSION $EXTENSION;"
fi

say "the tour of README.md, in database tour"
sql -c "DROP DATABASE IF EXISTS tour WITH (FORCE)" -c "CREATE DATABASE tour" 2>/dev/null
"$here/readme.sh" show "${dsn/dbname=postgres/dbname=tour}"

echo "${dsn/dbname=postgres/dbname=demo}" >"$DEV/dsn"
say "the server is up; its superuser, in database demo:"
printf '    make psql\n    psql "%s"\n' "$(cat "$DEV/dsn")"
say "'make down' stops it; the connection string is in .dev/dsn, the log in .dev/clusters/dev/log"
