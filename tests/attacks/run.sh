#!/usr/bin/env bash
# run.sh DSN [NAME...]: every attack, or the named ones, against a live server. An attack is a psql script with the
# attacker's role, the recipe and what must not happen; it passes if psql reaches its end and it asserted something.
# Each has a new database and new roles. Names: fNN_* are attacks that once succeeded, in the order in which they were found;
# held_* are attacks that never did. recipes/ holds parts that several attacks include. Prints "test NAME ... ok" or "FAILED" for each.
# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/../../scripts/lib.sh"
require_dev
dsn=${1:?which cluster?}
shift
here=$ROOT/tests/attacks
psql=$(prefix_bin pg-e2e)/psql
results=$DEV/results/attacks
rm -rf "$results" && mkdir -p "$results"
verdict=0

PGHOST=$(sed -E 's/.*host=([^ ]*).*/\1/' <<<"$dsn")
PGPORT=$(sed -E 's/.*port=([^ ]*).*/\1/' <<<"$dsn")
export PGHOST PGPORT PGUSER=postgres PGAPPNAME=attack
ROLES="owner_a, owner_b, mallory, alice, op_b, viewer, adm, app, tabowner"

admin() { "$psql" -X -q -v ON_ERROR_STOP=1 -d postgres "$@"; }

# The key that secrets are sealed with, owned by the server's user and closed to others.
admin -c "COPY (SELECT encode(sha256('attacks'), 'base64')) TO PROGRAM 'umask 077; cat > attacks_secrets.key'"

stage() { # a database and roles that no attack has touched
    admin -c "DROP DATABASE IF EXISTS attack WITH (FORCE)" -c "DROP ROLE IF EXISTS $ROLES" -c "CREATE DATABASE attack" &&
        "$psql" -X -q -v ON_ERROR_STOP=1 -d attack -o /dev/null -f "$here/cast.sql"
}

has_head() { # FILE: it names the attack, the attacker and what must not happen
    local line
    for line in attack attacker 'must not happen'; do
        grep -q "^-- $line: ..*" "$1" || { echo "it has no line '-- $line: ...'" && return 1; }
    done
}

if [ $# -eq 0 ]; then
    for file in "$here"/*.sql; do set -- "$@" "$(basename "$file" .sql)"; done
fi
for name in "$@"; do
    case $name in cast | lib) continue ;; esac
    output=$results/$name.out
    if has_head "$here/$name.sql" >"$output" 2>&1 && stage >>"$output" 2>&1 &&
        "$psql" -X -q -v ON_ERROR_STOP=1 -v attack_lib="$here/lib.sql" -d attack -f "$here/$name.sql" >>"$output" 2>&1 &&
        grep -q 'NOTICE:  held: ' "$output"; then
        echo "test $name ... ok"
    else
        echo "test $name ... FAILED"
        sed 's/^/    /' "$output" | tail -n 25
        verdict=1
    fi
done
admin -c "DROP DATABASE IF EXISTS attack WITH (FORCE)" -c "DROP ROLE IF EXISTS $ROLES"
exit $verdict
